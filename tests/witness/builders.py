"""Small decoders for the tests of the witness, and the fixtures that another framework made."""

import gzip
import json
from pathlib import Path

import numpy as np

from planner.components.dense_attention import DenseAttention
from planner.components.embedding import Output
from planner.components.feed_forward import FeedForward
from planner.components.latent_attention import LatentAttention
from planner.components.norm import RMSNorm
from planner.components.position import Rope
from planner.contract import Architecture, Layer
from planner.sources.config_json import read_config

DATA = Path(__file__).parent.parent / "data"
NORM = RMSNorm(eps=1e-6)
VOCAB = 61


def jsonl(name):
    return [json.loads(line) for line in gzip.decompress((DATA / name).read_bytes()).splitlines()]


def fixture_names():
    return sorted(path.stem for path in (DATA / "fixtures").glob("*.json"))


def fixture(name):
    """(contract, weights under a checkpoint's names, token ids, logits, what else is stored)."""
    about = json.loads((DATA / "fixtures" / f"{name}.json").read_text())
    arrays = dict(np.load(DATA / "fixtures" / f"{name}.npz"))
    weights = {key[2:]: array for key, array in arrays.items() if key.startswith("w/")}
    return read_config(about["config_full"], name).architecture, weights, arrays["input_ids"], arrays["logits"], about


def attention(**fields):
    return DenseAttention(**{"n_heads": 4, "n_kv_heads": 2, "head_dim": 8, "position": Rope(base=1e4), **fields})


def latent(**fields):
    sizes = {"n_heads": 3, "kv_lora_rank": 10, "nope_head_dim": 6, "rope_head_dim": 4, "v_head_dim": 5}
    return LatentAttention(**{**sizes, "latent_norm": NORM, "position": Rope(base=1e4), **fields})


def feed_forward(**fields):
    return FeedForward(**{"d_ff": 20, **fields})


def layer(mixer=None, ff=None, **fields):
    return Layer(**{"count": 2, "mixer": mixer, "feed_forward": ff or feed_forward(), "norm": NORM, **fields})


def decoder(*layers, **fields):
    plain = {"name": "toy", "vocab_size": VOCAB, "d_model": 16, "final_norm": NORM, "output": Output(tied=True)}
    return Architecture(**{**plain, "weights": "fp32", "kv": "fp32", **fields}, layers=layers)


def tokens(length, seed=0):
    return np.random.default_rng(seed).integers(0, VOCAB, length)
