"""What an accelerator refuses to be, and in which format it multiplies what is stored."""

import math
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from planner import storage
from planner.catalogue import accelerator
from planner.device import COMPUTE_FORMATS, Accelerator, Fact
from planner.errors import ContractError, InputError, UnknownName

CARD = Accelerator(
    name="card",
    title="A card",
    vendor="nobody",
    memory_bytes=80 * 2**30,
    bandwidth_bytes_per_s=3.35e12,
    peak_flops={"bf16": 989.4e12},
    marketing_memory_bytes=80 * 10**9,
)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("memory_bytes", 80),  # GB without the unit
        ("memory_bytes", 80e6),  # kB taken for bytes
        ("memory_bytes", 80e12),
        ("memory_bytes", 0),
        ("memory_bytes", -80e9),
        ("memory_bytes", math.nan),
        ("memory_bytes", None),
        ("memory_bytes", "80GiB"),
        ("memory_bytes", True),
        ("bandwidth_bytes_per_s", 3.35),
        ("bandwidth_bytes_per_s", 3350),
        ("bandwidth_bytes_per_s", 3.35e9),
        ("bandwidth_bytes_per_s", math.inf),
        ("link_bytes_per_s", 0),
        ("link_bytes_per_s", 450),
        ("network_bytes_per_s", -1.0),
        ("host_bytes_per_s", 64),
        ("domain_size", 0),
        ("power_w", 0),
        ("power_w", 700_000),
    ],
)
def test_an_impossible_figure_is_refused_in_one_sentence(field, value):
    with pytest.raises(ContractError, match=rf"^{field} = .*(is not a number|is not between .* and )") as refusal:
        replace(CARD, **{field: value})
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("peak", [0, -1.0, math.nan, math.inf, 989, 989e9, 989e15 * 10, None])
def test_an_impossible_peak_is_refused(peak):
    with pytest.raises(ContractError, match=r"^peak_flops\.fp8 = "):
        replace(CARD, peak_flops={"bf16": 989.4e12, "fp8": peak})


def test_memory_that_is_far_from_the_number_on_the_box_is_refused():
    sentence = (
        r"^memory_bytes = 8 GB is 0\.1 of marketing_memory_bytes = 80 GB; a driver hands out 0\.5 to 1\.08 of it$"
    )
    with pytest.raises(ContractError, match=sentence):
        replace(CARD, memory_bytes=8 * 10**9)


def test_a_sparse_figure_cannot_stand_as_the_dense_one():
    fact = Fact(source="a sheet", confidence="A", provenance="datasheet", sparse=989.4e12)
    with pytest.raises(ContractError, match=r"^peak_flops\.bf16: the dense peak is not below the sparse one"):
        replace(CARD, facts={"peak_flops.bf16": fact})


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"source": " "}, "has no source"),
        ({"confidence": "E"}, "'E' is none of A, B, C, D, given"),
        ({"confidence": ""}, "'' is none of A, B, C, D, given"),
        ({"provenance": "guessed"}, "'guessed' is none of datasheet, measured, assumed, given"),
    ],
)
def test_a_fact_without_source_or_grade_is_no_fact(words, sentence):
    with pytest.raises(ContractError, match=sentence):
        Fact(**{"source": "a sheet", "confidence": "A", "provenance": "datasheet"} | words)


def test_a_peak_that_is_not_published_is_refused_not_derived():
    sentence = (
        r"^a100-80gb-sxm has no published fp8 peak \(it has fp32, tf32, bf16, fp16, int8, int4\); compute in another "
        r'format, or state fp8 under \[peak_flops\] in a file with base = "a100-80gb-sxm"$'
    )
    with pytest.raises(InputError, match=sentence):
        accelerator("a100-80gb-sxm").peak("fp8")
    with pytest.raises(InputError, match=r"^cerebras-wse-3 has no published bf16 peak \(it has none at all\)"):
        accelerator("cerebras-wse-3").compute_format("bf16")
    with pytest.raises(UnknownName, match=r"^unknown compute format 'fp4'; did you mean "):
        accelerator("b200").peak("fp4")


@pytest.mark.parametrize(
    ("name", "link", "peer"),
    [
        ("mi300x", 448e9, 64e9),
        ("gaudi3", 525e9, 75e9),
        ("h100-sxm", 450e9, 450e9),  # behind a switch
        ("l40s", None, None),
    ],
)
def test_without_a_switch_one_other_device_is_reached_over_the_links_of_the_pair(name, link, peer):
    device = accelerator(name)
    assert (device.link_bytes_per_s, device.peer_bytes_per_s) == (link, peer)


@pytest.mark.parametrize(
    ("name", "stored", "computed"),
    [
        ("h100-sxm", "bf16", "bf16"),
        ("h100-sxm", "fp16", "fp16"),
        ("h100-sxm", "fp32", "fp32"),
        ("h100-sxm", "fp8", "fp8"),
        ("h100-sxm", "fp8_e4m3", "fp8"),
        ("h100-sxm", "fp8-block128", "fp8"),
        ("a100-80gb-sxm", "fp8-block128", "bf16"),  # weight-only where there are no fp8 units
        ("a100-80gb-sxm", "int8-channel", "int8"),  # W8A8
        ("h100-sxm", "awq-g128", "bf16"),  # weight-only everywhere
        ("a100-80gb-sxm", "gptq-g128", "bf16"),  # although it has int4 units
        ("b200", "mxfp4", "bf16"),  # gpt-oss keeps its activations in 16 bits
        ("h100-sxm", "q4_k", "bf16"),
        ("b200", "nvfp4", "nvfp4"),
        ("h200", "nvfp4", "bf16"),
        ("b200", "fp-quant-mxfp4", "mxfp4"),  # unlike mxfp4, with its activations
        ("h200", "fp-quant-nvfp4", "bf16"),
        ("mi355x", "nvfp4", "bf16"),  # its fp4 units take mxfp4
        ("v100-32gb-sxm", "bf16", "fp16"),
        ("t4", "awq-g128", "fp16"),
        ("m3-ultra", "q8_0", "fp16"),
        ("tpu-v5e", "fp16", "bf16"),
    ],
)
def test_what_is_stored_so_is_multiplied_so(name, stored, computed):
    assert accelerator(name).compute_format(stored) == computed


def test_the_rule_names_formats_that_exist():
    text = (Path(__file__).parents[1] / "presets" / "compute_formats.toml").read_text(encoding="utf-8")
    rule = tomllib.loads(text)
    assert set(rule["quantised"]) <= set(storage.formats())
    assert {computed for choices in rule["quantised"].values() for computed in choices} <= set(COMPUTE_FORMATS)
    assert set(rule["otherwise"]) <= set(COMPUTE_FORMATS)


def test_an_unknown_storage_format_is_not_taken_for_weight_only():
    with pytest.raises(UnknownName, match="did you mean 'awq-g128'"):
        accelerator("h100-sxm").compute_format("awq-g129")


def test_an_accelerator_is_hashed_and_compared():
    assert len({accelerator("l40s"), accelerator("l40s"), accelerator("l40")}) == 2
