"""Small decoders for the tests of the witness, and the fixtures that another framework made."""

import gzip
import json
from pathlib import Path

import numpy as np

from planner.components.compressed_attention import CompressedAttention
from planner.components.dense_attention import DenseAttention
from planner.components.embedding import Output
from planner.components.feed_forward import FeedForward
from planner.components.latent_attention import LatentAttention
from planner.components.norm import LayerNorm, RMSNorm
from planner.components.position import Rope
from planner.components.sparse_attention import NativeSparseAttention, SparseLatentAttention
from planner.components.streams import HyperConnections
from planner.contract import Architecture, Layer
from planner.sources.config_json import read_config
from planner.spec import field_names

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


def indexed(**fields):
    """The same latent attention behind an indexer (DSA)."""
    plain = {name: getattr(latent(q_lora_rank=7), name) for name in field_names(LatentAttention)}
    index = {"index_heads": 3, "index_head_dim": 6, "index_top_k": 4, "index_norm": LayerNorm(eps=1e-6)}
    return SparseLatentAttention(**{**plain, **index, **fields})


def native(**fields):
    """Native sparse attention (NSA)."""
    heads = {"n_heads": 4, "n_kv_heads": 2, "head_dim": 6, "v_head_dim": 5, "position": Rope(base=1e2)}
    lengths = {"block": 4, "stride": 2, "selected_block": 4, "n_selected": 2, "window": 3}
    return NativeSparseAttention(**{**heads, **lengths, **fields})


def compressed(**fields):
    """Attention on a window and compressed entries, as in DeepSeek-V4's sparse layers."""
    heads = {"n_heads": 4, "head_dim": 8, "q_lora_rank": 7, "o_groups": 2, "o_lora_rank": 3, "rope_head_dim": 4}
    sparse = {"compress": 3, "overlap": True, "index_heads": 2, "index_head_dim": 6, "index_top_k": 2}
    rope = Rope(base=1e2, interleaved=True)
    return CompressedAttention(**{**heads, **sparse, "window": 5, "norm": NORM, "position": rope, **fields})


def streams(**fields):
    """Hyper-connections, as in DeepSeek-V4."""
    norm = RMSNorm(eps=1e-6, weight=False)
    return HyperConnections(**{"n_streams": 3, "sinkhorn_steps": 4, "eps": 1e-6, "norm": norm, **fields})


def feed_forward(**fields):
    return FeedForward(**{"d_ff": 20, **fields})


def layer(mixer=None, ff=None, **fields):
    return Layer(**{"count": 2, "mixer": mixer, "feed_forward": ff or feed_forward(), "norm": NORM, **fields})


def decoder(*layers, **fields):
    plain = {"name": "toy", "vocab_size": VOCAB, "d_model": 16, "final_norm": NORM, "output": Output(tied=True)}
    return Architecture(**{**plain, "weights": "fp32", "kv": "fp32", **fields}, layers=layers)


def tokens(length, seed=0):
    return np.random.default_rng(seed).integers(0, VOCAB, length)
