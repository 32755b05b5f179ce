"""Faults planted in feed-forwards and in mixers that keep a state; a check of `planner verify` names each."""

from dataclasses import replace

import numpy as np
import pytest

from planner import folds
from planner.components import feed_forward, gated_recurrence, linear_attention, mixture, state_space
from planner.components.mixture import Mixture
from planner.components.state_space import Mamba2
from planner.witness import run
from tests.witness.planted import assert_caught, collector

FAULTS, fault = collector()


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


@fault("kimi-linear-48b-a3b", "states as the reference")
def channels_of_a_key_decay_alike(patch):
    right = linear_attention._delta_rule

    def wrong(q, k, v, beta, decay, run):
        return right(q, k, v, beta, decay.mean(axis=-1, keepdims=True), run)

    patch.setattr(linear_attention, "_delta_rule", wrong)


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


@fault("gemma-4-26b-a4b", "feed-forward as the reference")
def router_reads_what_the_experts_read(patch):
    right = Mixture.routed
    patch.setattr(Mixture, "routed", lambda self, x, router_input, run: right(self, x, x, run))


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_fails_the_named_check(name, monkeypatch):
    assert_caught(FAULTS[name], monkeypatch)
