"""Planted faults: each is a mistake that implementations really make, and a check of `planner verify` must name it."""

from dataclasses import replace

import numpy as np
import pytest

import planner
from planner import folds, rules
from planner.components import (
    attention_core,
    dense_attention,
    feed_forward,
    gated_recurrence,
    latent_attention,
    linear_attention,
    mixture,
    mixture_attention,
    position,
    state_space,
    streams,
)
from planner.components.dense_attention import DenseAttention
from planner.components.latent_attention import LatentAttention
from planner.components.mixture import Mixture
from planner.components.position import Rope
from planner.components.state_space import Mamba2
from planner.witness import cache, run

FAULTS = {}


def fault(preset, *checks):
    """A function that plants a fault, the model that shows it and the checks that must fail."""

    def planted(function):
        FAULTS[function.__name__] = (function, preset, checks)
        return function

    return planted


def with_options(function, **changed):
    """The function, called with other options than its caller chose."""

    def call(*args, **options):
        return function(*args, **{**options, **{name: changed[name] for name in changed if name in options}})

    return call


@fault("llama-3.1-8b", "attention as the reference")
def score_scale_is_dropped(patch):
    patch.setattr(dense_attention, "attend", with_options(attention_core.attend, scale=1.0))


@fault("llama-3.1-8b", "attention as the reference")
def query_heads_read_the_wrong_key_head(patch):
    right = DenseAttention._by_key_head

    def wrong(self, x, axis):
        groups = self.n_kv_heads
        return right(self, x, axis) if axis == 0 else x.reshape(len(x), -1, groups, x.shape[-1]).swapaxes(1, 2)

    patch.setattr(DenseAttention, "_by_key_head", wrong)


@fault("mistral-7b-v0.1", "attention as the reference", "FLOPs of prefill")
def window_is_one_too_wide(patch):
    patch.setattr(rules.Window, "sees", lambda self, q, k: (k <= q) & (q - k <= self.width))


@fault("mistral-7b-v0.1", "decode token by token")
def window_forgets_one_position_too_many(patch):
    patch.setattr(rules.Window, "held", lambda self, past: min(past, self.width - 2))


@fault("mistral-7b-v0.1", "cache bytes after prefill")
def window_is_never_evicted(patch):
    patch.setattr(rules.Window, "limit", None)


@fault("phi-2", "attention as the reference")
def rope_turns_the_wrong_part(patch):
    right = Rope.turned

    def wrong(self, heads, *where):
        return right(self, heads[..., ::-1], *where)[..., ::-1]

    patch.setattr(Rope, "turned", wrong)


@fault("llama-3.1-8b", "attention as the reference")
def rope_pairs_neighbours_where_halves_belong_together(patch):
    right = Rope.turned

    def wrong(self, heads, *where):
        return right(position.Rope(base=self.base, interleaved=not self.interleaved), heads, *where)

    patch.setattr(Rope, "turned", wrong)


@fault("llama-3.1-8b", "decode token by token", "positions go on behind a cached prefix")
def positions_begin_again_in_every_pass(patch):
    patch.setattr(run.PartRun, "positions", property(lambda self: self.context.positions - self.step.past))


@fault("phi-4-mini", "positions across the original length")
def frequencies_are_set_anew_in_every_pass(patch):
    patch.setattr(run.PartRun, "reach", property(lambda self: int(self.positions.max()) + 1))


@fault("gpt2", "packed documents are alone", "padding changes nothing")
def positions_go_on_across_documents(patch):
    patch.setattr(run.PartRun, "positions", property(lambda self: self.step.past + np.arange(self.step.new)))


@fault("gpt2", "positions end with their table")
def positions_wrap_around_the_table(patch):
    right = run.PartRun.rows
    patch.setattr(
        run.PartRun, "rows", lambda self, id, i: right(self, id, i % len(self.context.weights[self.name(id)]))
    )


@fault("llama-3.1-8b", "decode token by token", "prefill in chunks", "ragged batch")
def cache_is_not_appended(patch):
    right = cache.Store.extend

    def wrong(self, new, past):
        rows = self.rows
        at_hand = right(self, new, past)
        self.rows[: len(rows)], self.rows[len(rows) :] = rows, 0
        return at_hand

    patch.setattr(cache.Store, "extend", wrong)


@fault("llama-3.1-8b", "future tokens change nothing", "FLOPs of prefill")
def queries_see_the_future(patch):
    patch.setattr(rules.Causal, "sees", lambda self, q, k: k <= q + 1)


@fault("llama-3.1-8b", "padding changes nothing", "packed documents are alone", "FLOPs of packed documents")
def padding_is_seen(patch):
    patch.setattr(rules.Packed, "sees", lambda self, q, k: self.inner.sees(q, k))


@fault("llama-3.1-8b", "a prefix sees itself", "FLOPs of a prefix")
def prefix_is_causal(patch):
    patch.setattr(rules.Prefix, "sees", lambda self, q, k: k <= q)


@fault("llama-3.1-8b", "attention by blocks as the reference")
def online_softmax_forgets_to_shrink(patch):
    right = attention_core._blockwise

    def wrong(scored, valued, n_keys, block, shape, sinks):
        first = right(scored, valued, min(block, n_keys), block, shape, sinks)
        return first if n_keys <= block else right(scored, valued, n_keys, block, shape, sinks) + first

    patch.setattr(attention_core, "_blockwise", wrong)


@fault("gemma-2-2b", "attention as the reference")
def soft_cap_is_dropped(patch):
    patch.setattr(attention_core, "soft_capped", lambda x, cap: x)


@fault("gpt-oss-20b", "attention as the reference")
def sinks_are_dropped(patch):
    patch.setattr(dense_attention, "attend", with_options(attention_core.attend, sinks=None))


@fault("qwen3-8b", "attention as the reference")
def query_norm_is_dropped(patch):
    patch.setattr(DenseAttention, "_normed", lambda self, heads, run, norm: heads)


@fault("bloom-560m", "attention as the reference")
def alibi_slopes_are_in_the_wrong_order(patch):
    right = position.Alibi.slopes
    patch.setattr(position.Alibi, "bias", lambda self, n, q, k: right(self, n)[::-1, None, None] * (k - q[:, None]))


@fault("deepseek-v3", "latent attention absorbed", "decode token by token")
def absorbed_scores_are_scaled_by_the_latent_width(patch):
    patch.setattr(
        LatentAttention,
        "_absorbed",
        lambda self, q, latent, key, up, mask, run, right=LatentAttention._absorbed: right(
            self, q * 0.5, latent, key, up, mask, run
        ),
    )


@fault("deepseek-v3", "attention as the reference")
def latent_is_not_normed(patch):
    right = latent_attention.LatentAttention._cached

    def wrong(self, x, run):
        latent, key = np.split(run.linear("kv_a", x), [self.kv_lora_rank], axis=-1)
        right(self, x, run)
        return run.extend("latent", latent[:, None]), run.extend("rope_key", key[:, None])

    patch.setattr(latent_attention.LatentAttention, "_cached", wrong)


@fault("deepseek-v3", "feed-forward as the reference", "FLOPs of prefill")
def shared_expert_is_missing(patch):
    patch.setattr(Mixture, "_shared_output", lambda self, x, run: 0)


@fault("deepseek-v3", "feed-forward as the reference")
def correction_bias_weighs_too(patch):
    right = Mixture._choice

    def wrong(self, logits, run):
        return right(self, logits + run.weight("router.correction"), run)

    patch.setattr(Mixture, "_choice", wrong)


@fault("deepseek-v3", "feed-forward as the reference")
def routed_scale_is_dropped(patch):
    right = Mixture._choice

    def wrong(self, logits, run):
        experts, weights = right(self, logits, run)
        return experts, weights / self.routed_scale

    patch.setattr(Mixture, "_choice", wrong)


@fault("mixtral-8x7b", "feed-forward as the reference")
def chosen_weights_do_not_sum_to_one(patch):
    patch.setattr(mixture, "softmax", lambda x: np.exp(x - x.max(axis=-1, keepdims=True)))
    right = Mixture._choice

    def wrong(self, logits, run):
        experts, weights = right(self, logits, run)
        return experts, weights * 0.9

    patch.setattr(Mixture, "_choice", wrong)


@fault("llama-3.1-8b", "feed-forward as the reference")
def gate_and_up_are_swapped(patch):
    right = feed_forward.FeedForward._gated
    patch.setattr(feed_forward.FeedForward, "_gated", lambda self, gate, up, run: right(self, up, gate, run))


@fault("gemma-3n-e2b", "attention as the reference")
def shared_keys_come_from_the_wrong_layer(patch):
    right = run.PartRun._cached
    patch.setattr(
        run.PartRun, "_cached", lambda self, id: "layers.0.mixer." + id[-1] if id[0] == "/" else right(self, id)
    )


@fault("llama-3.1-8b", "FLOPs of prefill")
def formula_halves_the_square(patch):
    patch.setattr(rules.Causal, "pairs", lambda self, past, new: new * (past + new) // 2)


@fault("deepseek-v3", "FLOPs of a decode step")
def formula_forgets_the_rotary_part_of_absorbed_scores(patch):
    right = folds.flops

    def wrong(parts, run, **options):
        by = right(parts, run, **options)
        if options.get("by") == "product" and run.mla == "absorbed":
            by = {name: n // 2 if name.endswith("scores") else n for name, n in by.items()}
        return by

    patch.setattr(folds, "flops", wrong)


@fault("mamba-130m", "states as the reference")
def state_is_not_decayed(patch):
    patch.setattr(
        state_space, "scanned", lambda v, k, q, decay, run, right=state_space.scanned: right(v, k, q, decay**0, run)
    )


@fault("mamba2-130m", "decode token by token", "prefill in chunks", "ragged batch", "cache bytes after prefill")
def state_is_not_kept(patch):
    right = run.PartRun.keep
    patch.setattr(run.PartRun, "keep", lambda self, id, value: id.endswith("conv_state") and right(self, id, value))


@fault("falcon-h1-0.5b", "decode token by token", "prefill in chunks", "positions go on behind a cached prefix")
def convolution_is_not_shifted_between_passes(patch):
    right = run.PartRun.keep

    def wrong(self, id, value):
        right(self, id, np.roll(value, 1, axis=-1) if id == "conv_state" else value)

    patch.setattr(run.PartRun, "keep", wrong)


@fault("bamba-9b", "packed documents are alone", "padding changes nothing")
def state_goes_on_across_documents(patch):
    patch.setattr(run.PartRun, "begins", property(lambda self: np.zeros(self.step.new, bool)))


@fault("lfm2-1.2b", "states as the reference")
def convolution_reads_from_the_wrong_end(patch):
    right = run.PartRun.weight
    patch.setattr(
        run.PartRun,
        "weight",
        lambda self, id: right(self, id)[..., ::-1] if id == "conv.weight" else right(self, id),
    )


@fault("zamba2-2.7b", "states as the reference")
def gate_comes_behind_the_norm(patch):
    right = Mamba2._gated
    patch.setattr(
        Mamba2, "_gated", lambda self, y, gate, run: right(replace(self, norm_before_gate=True), y, gate, run)
    )


@fault("mamba-codestral-7b", "states as the reference")
def heads_read_the_wrong_group(patch):
    patch.setattr(
        state_space,
        "scanned",
        lambda v, k, q, decay, run, right=state_space.scanned: right(v, np.roll(k, 1, axis=1), q, decay, run),
    )


@fault("jamba-v0.1", "states as the reference")
def step_width_is_cut_off_at_zero(patch):
    patch.setattr(state_space, "softplus", lambda x: np.maximum(x, 0))


@fault("qwen3-next-80b-a3b", "states as the reference")
def delta_rule_erases_nothing(patch):
    right = run.PartRun.product

    def wrong(self, id, subscripts, a, b, **options):
        return right(self, id, subscripts, a, b, **options) * (id != "state_recall")

    patch.setattr(run.PartRun, "product", wrong)


@fault("qwen3.5-27b", "states as the reference")
def keys_keep_their_length(patch):
    patch.setattr(linear_attention, "_unit", lambda x: x)


@fault("minimax-text-01", "states as the reference")
def every_layer_forgets_as_the_first(patch):
    right = linear_attention.LightningAttention.rates
    patch.setattr(linear_attention.LightningAttention, "rates", lambda self, layer, n: right(self, 0, n))


@fault("recurrentgemma-2b", "states as the reference")
def gates_of_the_recurrence_are_swapped(patch):
    right = gated_recurrence.GatedRecurrence._gate
    other = {"input_gate": "recurrent_gate", "recurrent_gate": "input_gate"}
    patch.setattr(gated_recurrence.GatedRecurrence, "_gate", lambda self, id, x, run: right(self, other[id], x, run))


@fault("nemotron-h-56b", "FLOPs of prefill", "FLOPs of a decode step")
def formula_reads_states_out_for_nothing(patch):
    right = folds.flops

    def wrong(parts, run, **options):
        by = right(parts, run, **options)
        return {n: f for n, f in by.items() if "state_readout" not in n} if options.get("by") == "product" else by

    patch.setattr(folds, "flops", wrong)


@fault("apertus-8b", "feed-forward as the reference")
def learned_activation_has_no_linear_term(patch):
    right = feed_forward.FeedForward._activated
    patch.setattr(
        feed_forward.FeedForward,
        "_activated",
        lambda self, x, run: right(self, x, run) - run.weight("activation.beta") * x,
    )


@fault("phi-3.5-moe", "feed-forward as the reference")
def far_experts_count_in_the_weights(patch):
    right = Mixture._sparsemixer
    patch.setattr(Mixture, "_sparsemixer", lambda self, logits: right(replace(self, router_jitter=9.0), logits))


@fault("jetmoe-8b", "attention as the reference", "attention by blocks as the reference")
def experts_of_attention_all_count_alike(patch):
    right = mixture_attention.softmax
    patch.setattr(mixture_attention, "softmax", lambda x: right(0 * x))


@fault("gemma-4-26b-a4b", "feed-forward as the reference")
def router_reads_what_the_experts_read(patch):
    right = Mixture.routed
    patch.setattr(Mixture, "routed", lambda self, x, router_input, run: right(self, x, x, run))


@fault("zamba2-2.7b", "extras as the reference")
def adapters_of_a_shared_block_are_dropped(patch):
    patch.setattr(run.PartRun, "plus", lambda self, terms: self)


@fault("gemma-3n-e2b", "extras as the reference")
def low_rank_residual_forgets_its_input(patch):
    right = streams.LowRankResidual.forward
    patch.setattr(streams.LowRankResidual, "forward", lambda self, x, run: right(self, x, run) - x)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_fails_the_named_check(name, monkeypatch):
    plant, preset, checks = FAULTS[name]
    model = planner.load(preset)
    sound = planner.verify(model)
    assert sound.passed, sound
    assert {check.name for check in sound.checks} >= set(checks)
    plant(monkeypatch)
    failed = {check.name for check in planner.verify(model).failed}
    assert failed >= set(checks), failed
