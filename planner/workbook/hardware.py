"""The sheet Hardware: the catalogue of accelerators, and dated prices of their hours, each with its source."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner import catalogue, pricing
from planner.cost import hour_price_of
from planner.device import Accelerator
from planner.errors import PlannerError
from planner.plan import Plan
from planner.workbook.book import A3, GIB, Book, Sheet
from planner.workbook.contents import Contents

SHOWN = {
    "name": "",
    "title": "",
    "vendor": "",
    "memory_gib": "GiB",
    "bf16_tflop_per_s": "TFLOP/s",
    "fp8_tflop_per_s": "TFLOP/s",
    "usd_per_hour": "USD/h",
    "price": "",
    "memory_bytes": "B",
    "bandwidth_bytes_per_s": "B/s",
    "link_bytes_per_s": "B/s",
    "peer_bytes_per_s": "B/s",
    "host_bytes_per_s": "B/s",
    "network_bytes_per_s": "B/s",
    "domain_size": "",
    "power_w": "W",
    "confidence": "",
}
PRICES = "accelerator source basis date provider region usd_per_hour term confidence".split()
LEFT = ("name", "title", "vendor", "price", "confidence")
WIDTHS = (24, 58, 12, 13, 18, 18, 14, 34, 18, 22, 20, 20, 20, 20, 10, 9, 10)


def write(book: Book, made: Contents) -> None:
    """Write the sheet."""
    bases = _bases(made)
    sheet = book.sheet("Hardware", (*WIDTHS, *(24 for _ in bases)), paper=A3)
    sheet.text(0, 0, "Hardware", "title")
    sheet.text(
        1,
        0,
        "Memory is what the driver hands out; peaks are dense; links count one way. Blank: not published.",
        "subtitle",
    )
    devices = devices_of(made.plan)
    heads = [*SHOWN, *bases]
    for column, head in enumerate(heads):
        sheet.text(3, column, SHOWN.get(head, "FLOP/s"), "unit_right")
    first = 4
    for row, device in enumerate(devices, first + 1):
        _device(sheet, made, row, device, heads)
    sheet.table(first, 0, "Accelerators", heads, len(devices), LEFT, autofilter=True)
    row = first + len(devices) + 2
    sheet.section(row, "Prices of an accelerator's hour, the newest of each offer", len(WIDTHS))
    known = made.plan.prices.as_of or "today"
    sheet.text(row + 1, 0, f"as of {known}; of several the plan takes the lowest", "subtitle")
    offers = pricing.prices(as_of=made.plan.prices.as_of).to_dict("records")
    sheet.made.set_h_pagebreaks([row])
    sheet.heads(row + 2, PRICES, right=("usd_per_hour",))
    row += 2
    for offer in offers:
        row += 1
        for column, name in enumerate(PRICES):
            if name == "usd_per_hour":
                sheet.number(row, column, offer[name], "USD/h")
            else:
                sheet.text(row, column, str(offer[name]), "unit" if column else "text")
    sheet.made.freeze_panes(5, 1)
    sheet.made.print_area(0, 0, row, len(WIDTHS) - 1)


def devices_of(plan: Plan) -> list[Accelerator]:
    """The catalogue, with the plan's own accelerator in its place or at the end."""
    listed = {name: catalogue.accelerator(name) for name in catalogue.names()}
    return list((listed if plan.accelerator is None else listed | {plan.accelerator.name: plan.accelerator}).values())


def _bases(made: Contents) -> dict[str, str]:
    """Word of a peak -> the format by which a device chooses it."""
    slots, _ = made.ranks
    return {**made.live.bases, **slots.peaks}


def _device(sheet: Sheet, made: Contents, row: int, device: Accelerator, heads: list[str]) -> None:
    usd, note = _price(made.plan, device)
    figures: dict[str, Any] = {
        "bf16_tflop_per_s": _tera(device, "bf16"),
        "fp8_tflop_per_s": _tera(device, "fp8"),
        "usd_per_hour": usd,
        "confidence": device.facts["memory_bytes"].confidence if "memory_bytes" in device.facts else "",
        "price": note,
    }
    for word, basis in _bases(made).items():
        figures[word] = peak_of(device, basis)
    for column, head in enumerate(heads):
        if head == "memory_gib":
            cell = f"I{row + 1}"
            sheet.formula(row, column, f"{cell}/{GIB}", device.memory_bytes / GIB, "GiB")
            continue
        value = figures[head] if head in figures else getattr(device, head)
        if isinstance(value, str):
            sheet.text(
                row, column, value, "unit" if head in ("price", "confidence") else "indented" if column else "text"
            )
        else:
            sheet.number(row, column, value, SHOWN.get(head, "FLOP/s"))


def listed_usd(plan: Plan, device: Accelerator) -> float | None:
    """The listed price of an hour that the plan would take on a device."""
    return _price(plan, device)[0]


def _price(plan: Plan, device: Accelerator) -> tuple[float | None, str]:
    """The listed hour that the plan would take on a device, with provider and date."""
    asked = replace(plan.prices, usd_per_hour=None, purchase_usd=None)
    try:
        hour = hour_price_of(replace(plan, accelerator=device, prices=asked))
    except PlannerError:
        return None, ""
    return float(hour.usd), hour.source


def peak_of(device: Accelerator, basis: str) -> float | None:
    """The peak at which a device multiplies tensors stored in a format, or None where it publishes none."""
    try:
        return device.peak(device.compute_format(basis))
    except PlannerError:
        return None


def _tera(device: Accelerator, format: str) -> float | None:
    peak = device.peak_flops.get(format)
    return None if peak is None else peak / 1e12
