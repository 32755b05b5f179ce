import contextlib
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.units import FACTORS, LARGEST, SPELLINGS, parse_bytes, parse_count, parse_quantity, show, show_exact


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("128000", 128_000),
        ("128_000", 128_000),
        ("8,030,261,248", 8_030_261_248),
        ("128k", 128_000),
        (" 128 k ", 128_000),
        ("128Ki", 131_072),
        ("1M", 1_000_000),
        ("1.5Mi", 1_572_864),
        ("0.1k", 100),
        ("1e6", 1_000_000),
        ("1E6", 1_000_000),
        ("2E", 2 * 10**18),
        (2**80, 2**80),
        (128_000.0, 128_000),
        (np.int64(7), 7),
        (np.float32(7), 7),
    ],
)
def test_counts(text, count):
    assert parse_count(text) == count
    assert type(parse_count(text)) is int


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("80GiB", 80 * 2**30),
        ("80GB", 80 * 10**9),
        ("512B", 512),
        ("1.5 kB", 1500),
        ("14.96GiB", 16_063_177_687),  # 16,063,177,687.04
        (16_060_522_496, 16_060_522_496),
    ],
)
def test_sizes(text, size):
    assert parse_bytes(text) == size
    assert type(parse_bytes(text)) is int


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("3.35TB/s", "B/s", 3.35e12),
        ("900 GB/s", "B/s", 9e11),
        ("989TFLOP/s", "FLOP/s", 9.89e14),
        ("1.5PFLOP", "FLOP", 1.5e15),
        ("250ms", "s", 0.25),
        ("30 µs", "s", 3e-5),
        ("1.5h", "s", 5400.0),
        (0.2, "s", 0.2),
    ],
)
def test_quantities(text, unit, value):
    assert parse_quantity(text, unit) == value


@pytest.mark.parametrize(
    ("read", "value", "reason"),
    [
        (parse_count, "", "is not a number"),
        (parse_count, "many", "is not a number"),
        (parse_count, "1 2", "is not a number"),
        (parse_count, "12,34", "is not a number"),
        (parse_count, "0x10", "is not a number"),
        (parse_count, "９", "is not a number"),
        (parse_count, "nan", "is not a number"),
        (parse_count, "inf", "is not a number"),
        (parse_count, "9" * 10_000, "is not a number"),
        (parse_count, math.nan, "is not a number"),
        (parse_count, math.inf, "is not a number"),
        (parse_count, True, "is not a number"),
        (parse_count, np.True_, "is not a number"),
        (parse_count, None, "is not a number"),
        (parse_count, "-1", "is negative"),
        (parse_count, -1, "is negative"),
        (parse_count, "1.5", "is not whole"),
        (parse_count, 1.5, "is not whole"),
        (parse_count, "1e-999", "is not whole"),
        (parse_count, "1e999", "is larger than anything that can be planned"),
        (parse_count, LARGEST + 1, "is larger than anything that can be planned"),
        (parse_count, "128K", "has the unknown unit 'K'"),
        (parse_count, "8B", "has the unknown unit 'B'"),
        (parse_bytes, "80", "has no unit"),
        (parse_bytes, "80G", "has the unknown unit 'G'"),
        (parse_bytes, "80Gb", "has the unknown unit 'Gb'"),
        (parse_bytes, "80GB/s", "has the unknown unit 'GB/s'"),
        (parse_bytes, "-80GB", "is negative"),
    ],
)
def test_refusals(read, value, reason):
    with pytest.raises(InputError, match=rf"^--flag: .* {re.escape(reason)}; write a .*[^.]$"):
        read(value, "--flag")


def test_refusal_names_place_value_rule_and_remedy():
    with pytest.raises(InputError) as refusal:
        parse_bytes("80", "--memory")
    assert str(refusal.value) == (
        "--memory: '80' has no unit; write a number with its unit: 80GB in powers of 1,000, 80GiB in powers of 1,024"
    )


@pytest.mark.parametrize("unit", [unit for unit in SPELLINGS if unit not in ("1", "B")])
def test_every_remedy_is_readable(unit):
    """The example that a refusal gives must itself be read."""
    with pytest.raises(InputError) as refusal:
        parse_quantity("", unit)
    assert parse_quantity(re.search(r"such as (\S+)", str(refusal.value))[1], unit) > 0


@given(st.text(max_size=80) | st.from_regex(r"[+-]?[\d.,_]{1,9}(e\d{1,4})?\s?[kKMGTi]{0,2}[bB]?(/s)?", fullmatch=True))
def test_any_text_is_read_or_refused(text):
    for read in (parse_count, parse_bytes):
        with contextlib.suppress(InputError):
            assert 0 <= read(text) <= LARGEST


@given(st.integers(0, LARGEST))
def test_what_is_shown_exactly_is_read_back(count):
    assert parse_count(show_exact(count)) == parse_count(str(count)) == parse_count(count) == count


@given(st.sampled_from(sorted(SPELLINGS)), st.floats(1e-9, 1e24), st.booleans())
def test_what_is_shown_is_the_value_to_four_digits(unit, value, binary):
    binary = binary and "i" not in unit and "B" in unit
    number, *spelling = show(value, unit, binary=binary).split()
    shown = float(number.replace(",", "")) * FACTORS[spelling[0] if spelling else ""]
    assert shown == pytest.approx(value, rel=5.1e-4)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "B", "0 B"),
        (0, "1", "0"),
        (0, "s", "0 s"),
        (999, "B", "999 B"),
        (999.96e9, "B", "1 TB"),
        (-3.2e9, "B", "-3.2 GB"),
        (-(2**30), "GiB", "-1 GiB"),
        (12_345 * 2**30, "GiB", "12,345 GiB"),
        (5e-10, "s", "0.0005 µs"),
        (1e21, "B", "1,000 EB"),
        (128_000, "token", "128,000 token"),
        (2.5, "USD/h", "2.5 USD/h"),
        (math.nan, "GiB", "n/a"),
        (math.inf, "s", "inf d"),
    ],
)
def test_shown(value, unit, text):
    assert show(value, unit) == text


def test_shown_in_powers_of_1024():
    assert show(131_072, "B", binary=True) == "128 KiB"
    assert show(2**30 - 1, "B", binary=True) == "1 GiB"
