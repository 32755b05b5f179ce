"""planner formats and planner assumptions, as their users type them."""

import json

import pytest

from planner.assumptions import assumptions
from planner.printing import WIDTH
from planner.storage import cache_format, weight_format


def rows(answered, command):
    return {row["name"]: row for row in json.loads(answered(command, "--json").out)["rows"]}


def test_formats_are_those_that_the_options_take(answered):
    found = rows(answered, "formats")
    assert all(weight_format(name) for name, row in found.items() if row["weights_bits"])
    assert all(cache_format(name) for name, row in found.items() if row["kv_bits"])
    assert all(row["weights_bits"] or row["kv_bits"] for row in found.values())
    awq = found["awq-g128"]  # 4 bits, and for each group of 128 a scale of 16 bits and a zero point of 4
    assert (awq["bits"], awq["weights_bits"], awq["kv_bits"]) == (4, 4 + 20 / 128, None)
    assert found["q8_0"]["kv_bits"] == 8 + 16 / 32
    assert "experts_routed" in awq["quantises"]
    assert "lm_head" not in awq["quantises"]


def test_a_terminal_names_what_a_format_quantises_once(answered):
    out, err = answered("formats")
    assert len(out.splitlines()) == 3 + len(rows(answered, "formats"))  # two lines of heads, a rule, a line each
    assert next(line for line in out.splitlines() if line.startswith("awq-g128")).split()[3] == "linear"
    assert "linear quantises attention, ssm_conv_mixer, ffn_dense, experts_routed, experts_shared\n" in err


def test_assumptions_are_those_of_the_presets(answered):
    found = rows(answered, "assumptions")
    assert found.keys() == assumptions().keys()
    assert (found["reserve_bytes"]["value"], found["reserve_bytes"]["unit"]) == (2**30, "B")
    assert found["memory_fraction"]["engines"] == "none = 1.0, sglang = 0.88, llama.cpp = 1.0"
    assert all(row["meaning"] and row["source"] for row in found.values())


@pytest.mark.parametrize("command", ["formats", "assumptions"])
def test_a_terminal_has_room(answered, command):
    assert max(map(len, answered(command).out.splitlines())) <= WIDTH


def test_a_terminal_shows_assumptions_with_their_units(answered):
    out = answered("assumptions").out
    assert "1 GiB" in out
    assert "65 µs" in out
    assert "90 µs" in out
