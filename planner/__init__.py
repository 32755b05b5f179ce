"""Exact sizes, speeds and costs of causal decoders.

The names below are the face: they stay. Each is fetched from its module when it is first used, so that `import planner`
and `planner --help` load nothing but the standard library.
"""

import os
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_MODULE_OF = {
    "Architecture": "contract",
    "Plan": "plan",
    "PlannerError": "errors",
    "ablate": "witness.ablate",
    "accelerator": "catalogue",
    "accelerators": "catalogue",
    "cache_bytes": "accounts",
    "compare": "scenarios",
    "diff": "editing",
    "edit": "editing",
    "estimate": "speed",
    "fit": "memory",
    "flops": "accounts",
    "formulas": "formula",
    "itemise": "itemised",
    "load": "sources",
    "parameters": "accounts",
    "plan_frame": "rows",
    "plan_row": "rows",
    "plot": "figures.results",
    "prices": "pricing",
    "read_plan": "plan_file",
    "read_workbook": "workbook",
    "size": "sizing",
    "sweep": "scenarios",
    "verify": "witness.verify",
    "weight_bytes": "accounts",
    "witness": "witness",
    "write_workbook": "workbook",
}

__all__ = list(_MODULE_OF)

# Run from a checkout, Python imports this folder and not what is installed, and here `presets` and `app` lie beside it.
_beside = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if os.path.isdir(os.path.join(_beside, "presets")):
    __path__.append(_beside)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULE_OF[name]}")
    value = module if _MODULE_OF[name] == name else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
