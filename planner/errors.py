"""Everything this project raises on purpose.

A caller needs one ``except``; the command line ends the process with ``exit_code``.

::

    PlannerError            3
    ├── UsageError          2   the question is wrong: an unknown name, options that do not go together
    │   └── UnknownName         a name that is not in a list we know; says which one is near
    └── InputError          3   the input is not understood: a file, a number, a contract
        └── ContractError       a rule of the contract is broken; ``path`` says where

Exit status 1 is not an error: it is the answer "does not fit".

A message is one sentence that says the place, the value, the rule and, where there is one, the remedy:
``models/x.toml: layers[0].mixer: n_kv_heads = 7 does not divide n_heads = 64``.
"""

from collections.abc import Iterable
from difflib import get_close_matches

FEW = 8
"""So many names are listed where none of them is near."""

LISTED_BY = {
    "model or path": "planner models",
    "accelerator": "planner accelerators",
    "weight format": "planner formats",
    "cache format": "planner formats",
    "formula": "planner formulas",
    "assumption": "planner assumptions",
    "provider": "planner prices",
    "API provider": "planner prices --api",
    "API model": "planner prices --api",
}
"""Kind of name -> the command that lists them where they are more."""


class PlannerError(Exception):
    """The one root of everything raised on purpose."""

    exit_code = 3


class UsageError(PlannerError):
    """The question cannot be asked like this."""

    exit_code = 2


class UnknownName(UsageError):
    """A name that is not among the known ones.

    >>> raise UnknownName("accelerator", "h100-smx", ["h100-sxm", "l40s"])
    Traceback (most recent call last):
    planner.errors.UnknownName: unknown accelerator 'h100-smx'; did you mean 'h100-sxm'?
    """

    def __init__(self, kind: str, name: str, names: Iterable[str]) -> None:
        known = list(names)
        where = f"; {LISTED_BY[kind]} lists those that are known" if kind in LISTED_BY else ""
        listed = f"; it is one of {', '.join(sorted(known))}" if len(known) <= FEW else where
        super().__init__(f"unknown {kind} {name!r:.120}{suggest(name, known) or listed}")


class InputError(PlannerError):
    """The input is not understood."""


class ContractError(InputError):
    """A rule of the contract is broken at ``path``, such as ``layers[0].mixer``.

    A part knows its rule but not where it hangs or which file it came from: those who hold it add that on the way up.

    >>> error = ContractError("n_kv_heads = 7 does not divide n_heads = 64", "mixer")
    >>> str(error.under("layers[0]").within("models/x.toml"))
    'models/x.toml: layers[0].mixer: n_kv_heads = 7 does not divide n_heads = 64'
    """

    def __init__(self, rule: str, path: str = "", source: str = "") -> None:
        super().__init__(": ".join(part for part in (source, path, rule) if part))
        self.rule = rule
        self.path = path
        self.source = source

    def under(self, parent: str) -> "ContractError":
        """Return the same error seen from the part that holds this one."""
        dot = "." if self.path and not self.path.startswith("[") else ""
        return ContractError(self.rule, parent + dot + self.path, self.source)

    def within(self, source: str) -> "ContractError":
        """Return the same error with the file, or whatever else the contract was read from."""
        return ContractError(self.rule, self.path, source)


def suggest(name: str, names: Iterable[str]) -> str:
    """Return the end of a sentence that names the nearest known name, or nothing if none is near.

    >>> suggest("GPA-8", ["mha", "gqa-8", "mla"])
    "; did you mean 'gqa-8'?"
    >>> suggest("zebra", ["mha", "gqa-8", "mla"]), suggest("--gpu", ["--tp", "--count"])
    ('', '')
    """
    spelled = {known.casefold().lstrip("-"): known for known in names}
    near = get_close_matches(name.casefold().lstrip("-"), spelled, n=1)
    return f"; did you mean {spelled[near[0]]!r}?" if near else ""
