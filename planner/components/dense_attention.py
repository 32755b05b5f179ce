"""Softmax attention with a key and a value head for each query head (MHA), a group of them (GQA) or all (MQA)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from planner.bill import Bill, CacheEntry, Operation, Product, Tensor, linear
from planner.components.arrays import Array, np, sigmoid, softplus
from planner.components.attention_core import attend
from planner.components.base import Mixer, Run
from planner.components.norm import Norm
from planner.components.position import Alibi, Position, Rope, Temperature, turned
from planner.rules import CAUSAL, Causal, Chunk, Window
from planner.spec import Count, Scale, spec


@spec
class DenseAttention(Mixer):
    """Grouped-query attention (Ainslie et al. 2023, section 2.2) and all that is made of it.

    `window`: the last positions a query sees, itself included; `chunk`: it sees those since its chunk began. `qk_norm`
    goes over each head with one vector (``head``), with a vector for each head (``heads``), or over all heads at once
    (``whole``). `kv_source` names the layers whose keys and values are read instead of own ones. `scale` multiplies
    the scores (None: head_dim ** -0.5); `output_gate` is a sigmoid gate on the heads' output, computed beside the
    query; `head_gate` names what a projection of its own passes before it multiplies the heads' output (``softplus``
    in Laguna, ``sigmoid`` in Step-3.5), one number a head or one an element (`head_gate_over`). `temperature`
    stretches queries by their position. Values are multiplied by `value_scale` (MiMo); with `v_from_k` they are the
    key projection, before its norm and rotation, and `v_norm` goes over each of their heads (Gemma 4). `output_norm`
    goes over all heads at once before the output projection (BitNet).
    """

    kind: ClassVar[str] = "dense_attention"
    n_heads: Count
    n_kv_heads: Count
    head_dim: Count
    v_head_dim: Count | None = None
    window: Count | None = None
    chunk: Count | None = None
    position: Position | None = None
    q_bias: bool = False
    k_bias: bool = False
    v_bias: bool = False
    o_bias: bool = False
    qk_norm: Norm | None = None
    qk_norm_over: Literal["head", "heads", "whole"] = "head"
    qk_norm_after_position: bool = False
    kv_map: Literal["grouped", "interleaved"] = "grouped"
    kv_source: str | None = None
    scale: Scale | None = None
    soft_cap: Scale | None = None
    qkv_clip: Scale | None = None
    sinks: bool = False
    output_gate: bool = False
    head_gate: Literal["sigmoid", "softplus"] | None = None
    head_gate_over: Literal["head", "element"] = "head"
    temperature: Temperature | None = None
    value_scale: Scale | None = None
    v_from_k: bool = False
    v_norm: Norm | None = None
    output_norm: Norm | None = None

    def rules(self) -> Iterator[tuple[Any, str]]:
        yield self.n_heads % self.n_kv_heads == 0, "n_kv_heads = {n_kv_heads} does not divide n_heads = {n_heads}"
        yield (
            self.window is None or self.chunk is None,
            "window = {window} and chunk = {chunk} exclude each other; leave one out",
        )
        if self.v_from_k:
            yield self.v_head_dim is None, "v_head_dim = {v_head_dim} with v_from_k: a value is as wide as its key"
        if isinstance(self.position, Rope):
            if self.position.width is not None:
                yield self.position.width <= self.head_dim, "position.width exceeds head_dim = {head_dim}"
            else:
                yield self.head_dim % 2 == 0, "head_dim = {head_dim} is odd, and rotation turns elements in pairs"

    @property
    def rule(self) -> Causal:
        """Which positions a query sees and the cache keeps."""
        if self.window is not None:
            return Window(self.window)
        return CAUSAL if self.chunk is None else Chunk(self.chunk)

    def bill(self, d_model: Any, d_out: Any = None) -> Bill:
        """The lists of one layer; `d_out` where the output is not as wide as the input."""
        heads, kv_heads, d_k = self.n_heads, self.n_kv_heads, self.head_dim
        d_v = d_k if self.v_head_dim is None else self.v_head_dim
        gate = heads * d_v if self.output_gate else 0
        owner = "" if self.kv_source is None else f"/{self.kv_source}.mixer."
        return Bill.of(
            linear("q", d_model, heads * d_k + gate, "attention", bias=self.q_bias, shard="heads"),
            self._keys_and_values(d_model, d_v) if self.kv_source is None else None,
            self.output_norm.bill(heads * d_v, "output_norm") if self.output_norm is not None else None,
            linear("o", heads * d_v, d_model if d_out is None else d_out, "attention", bias=self.o_bias, shard="row"),
            self._gate_of_heads(d_model, d_v),
            self._head_norm("q_norm", heads),
            self._head_norm("k_norm", kv_heads) if self.kv_source is None else None,
            Tensor("sinks", (heads,), "attention", "attention", shard="heads") if self.sinks else None,
            Product("scores", heads * d_k, "pairs", "attention_core", (f"{owner}k",), self.rule, shard="heads"),
            Product("values", heads * d_v, "pairs", "attention_core", (f"{owner}v",), self.rule, shard="heads"),
            Operation("softmax", heads, "pairs", self.rule, shard="heads"),
            self._rotation(),
        )

    def _keys_and_values(self, d_model: Any, d_v: Any) -> Bill:
        heads, d_k = self.n_kv_heads, self.head_dim
        v = linear("v", d_model, heads * d_v, "attention", bias=self.v_bias, shard="kv_heads")
        return Bill.of(
            linear("k", d_model, heads * d_k, "attention", bias=self.k_bias, shard="kv_heads"),
            None if self.v_from_k else v,
            self.v_norm.bill(d_v, "v_norm", vectors=heads) if self.v_norm is not None else None,
            CacheEntry("k", heads, d_k, self.rule, shard="kv_heads"),
            CacheEntry("v", heads, d_v, self.rule, shard="kv_heads"),
        )

    def _gate_of_heads(self, d_model: Any, d_v: Any) -> Bill | None:
        if self.head_gate is None:
            return None
        width = self.n_heads if self.head_gate_over == "head" else self.n_heads * d_v
        return linear("head_gate", d_model, width, "attention", shard="heads")

    def _head_norm(self, id: str, heads: Any) -> Bill | None:
        if self.qk_norm is None:
            return None
        if self.qk_norm_over == "whole":
            return self.qk_norm.bill(heads * self.head_dim, id)
        return self.qk_norm.bill(self.head_dim, id, vectors=heads, apart=self.qk_norm_over == "heads")

    def _rotation(self) -> Operation | None:
        if not isinstance(self.position, Rope):
            return None
        width = self.head_dim if self.position.width is None else self.position.width
        turned = self.n_heads if self.kv_source is not None else self.n_heads + self.n_kv_heads
        return Operation("rope", turned * width, "new")

    def forward(self, x: Array, run: Run) -> Array:
        q, gate = self._queries(x, run)  # [S, H, d_k], [S, H, d_v] or None
        if self.kv_source is None:
            k, v = self._new_keys_and_values(x, run)  # [S, G, d_k], [S, G, d_v]
            k, v = run.extend("k", k), run.extend("v", v)  # [T, G, d_k], [T, G, d_v]
        else:
            k, v = (run.at_hand(f"/{self.kv_source}.mixer.{id}") for id in "kv")
        scale = self.head_dim**-0.5 if self.scale is None else self.scale
        heads = attend(
            self._by_key_head(q, 1),  # [S, G, R, d_k]
            k,
            v,
            run,
            mask=run.mask(self.rule),
            scale=scale,
            bias=self._penalty(scale, run, q.dtype),
            soft_cap=self.soft_cap,
            sinks=self._by_key_head(run.weight("sinks"), 0) if self.sinks else None,
        )  # [S, G, R, d_v]
        out = self._by_query_head(heads)  # [S, H, d_v]
        if gate is not None:
            out = out * sigmoid(gate)
        if self.head_gate is not None:
            raw = run.linear("head_gate", x).reshape(len(x), self.n_heads, -1)  # [S, D] -> [S, H, 1 or d_v]
            out = out * {"sigmoid": sigmoid, "softplus": softplus}[self.head_gate](raw)
        out = out.reshape(len(x), -1)  # [S, H * d_v]
        if self.output_norm is not None:
            out = self.output_norm.forward(out, run, "output_norm")
        return run.linear("o", out)  # [S, H * d_v] -> [S, D]

    def _queries(self, x: Array, run: Run) -> tuple[Array, Array | None]:
        q = self._clipped(run.linear("q", x)).reshape(len(x), self.n_heads, -1)  # [S, D] -> [S, H, d_k (+ d_v)]
        q, gate = q[..., : self.head_dim], q[..., self.head_dim :] if self.output_gate else None
        q = self._placed(q, run, "q_norm")  # [S, H, d_k]
        return (q if self.temperature is None else self.temperature.stretched(q, run.positions)), gate

    def _new_keys_and_values(self, x: Array, run: Run) -> tuple[Array, Array]:
        shape = (len(x), self.n_kv_heads, -1)
        k = self._clipped(run.linear("k", x)).reshape(shape)  # [S, D] -> [S, G, d_k]
        v = k if self.v_from_k else self._clipped(run.linear("v", x)).reshape(shape)  # [S, D] -> [S, G, d_v]
        if self.v_norm is not None:
            v = self.v_norm.forward(v, run, "v_norm")
        return self._placed(k, run, "k_norm"), v if self.value_scale is None else v * self.value_scale

    def _placed(self, heads: Array, run: Run, norm: str) -> Array:
        """Queries or keys [S, heads, d_k], normed and turned, in the order that the contract says."""
        if self.qk_norm_after_position:
            return self._normed(turned(heads, self.position, run.positions, run.reach), run, norm)
        return turned(self._normed(heads, run, norm), self.position, run.positions, run.reach)

    def _normed(self, heads: Array, run: Run, norm: str) -> Array:
        if self.qk_norm is None:
            return heads
        whole = heads.reshape(len(heads), -1) if self.qk_norm_over == "whole" else heads
        return self.qk_norm.forward(whole, run, norm).reshape(heads.shape)

    def _clipped(self, x: Array) -> Array:
        return x if self.qkv_clip is None else np.clip(x, -self.qkv_clip, self.qkv_clip)

    def _penalty(self, scale: float, run: Run, dtype: Any) -> Array | None:
        if not isinstance(self.position, Alibi):
            return None
        bias = self.position.bias(self.n_heads, run.positions, run.key_positions(self.rule))  # [H, S, T]
        scaled = bias * scale if self.position.scaled_with_scores else bias
        return self._by_key_head(scaled.astype(dtype), 0)  # [G, R, S, T]

    def _by_key_head(self, x: Array, axis: int) -> Array:
        """The axis of query heads cut in two: key head, and query head on that key head. [H] -> [G, R]."""
        groups, share = self.n_kv_heads, self.n_heads // self.n_kv_heads
        if self.kv_map == "grouped":  # neighbours read the same key head
            return x.reshape(*x.shape[:axis], groups, share, *x.shape[axis + 1 :])
        return x.reshape(*x.shape[:axis], share, groups, *x.shape[axis + 1 :]).swapaxes(axis, axis + 1)

    def _by_query_head(self, x: Array) -> Array:
        """[S, G, R, d_v] -> [S, H, d_v]."""
        if self.kv_map == "interleaved":
            x = x.swapaxes(1, 2)
        return x.reshape(len(x), self.n_heads, -1)
