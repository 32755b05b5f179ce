"""Every real config of the truth set, to the last parameter: totals, sums by role and by component, active parameters.

The rows of `params.jsonl.gz` were counted with another program (transformers 5.24 on the meta device) from the configs
in them; `verification` says how far a published total confirms a row. Buffers that checkpoints store stand apart.
"""

import gzip
import json
from pathlib import Path

import pytest

from planner import bill, folds
from planner.sources.config_json import families, read_config

DATA = Path(__file__).parents[1] / "data" / "params.jsonl.gz"
ROWS = [json.loads(line) for line in gzip.decompress(DATA.read_bytes()).splitlines()]

# Keys of these configs that nobody should read: a remark of whoever copied the file, no part of the published one.
REMARKS = {"model_size"}

# Buffers that the class computes and keeps, and no published total counts: decay rates of lightning attention.
COMPUTED = {"minimax"}

# Published totals that count more than each parameter and stored buffer once.
DOUBLED = {
    "tiiuae/falcon-180B": "the checkpoint stores the tied output matrix as well",
}


def named(rows):
    return [pytest.param(row, id=row["name"]) for row in rows]


def reading(row, **changes):
    return read_config({"model_type": row["model_type"], **row["config"], **changes}, row["name"])


def without_zeros(table):
    return {key: value for key, value in table.items() if value}


def test_every_model_type_of_the_truth_set_is_built():
    assert {row["model_type"] for row in ROWS} <= set(families())


@pytest.mark.parametrize("row", named(ROWS))
def test_counts_are_exact(row):
    parts = reading(row).architecture.parts()
    assert folds.parameters(parts, buffers=False) == row["total"]
    assert folds.parameters(parts) - row["total"] == (0 if row["model_type"] in COMPUTED else row["buffers"])
    assert without_zeros(folds.parameters(parts, buffers=False, by="role")) == row["components"]
    assert without_zeros(folds.parameters(parts, buffers=False, by="component")) == row["components_bias_folded"]
    if "active_total" in row:
        assert folds.parameters(parts, active=True, buffers=False) == row["active_total"]


@pytest.mark.parametrize("row", named(ROWS))
def test_every_key_is_understood(row):
    assert set(reading(row).unknown_keys) <= REMARKS


@pytest.mark.parametrize("row", named([row for row in ROWS if "published_total" in row]))
def test_published_totals_are_met(row):
    counted = {row["total"], row["total"] + row["buffers"]}
    if row["name"] in DOUBLED:
        architecture = reading(row).architecture
        counted.add(row["total"] + architecture.vocab_size * architecture.d_model)
    assert row["published_total"] in counted


@pytest.mark.parametrize("row", named([row for row in ROWS if "hub_total_with_mtp" in row]))
def test_hub_totals_with_multi_token_prediction_are_met(row):
    parts = reading(row).architecture.parts()
    assert folds.parameters(parts, modules=("body", "mtp")) == row["hub_total_with_mtp"]


GLM_AIR = {
    "hidden_size": 4096,
    "num_hidden_layers": 46,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "n_routed_experts": 128,
    "first_k_dense_replace": 1,
    "use_qk_norm": False,
    "routed_scaling_factor": 1.0,
}


@pytest.mark.parametrize(
    ("name", "changes", "hub"),
    [
        ("zai-org/GLM-4.5", GLM_AIR, 110_468_824_832),  # GLM-4.5-Air
        ("deepseek-ai/DeepSeek-V3", {"num_nextn_predict_layers": 1}, 684_489_845_504),
    ],
)
def test_multi_token_prediction_is_a_module_of_its_own(name, changes, hub):
    row = next(row for row in ROWS if row["name"] == name)
    architecture = reading(row, **changes).architecture
    parts = architecture.parts()
    assert folds.parameters(parts, modules=("body", "mtp")) == hub
    assert folds.parameters(parts) + folds.parameters(parts, modules=("mtp",)) == hub
    without = reading(row, **{**changes, "num_nextn_predict_layers": 0}).architecture
    assert folds.parameters(without.parts()) == folds.parameters(parts)
    draft = folds.flops(parts, bill.Pass.decode(1000), modules=("mtp",))
    assert 0 < draft < folds.flops(parts, bill.Pass.decode(1000))
