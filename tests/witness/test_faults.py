"""Faults planted in attention, in what passes share, and in the formulas; a check of `planner verify` names each."""

import numpy as np
import pytest

from planner import folds, rules
from planner.components import attention_core, dense_attention, latent_attention, mixture_attention, position, streams
from planner.components.dense_attention import DenseAttention
from planner.components.latent_attention import LatentAttention
from planner.components.position import Rope
from planner.witness import cache, run
from tests.witness.planted import assert_caught, collector, with_options

FAULTS, fault = collector()


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


@fault("laguna-xs.2", "attention as the reference")
def gates_of_heads_stay_open(patch):
    patch.setattr(dense_attention, "softplus", np.ones_like)


@fault("step-3.5-flash", "attention as the reference")
def gates_of_heads_are_not_squashed(patch):
    patch.setattr(dense_attention, "sigmoid", lambda x: x)


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


@fault("jetmoe-8b", "attention as the reference", "attention by blocks as the reference")
def experts_of_attention_all_count_alike(patch):
    right = mixture_attention.softmax
    patch.setattr(mixture_attention, "softmax", lambda x: right(0 * x))


@fault("zamba2-2.7b", "extras as the reference")
def adapters_of_a_shared_block_are_dropped(patch):
    patch.setattr(run.PartRun, "plus", lambda self, terms: self)


@fault("gemma-3n-e2b", "extras as the reference")
def low_rank_residual_forgets_its_input(patch):
    right = streams.LowRankResidual.forward
    patch.setattr(streams.LowRankResidual, "forward", lambda self, x, run: right(self, x, run) - x)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_fails_the_named_check(name, monkeypatch):
    assert_caught(FAULTS[name], monkeypatch)
