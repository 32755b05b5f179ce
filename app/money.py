"""What pages say of money: its figures, each with its name and how it came about."""

from __future__ import annotations

import math
from typing import Any

import streamlit as st

from planner.app import show
from planner.cost import HOURS_PER_DAY, UNITS, Cost, paid_usd_per_hour
from planner.formula import Explanation, formulas
from planner.phases import Timing

LABELS = {
    "usd_per_mtok_input": "Million input tokens",
    "usd_per_mtok_cached_input": "Million cached tokens",
    "usd_per_mtok_output": "Million output tokens",
    "usd_per_mtok_blended": "Million tokens, blended",
    "usd_per_mtok_blended_reserved": "Blended, idle paid",
    "usd_per_request": "One request",
    "usd_per_accelerator_hour": "Accelerator-hour",
    "fleet_usd_per_hour": "Fleet, an hour",
    "fleet_usd_per_month": "Fleet, a month",
    "idle_usd_per_month": "Idle, of the month",
    "requests_per_month": "Requests a month",
    "usd_per_user_month": "One user, a month",
}
"""Figure of `planner.cost.Cost` -> its name on the page."""

HOW = {
    "usd_per_mtok_input": "The time of the pass that reads a prompt without what is cached, on one replica.",
    "usd_per_mtok_cached_input": "What the presence of cached tokens adds to the pass that reads the rest.",
    "usd_per_mtok_blended_reserved": "Blended price / utilisation: an idle hour is paid for, too.",
    "usd_per_request": "Replica-hour, with what others leave empty, x (prefill + decode / sequences) / 3,600 s.",
    "fleet_usd_per_hour": "Accelerator-hour x accelerators.",
    "idle_usd_per_month": "Fleet of a month x (1 - utilisation).",
    "requests_per_month": "Output tokens a second in all / those of a request x seconds of a month x utilisation.",
    "usd_per_user_month": "Request x requests of a user and day x days of a month / utilisation.",
}
"""Figure -> its formula in words, where it has no named one."""


def usd(value: Any, unit: str = "USD") -> str:
    """An amount of money to the cent, small ones to four digits.

    >>> usd(39628.8), usd(0.00001692), usd(0.0), usd(None), usd(8624560.2, "1")
    ('39,628.80 USD', '0.00001692 USD', '0.00 USD', 'n/a', '8,624,560')
    """
    if value is None or value != value:
        return "n/a"
    if unit == "1":
        return f"{value:,.0f}"
    places = 2 if not value or abs(value) >= 1 else 3 - math.floor(math.log10(abs(value)))
    return f"{value:,.{places}f} {unit}"


def metrics(answer: Cost, times: Timing, names: Any) -> None:
    """Figures as boxes, each with how it came about."""
    with st.container(horizontal=True, gap="small"):
        for name in names:
            value = getattr(answer, name)
            if value is None:
                continue
            with st.container(border=True, width=170):
                st.metric(LABELS[name], usd(value, UNITS[name]))
                with st.popover("How", key=f"how {name}"):
                    st.markdown(f"**{value:,.10g}{'' if UNITS[name] == '1' else f' {UNITS[name]}'}**")
                    _how(answer, times, name, value)


def _how(answer: Cost, times: Timing, name: str, value: Any) -> None:
    found = _explained(answer, times, name)
    if found is not None and found.value == value:
        show.explanation(found)
    elif name == "usd_per_accelerator_hour":
        st.markdown(f"{answer.hour.provenance}: {answer.hour.source}")
    else:
        st.markdown(HOW[name])


def _explained(answer: Cost, times: Timing, name: str) -> Explanation | None:
    """The named formula of a figure with its numbers; it is only shown where it gives the figure itself."""
    plan, figures = answer.plan, answer.figures
    tokens = {"usd_per_hour": paid_usd_per_hour(plan, times, answer.hour.usd)}
    cached = plan.workload.cached_prefix
    match name:
        case "usd_per_mtok_input" if not cached:
            return formulas["usd_per_mtok"].explain({**tokens, "seconds": times.prefill_s, "tokens": times.isl})
        case "usd_per_mtok_output":
            seconds = times.decode_s / times.sequences
            return formulas["usd_per_mtok"].explain({**tokens, "seconds": seconds, "tokens": times.osl})
        case "usd_per_mtok_blended":
            seconds = times.prefill_s + times.decode_s / times.sequences
            both = times.isl + times.osl
            return formulas["usd_per_mtok"].explain({**tokens, "seconds": seconds, "tokens": both})
        case "fleet_usd_per_month":
            paid = {"accelerators": plan.layout.accelerators, "usd_per_hour": figures["usd_per_accelerator_hour"]}
            return formulas["fleet_usd"].explain({**paid, "hours": HOURS_PER_DAY * plan.assume("days_per_month")})
        case "usd_per_accelerator_hour" if plan.prices.usd_per_hour is None and plan.prices.purchase_usd is not None:
            bought = {
                name: getattr(plan.prices, name) for name in ("purchase_usd", "amortisation_years", "usd_per_kwh")
            }
            site = {"power_w": plan.device.power_w, "pue": plan.assume("pue")}
            return formulas["owned_usd_per_hour"].explain({**bought, **site})
    return None
