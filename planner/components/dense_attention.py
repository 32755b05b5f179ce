"""Softmax attention with a key and a value head for each query head (MHA), for a group of them (GQA) or for all (MQA)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from planner.bill import Bill, CacheEntry, Operation, Product, Tensor, linear
from planner.components.base import Mixer
from planner.components.norm import Norm
from planner.components.position import Position, Rope
from planner.rules import CAUSAL, Causal, Chunk, Window
from planner.spec import Count, Scale, spec


@spec
class DenseAttention(Mixer):
    """Grouped-query attention (Ainslie et al. 2023, section 2.2) and all that is made of it.

    `window`: the last positions a query sees, itself included; `chunk`: it sees those since its chunk began. `qk_norm`
    goes over each head with one vector (``head``), with a vector for each head (``heads``), or over all heads at once
    (``whole``). `kv_source` names the layers whose keys and values are read instead of own ones. `scale` multiplies
    the scores (None: head_dim ** -0.5); `output_gate` is a sigmoid gate on the heads' output, computed beside the query.
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

    def rules(self) -> Iterator[tuple[Any, str]]:
        yield self.n_heads % self.n_kv_heads == 0, "n_kv_heads = {n_kv_heads} does not divide n_heads = {n_heads}"
        yield (
            self.window is None or self.chunk is None,
            "window = {window} and chunk = {chunk} exclude each other; leave one out",
        )
        if isinstance(self.position, Rope) and self.position.width is not None:
            yield self.position.width <= self.head_dim, "position.width exceeds head_dim = {head_dim}"

    @property
    def rule(self) -> Causal:
        """Which positions a query sees and the cache keeps."""
        if self.window is not None:
            return Window(self.window)
        return CAUSAL if self.chunk is None else Chunk(self.chunk)

    def bill(self, d_model: Any) -> Bill:
        heads, kv_heads, d_k = self.n_heads, self.n_kv_heads, self.head_dim
        d_v = d_k if self.v_head_dim is None else self.v_head_dim
        gate = heads * d_v if self.output_gate else 0
        owner = "" if self.kv_source is None else f"/{self.kv_source}.mixer."
        return Bill.of(
            linear("q", d_model, heads * d_k + gate, "attention", bias=self.q_bias, shard="heads"),
            self._keys_and_values(d_model, d_v) if self.kv_source is None else None,
            linear("o", heads * d_v, d_model, "attention", bias=self.o_bias, shard="heads"),
            self._head_norm("q_norm", heads),
            self._head_norm("k_norm", kv_heads) if self.kv_source is None else None,
            Tensor("sinks", (heads,), "attention", "attention", shard="heads") if self.sinks else None,
            Product("scores", heads * d_k, "pairs", "attention_core", (f"{owner}k",), self.rule, shard="heads"),
            Product("values", heads * d_v, "pairs", "attention_core", (f"{owner}v",), self.rule, shard="heads"),
            Operation("softmax", heads, "pairs", self.rule),
            self._rotation(),
        )

    def _keys_and_values(self, d_model: Any, d_v: Any) -> Bill:
        heads, d_k = self.n_kv_heads, self.head_dim
        return Bill.of(
            linear("k", d_model, heads * d_k, "attention", bias=self.k_bias, shard="kv_heads"),
            linear("v", d_model, heads * d_v, "attention", bias=self.v_bias, shard="kv_heads"),
            CacheEntry("k", heads, d_k, self.rule, shard="kv_heads"),
            CacheEntry("v", heads, d_v, self.rule, shard="kv_heads"),
        )

    def _head_norm(self, id: str, heads: Any) -> Bill | None:
        if self.qk_norm is None:
            return None
        if self.qk_norm_over == "whole":
            return self.qk_norm.bill(heads * self.head_dim, id)
        return self.qk_norm.bill(self.head_dim, id, heads=heads if self.qk_norm_over == "heads" else None)

    def _rotation(self) -> Operation | None:
        if not isinstance(self.position, Rope):
            return None
        width = self.head_dim if self.position.width is None else self.position.width
        turned = self.n_heads if self.kv_source is not None else self.n_heads + self.n_kv_heads
        return Operation("rope", turned * width, "new")
