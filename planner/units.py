"""Numbers with prefixes, read and shown: the only place that knows that a GiB is not a GB.

Inside, everything is in base units: bytes, seconds, FLOP, FLOP/s. A prefix exists only where a person reads or writes.
Reading is strict, because the lax readings are the costly ones: `128K` may mean 128,000 or 131,072 tokens, `80Gb` may
be bits, and `80` on its own is no size of a memory.
"""

import functools
import math
import re
from fractions import Fraction
from numbers import Integral, Real

from planner.errors import InputError

DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
BINARY = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}


def _spell(base: str, prefixes: dict[str, int]) -> dict[str, Fraction]:
    """Put prefixes before a unit; a count, written 1, has no unit, only prefixes."""
    return {prefix + base.removeprefix("1"): Fraction(factor) for prefix, factor in prefixes.items()}


SECONDS = {
    "µs": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}

# Base unit -> each way of writing it -> how many base units that is, from small to large within each kind of prefix.
SPELLINGS = {
    **{base: _spell(base, DECIMAL | BINARY) for base in ("1", "B", "B/s")},
    **{base: _spell(base, DECIMAL) for base in ("FLOP", "FLOP/s")},
    "s": SECONDS,
}

# What a column is divided by before it is shown in this unit.
FACTORS = {spelling: float(factor) for spellings in SPELLINGS.values() for spelling, factor in spellings.items()}

RULES = {
    "1": "write a number, plain or with a prefix: 128000, 128k = 128,000, 128Ki = 131,072 (k M G T, Ki Mi Gi Ti)",
    "B": "write a number with its unit: 80GB in powers of 1,000, 80GiB in powers of 1,024",
    "B/s": "write a number with its unit, such as 3.35TB/s",
    "FLOP": "write a number with its unit, such as 1.5TFLOP",
    "FLOP/s": "write a number with its unit, such as 989TFLOP/s",
    "s": "write a number with its unit, such as 250ms (µs ms s min h d)",
}

# Far above anything planned here, far below what a float can hold.
LARGEST = 10**30

_TEXT = re.compile(
    r"""\s*(?P<number>[+-]?
            (?:\d{1,3}(?:,\d{3})+ | \d+(?:_\d+)*)    # 8,030,261,248 as we print it, 8_030_261_248 as Python does
            (?:\.\d+)?
            (?:e[+-]?\d{1,3})?)
        \s*(?P<unit>[a-zµ/]*)\s*""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_LONGEST = 60


def parse_count(value: object, place: str = "count") -> int:
    """Read a whole number of things.

    >>> parse_count("128k"), parse_count("128Ki"), parse_count("1.5M"), parse_count(4096)
    (128000, 131072, 1500000, 4096)
    >>> parse_count("0.5", "--context")
    Traceback (most recent call last):
    planner.errors.InputError: --context: '0.5' is not whole; write a number, plain or with a prefix: ...
    """
    amount = _amount(value, "1", place)
    if amount.denominator != 1:
        raise _refusal(value, "is not whole", "1", place)
    return amount.numerator


def parse_bytes(value: object, place: str = "size") -> int:
    """Read a size, to the nearest byte; a number that is not text is in bytes already.

    >>> parse_bytes("80GiB"), parse_bytes("80 GB"), parse_bytes(80)
    (85899345920, 80000000000, 80)
    """
    return round(_amount(value, "B", place))


def parse_quantity(value: object, unit: str, place: str = "value") -> float:
    """Read a rate, an amount of work or a duration in its base unit; a number that is not text is in it already.

    >>> parse_quantity("3.35TB/s", "B/s"), parse_quantity("989 TFLOP/s", "FLOP/s"), parse_quantity("250ms", "s")
    (3350000000000.0, 989000000000000.0, 0.25)
    """
    return float(_amount(value, unit, place))


def show(value: float, unit: str, *, binary: bool = False) -> str:
    """Show a figure with its unit, to four digits or, above that, to the last whole one.

    A base unit gets the prefix that suits the value, in 1,024s if `binary`; a unit that has a prefix keeps it.
    A count, whose unit is 1, shows the bare prefix: "8.03 B" would read as bytes.

    >>> show(16_060_522_496, "GiB"), show(16_060_522_496, "B"), show(131_072, "B", binary=True)
    ('14.96 GiB', '16.06 GB', '128 KiB')
    >>> show(8_030_261_248, "1"), show(989e12, "FLOP/s"), show(0.0123, "s"), show(5400, "s")
    ('8.03 G', '989 TFLOP/s', '12.3 ms', '1.5 h')
    """
    if math.isnan(value):
        return "n/a"
    if unit in SPELLINGS:
        unit = _suiting(value, unit, binary)
    scaled = value / FACTORS.get(unit, 1.0)
    digits = f"{scaled:.4g}" if abs(scaled) < 999.95 else f"{scaled:,.0f}"
    return f"{digits} {unit}".rstrip()


def show_exact(value: int) -> str:
    """Show every digit.

    >>> show_exact(8_030_261_248)
    '8,030,261,248'
    """
    return f"{value:,}"


def _amount(value: object, unit: str, place: str) -> Fraction:
    if isinstance(value, str):
        amount = _read(value, unit, place)
    elif isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value):
        amount = Fraction(int(value) if isinstance(value, Integral) else float(value))
    else:
        raise _refusal(value, "is not a number", unit, place)
    if amount < 0:
        raise _refusal(value, "is negative", unit, place)
    if amount > LARGEST:
        raise _refusal(value, "is larger than anything that can be planned", unit, place)
    return amount


def _read(text: str, unit: str, place: str) -> Fraction:
    match = _TEXT.fullmatch(text) if len(text) <= _LONGEST else None
    if not match:
        raise _refusal(text, "is not a number", unit, place)
    if match["unit"] not in SPELLINGS[unit]:
        reason = f"has the unknown unit {match['unit']!r}" if match["unit"] else "has no unit"
        raise _refusal(text, reason, unit, place)
    return Fraction(match["number"].replace(",", "")) * SPELLINGS[unit][match["unit"]]


def _refusal(value: object, reason: str, unit: str, place: str) -> InputError:
    return InputError(f"{place}: {value!r:.{_LONGEST}} {reason}; {RULES[unit]}")


def _suiting(value: float, base: str, binary: bool) -> str:
    """Return the largest unit of which there is at least one, as rounded for showing."""
    steps = _steps(base, binary)
    reached = [spelling for spelling, factor in steps if abs(value) / factor >= 0.99995]
    return reached[-1] if reached else steps[0][0] if value else base.removeprefix("1")


@functools.cache
def _steps(base: str, binary: bool) -> tuple[tuple[str, float], ...]:
    """The ways of writing a base unit, from small to large, each with how many base units it is."""
    spellings = SECONDS if base == "s" else _spell(base, BINARY if binary else DECIMAL)
    return tuple((spelling, float(factor)) for spelling, factor in spellings.items())
