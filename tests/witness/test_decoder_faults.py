"""Faults planted between the branches, at both ends and in what all forwards share.

Every way of running a decoder has them alike, so that only the reference, which shares nothing with the forwards, can
tell.
"""

import sys
from dataclasses import replace

import numpy as np
import pytest

from planner.bill import Bill, Tensor
from planner.components import arrays, embedding
from planner.components.dense_attention import DenseAttention
from planner.components.embedding import Embedding, Output
from planner.components.norm import LayerNorm, RMSNorm
from planner.components.position import Alibi, Llama3, LongRope, Yarn
from planner.components.streams import AltUp
from planner.witness import decoder
from planner.witness.decoder import LayerSteps
from tests.witness.planted import assert_caught, collector

FAULTS, fault = collector()
LOGITS, FEED_FORWARD, ATTENTION = (f"{what} as the reference" for what in ("logits", "feed-forward", "attention"))


def without(patch, part, **fields):
    """The forward of a part whose contract says less than it does."""
    right = part.forward
    patch.setattr(part, "forward", lambda self, *args: right(replace(self, **fields), *args))


def activating(patch, wrong):
    """Every module takes another function for `activate`."""
    right = arrays.activate
    for name, module in sorted(sys.modules.items()):
        if name.startswith("planner") and getattr(module, "activate", None) is right:
            patch.setattr(module, "activate", lambda name, x: wrong(right, name, x))


@fault("gemma-2-2b", LOGITS)
def embedding_scale_is_dropped(patch):
    without(patch, Embedding, scale=None)


@fault("gemma-2-2b", LOGITS)
def logits_are_not_capped(patch):
    patch.setattr(embedding, "soft_capped", lambda x, cap: x)


@fault("command-r-35b", LOGITS)
def logits_are_not_scaled(patch):
    without(patch, Output, scale=None)


@fault("llama-3.1-8b", LOGITS)
def final_norm_is_skipped(patch):
    right = decoder.forward
    patch.setattr(decoder, "forward", lambda model, run: right(replace(model, final_norm=None), run))


@fault("llama-3.1-8b", LOGITS)
def the_stream_ends_at_the_first_branch(patch):
    right = LayerSteps.branch

    def wrong(self, name, x):
        read, out = right(self, name, x)
        return read, out - x * (name == "mixer")

    patch.setattr(LayerSteps, "branch", wrong)


@fault("phi-2", LOGITS)
def parallel_branches_run_one_after_the_other(patch):
    right = LayerSteps.branch

    def wrong(self, name, x):
        read, out = right(self, name, x)
        if name == "mixer":
            return read, out
        return read, right(self, name, x + right(self, "mixer", x)[1])[1]

    patch.setattr(LayerSteps, "branch", wrong)


@fault("gemma-2-2b", LOGITS)
def norms_behind_the_branches_are_dropped(patch):
    right = LayerSteps.normed
    patch.setattr(LayerSteps, "normed", lambda self, id, x: x if id.endswith("output_norm") else right(self, id, x))


@fault("opt-350m", LOGITS)
def norms_behind_the_sums_stand_before_the_branches(patch):
    right = LayerSteps.body

    def wrong(self, x):
        return right(LayerSteps(replace(self.layer, residual="reordered"), self.run), x)

    patch.setattr(LayerSteps, "body", wrong)


@fault("granite-3.1-2b", LOGITS)
def branches_are_added_whole(patch):
    right = LayerSteps.branch

    def wrong(self, name, x):
        return right(LayerSteps(replace(self.layer, residual_scale=None), self.run), name, x)

    patch.setattr(LayerSteps, "branch", wrong)


@fault("gemma-2-2b", LOGITS)
def one_is_not_added_to_gamma(patch):
    patch.setattr(RMSNorm, "offset", 0)


@fault("llama-3.1-8b", LOGITS)
def a_norm_sums_where_it_averages(patch):
    patch.setattr(RMSNorm, "normalised", lambda self, x: x / np.sqrt(np.sum(x * x, -1, keepdims=True) + self.eps))


@fault("gpt2", LOGITS)
def layer_norm_does_not_centre(patch):
    patch.setattr(LayerNorm, "normalised", lambda self, x: x / np.sqrt(np.mean(x * x, -1, keepdims=True) + self.eps))


@fault("llama-3.1-8b", LOGITS, FEED_FORWARD)
def silu_is_the_gate_of_a_gelu(patch):
    activating(patch, lambda right, name, x: right("gelu_quick" if name == "silu" else name, x))


@fault("gpt2", LOGITS)
def one_gelu_is_taken_for_the_other(patch):
    activating(patch, lambda right, name, x: right("gelu" if name == "gelu_tanh" else name, x))


@fault("bloom-560m", LOGITS, ATTENTION)
def alibi_begins_with_a_slope_of_one(patch):
    patch.setattr(Alibi, "slopes", lambda self, n: 2.0 ** (-self.max_bias * np.arange(n) / n))


@fault("llama-3.1-8b", LOGITS, ATTENTION)
def every_frequency_is_divided(patch):
    patch.setattr(Llama3, "stretched", lambda self, frequencies, base, length: (frequencies / self.factor, 1.0))


@fault("phi-4-mini", LOGITS, ATTENTION)
def the_long_factors_come_first(patch):
    right = LongRope.stretched

    def wrong(self, *args):
        return right(replace(self, short_factors=self.long_factors, long_factors=self.short_factors), *args)

    patch.setattr(LongRope, "stretched", wrong)


@fault("gpt-oss-20b", LOGITS, ATTENTION)
def stretched_scores_are_not_sharpened(patch):
    patch.setattr(Yarn, "_sharpening", lambda self: 1.0)


@fault("gpt-oss-20b", LOGITS, ATTENTION)
def fast_pairs_are_stretched_too(patch):
    patch.setattr(Yarn, "stretched", lambda self, frequencies, *_: (frequencies / self.factor, self._sharpening()))


@fault("llama-3.1-8b", "parameters of the arrays")
def a_tensor_is_counted_that_nothing_reads(patch):
    right = DenseAttention.bill

    def wrong(self, *widths):
        return Bill.of(right(self, *widths), Tensor("q.gain", (self.n_heads,), "attention", "attention"))

    patch.setattr(DenseAttention, "bill", wrong)


@fault("gemma-3n-e2b", LOGITS)
def streams_do_not_mix(patch):
    right = AltUp._modalities
    patch.setattr(AltUp, "_modalities", lambda self, x, run: 0 * right(self, x, run))


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_fails_the_named_check(name, monkeypatch):
    assert_caught(FAULTS[name], monkeypatch)
