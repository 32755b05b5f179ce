"""The words of the link that say a plan and its prices: texts like all others, empty where nothing is said."""

from __future__ import annotations

from typing import get_args

from planner import catalogue
from planner.plan_parts import Engine
from planner.pricing import BASES, api_prices

LAYOUT = ("tp", "pp", "dp", "ep", "attention_dp")
MEMORY = ("memory_fraction", "reserve_bytes", "prefill_tokens")
TIMES = (
    "compute_fraction",
    "fp8_compute_fraction",
    "fp4_compute_fraction",
    "bandwidth_fraction",
    "link_fraction",
    "collective_latency_s",
    "seconds_per_layer",
)
OWNING = ("purchase_usd", "amortisation_years", "usd_per_kwh", "pue")
API = {"input": "api_input", "cached_input": "api_cached_input", "output": "api_output"}
"""Class of tokens -> the word of a price that the user gives for it."""

ANY = "any"
AUTO = "auto"
FULLEST = "fullest"
MOST_OTHERS = 6

DEFAULTS = {
    "accelerator": "h100-sxm",
    "count": "",
    "engine": "vllm",
    "isl": "",
    "osl": "",
    "cached": "0",
    "utilisation": "100",
    "stage": FULLEST,
    "others": "",
    "pay": "rent",
    "basis": "on_demand",
    "provider": ANY,
    "as_of": "",
    "usd_per_hour": "",
    "api": AUTO,
    "api_provider": ANY,
    **dict.fromkeys((*LAYOUT, *MEMORY, *TIMES, *OWNING, *API.values()), ""),
}
"""Word of the link -> the text that holds where the link does not say."""

CHOICES = {
    "accelerator": catalogue.names(),
    "engine": get_args(Engine),
    "cached": tuple(map(str, range(0, 100, 5))),
    "utilisation": tuple(map(str, range(5, 105, 5))),
    "pay": ("rent", "own"),
    "basis": BASES,
    "api": (AUTO, *sorted(set(api_prices()["model"]))),
}
"""Words that have one of a few texts."""
