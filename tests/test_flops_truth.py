"""FLOPs of real configs against a framework's own counter, to the last FLOP.

The rows of `flops.jsonl.gz` were counted by torch's FlopCounterMode (transformers 5.24, meta device). In our words its
convention is: attention ``square`` (a dense kernel computes every pair), MLA ``reexpanded`` (the cached latent is
up-projected in every pass), logits ``all`` or ``last``; `decode` is one token after 256 cached ones.
"""

import gzip
import json
from pathlib import Path

import pytest

from planner import bill, folds
from planner.sources.config_json import read_config

DATA = Path(__file__).parent / "data"


def lines(name):
    return [json.loads(line) for line in gzip.decompress((DATA / name).read_bytes()).splitlines()]


CONFIGS = {row["name"]: {"model_type": row["model_type"], **row["config"]} for row in lines("params.jsonl.gz")}
RUNS = lines("flops.jsonl.gz")

# Architectures whose counts in that program are no fact about the architecture: what it does instead. What is equal of
# them, and what the rest is, `test_state_flops` says.
ELSEWHERE = {
    "bamba": "runs the scan as padded chunks of matrix products",
    "falcon_h1": "runs the scan as padded chunks of matrix products",
    "falcon_mamba": "runs the scan as matrix products",
    "granitemoehybrid": "runs the scan as padded chunks of matrix products",
    "jamba": "runs the scan as matrix products",
    "lfm2": "pads the convolution",
    "lfm2_moe": "pads the convolution",
    "mamba": "runs the scan as matrix products",
    "mamba2": "runs the scan as padded chunks of matrix products",
    "minimax": "runs lightning attention as padded blocks",
    "nemotron_h": "runs the scan as padded chunks of matrix products",
    "qwen3_5_moe_text": "runs the delta rule as padded chunks of matrix products",
    "qwen3_5_text": "runs the delta rule as padded chunks of matrix products",
    "qwen3_next": "runs the delta rule as padded chunks of matrix products",
    "recurrent_gemma": "pads the convolution",
    "zamba2": "runs the scan as padded chunks of matrix products",
}


def counted(run):
    architecture = read_config(CONFIGS[run["name"]], run["name"]).architecture
    if run["run"] == "decode":
        past, new, emitted = 256, 1, 1
    else:
        past, new, emitted = 0, run["seq"], run["seq"] if run["logits"] == "all" else 1
    it = bill.Pass(past=past, new=new, emitted=emitted, attention="square", mla="reexpanded")
    return folds.flops(architecture.parts(), it, batch=run["batch"])


def label(run):
    return "-".join(str(run[key]) for key in ("name", "run", "batch", "seq", "logits") if key in run)


def model_type(run):
    return CONFIGS[run["name"]]["model_type"]


EXACT = [
    run for run in RUNS if model_type(run) not in {*ELSEWHERE, "llama4_text"} and run["closed_form_equal"] is not False
]
OTHERS = [run for run in RUNS if run not in EXACT]


def test_all_that_has_a_closed_form_is_compared():
    assert {label(run) for run in RUNS if run["closed_form_equal"]} <= {label(run) for run in EXACT}
    assert len(EXACT) >= 699


@pytest.mark.parametrize("run", EXACT, ids=label)
def test_flops_are_exact(run):
    assert counted(run) == run["total"]


def test_every_other_one_is_named():
    assert {model_type(run) for run in OTHERS} <= {*ELSEWHERE, "llama4_text", "mimo_v2_flash"}
    assert [run["run"] for run in OTHERS if model_type(run) == "mimo_v2_flash"] == ["decode"]


@pytest.mark.parametrize("run", [run for run in OTHERS if model_type(run) == "llama4_text"], ids=label)
def test_llama_4_runs_every_expert_there(run):
    """Its class sends each token through all 16 experts with scores of zero; one is what the router chose."""
    tokens = run["batch"] * run.get("seq", 1)
    idle = 48 * 15 * 3 * 5120 * 8192
    assert run["total"] - counted(run) == 2 * tokens * idle


@pytest.mark.parametrize("run", [run for run in OTHERS if model_type(run) == "mimo_v2_flash"], ids=label)
def test_mimo_sees_one_position_more_there(run):
    """Its class turns the window of 128 into 129: one key more for 64 heads of 192 + 128 in 39 local layers."""
    assert run["total"] - counted(run) == 2 * 39 * 64 * (192 + 128)


@pytest.mark.parametrize("run", [run for run in OTHERS if model_type(run) in ELSEWHERE], ids=label)
def test_the_rest_is_of_the_same_size(run):
    assert 0.3 < counted(run) / run["total"] < 1.5
