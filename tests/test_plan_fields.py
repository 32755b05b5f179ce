"""What people write in a cell or behind an option, field by field."""

import pytest

from planner.cli import main
from planner.errors import InputError
from planner.plan import fields_of_a_plan, make_plan
from planner.plan_fields import parse_field, read_cell

TEXTS = {
    "context": ("128k", 128_000),
    "cached_prefix": ("32Ki", 32_768),
    "sequences": ("1,000", 1000),
    "count": ("8", 8),
    "tp": ("2", 2),
    "lengths": ("1k,2k,30k", (1000, 2000, 30_000)),
    "stage_layers": ("20,21", (20, 21)),
    "other_bytes": ("2GiB", 2**31),
    "reserve_bytes": ("1GB", 10**9),
    "logits_elem_bytes": ("2B", 2),
    "memory_fraction": ("0.85", 0.85),
    "offloaded_cache": ("0.5", 0.5),
    "usd_per_hour": ("2.50", 2.5),
    "prefill_tokens": ("8k", 8000),
    "collective_latency_s": ("0.00001", 1e-5),
    "seconds_per_layer": ("65 µs", 65e-6),
    "mtp": ("TRUE", True),
    "kv": ("fp8", "fp8"),
    "engine": ("sglang", "sglang"),
    "as_of": ("2026-06-01", "2026-06-01"),
    "mla": ("absorbed", "absorbed"),
}


@pytest.mark.parametrize(("name", "text", "value"), [(name, *said) for name, said in TEXTS.items()], ids=TEXTS)
def test_texts(name, text, value):
    found = parse_field(name, text)
    assert (found, type(found)) == (value, type(value))
    assert read_cell(name, f" {text} ") == value


@pytest.mark.parametrize("name", fields_of_a_plan())
def test_what_a_text_says_a_plan_takes(name):
    """Every field has a reader whose value is of the field's own type, or it takes texts as they are."""
    said = {"model": "llama-3.1-8b", "accelerator": "h100-sxm", "weights": "bf16", "kv": "bf16", "engine": "vllm"}
    said |= {"draft": "llama-3.2-1b", "basis": "spot", "provider": "AWS", "as_of": "2026-06-01"}
    said |= {"attention": "causal", "logits": "last", "mla": "auto", "mtp": "no", "lengths": "10", "stage_layers": "32"}
    text = said.get(name, "2GiB" if name.endswith("_bytes") else "1")
    others = {"osl": 1, "isl": 5} if name == "cached_prefix" else {}
    plan = {"model": "llama-3.1-8b", **others, name: parse_field(name, text)}
    assert {name} - {"model"} <= set(make_plan(**plan).given)


@pytest.mark.parametrize(
    ("name", "cell", "sentence"),
    [
        ("context", "12x", "context: '12x' has the unknown unit 'x'"),
        ("context", True, "context = True is not a number"),
        ("context", (1, 2), "context = (1, 2) is not a number"),
        ("reserve_bytes", "1GX", "reserve_bytes: '1GX' has the unknown unit 'GX'"),
        ("usd_per_hour", "2 USD", "usd_per_hour: '2 USD' has the unknown unit 'USD'"),
        ("mtp", "maybe", "mtp: 'maybe' is neither true nor false"),
        ("kv", 8, "kv = 8 is not a text"),
        ("model", 3.0, "model = 3 is not a text"),
    ],
)
def test_what_says_nothing_gets_a_sentence(name, cell, sentence):
    with pytest.raises(InputError) as refused:
        read_cell(name, cell)
    assert str(refused.value).startswith(sentence)


def test_cells_of_tables():
    assert read_cell("other_bytes", "2147483648") == 2**31  # the column's name says the unit
    assert (read_cell("context", 4096.0), type(read_cell("context", 4096.0))) == (4096, int)
    assert read_cell("context", 4096.5) == 4096.5  # the plan's own rule refuses it
    assert read_cell("lengths", [1, 2]) == (1, 2)


def test_on_the_command_line_a_size_needs_its_unit(capsys):
    assert main(["fit", "llama-3.1-8b", "--other-bytes", "5"]) == 3
    assert "--other-bytes: '5' has no unit" in capsys.readouterr().err
    assert main(["fit", "llama-3.1-8b", "--assume", "model=5"]) == 2
    assert "unknown assumption 'model'" in capsys.readouterr().err
