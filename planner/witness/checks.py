"""The checks of `planner verify`, in the order in which they are printed.

Each compares a figure of the running decoder with one of the bill, or one way of running it with another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from planner import accounts, folds
from planner.ablation import variants
from planner.bill import Pass
from planner.components.arrays import Array
from planner.components.position import Dynamic, LongRope, Rope
from planner.contract import Architecture
from planner.errors import PlannerError, UsageError
from planner.sources import Checkpoint
from planner.witness.bench import Bench
from planner.witness.meter import Meter
from planner.witness.places import stored
from planner.witness.reconcile import held_to
from planner.witness.report import SAME, TOLERANCE, Check, close, difference, exact, not_applicable
from planner.witness.scaling import scaled_down
from planner.witness.session import Witness, random_weights


def parameters(bench: Bench) -> Iterator[Check]:
    """(1) The arrays that a pass reads, and the contract's own shapes layer by layer, add up to the formula."""
    arrays = sum(bench.witness.weights[name].size for name in bench.meter.tensors)
    yield exact("parameters of the arrays", arrays, accounts.parameters(bench.small))
    tensors = sum(tensor.size for tensor in stored(bench.model).values())
    yield exact("parameters of the contract", tensors, accounts.parameters(bench.model))


def of_checkpoint(model: Architecture, checkpoint: Checkpoint) -> Check:
    """(1) A checkpoint's header: every tensor has its place and its shape, none is left over, a tied one is one."""
    held, name, expected = held_to(model, checkpoint), "parameters of the checkpoint", accounts.parameters(model)
    found = held.differences
    wrong = {"missing": found.missing, "extra": found.extra, "of another shape": found.shape_differs}
    if not found.agree:
        differing = ((what, len(each), each[0][0], list(each[0][-1])) for what, each in wrong.items() if each)
        named = (f"{count:,} {what}, such as {tensor} {side}" for what, count, tensor, side in differing)
        return Check(name, False, "; ".join(named), expected)
    placed = {source for source, verdict in held.verdicts().items() if verdict == "equal"}
    return exact(name, sum(w.elements for w in held.body.weights if placed.intersection(w.stored_as)), expected)


def causality(bench: Bench) -> Iterator[Check]:
    """(2) Nothing later, and nothing of another document, changes a logit."""
    cut = bench.length // 2
    later = bench.witness.forward(bench.changed(slice(cut, None)))
    yield close("future tokens change nothing", later[:cut], bench.logits[:cut])
    if bench.compressed:
        reason = "entries that span several positions are not defined for packed documents"
        yield from (not_applicable(name, reason) for name in ("padding changes nothing", "packed documents are alone"))
    else:
        yield from _documents(bench, cut)
    if bench.plain_causal:
        yield from _prefix(bench, cut)
    else:
        yield not_applicable("a prefix sees itself", "a prefix is defined for plain causal attention only")


def _documents(bench: Bench, cut: int) -> Iterator[Check]:
    length, pad = bench.length, 5
    real = slice(0, length - pad)
    left = np.concatenate([bench.tokens[:pad], bench.tokens[real]])
    left_padded = bench.witness.forward(left, documents=(pad, length - pad))[pad:]
    right_padded = bench.witness.forward(bench.tokens, documents=(length - pad, pad))[real]
    both = np.concatenate([left_padded, right_padded])
    yield close("padding changes nothing", both, np.concatenate([bench.logits[real]] * 2))
    packed = bench.witness.forward(bench.tokens, documents=(cut, length - cut))
    alone = np.concatenate([bench.logits[:cut], bench.witness.forward(bench.tokens[cut:])])
    yield close("packed documents are alone", packed, alone)


def _prefix(bench: Bench, cut: int) -> Iterator[Check]:
    before = bench.witness.forward(bench.tokens, prefix=cut)
    behind = bench.witness.forward(bench.changed(slice(cut, None)), prefix=cut)
    yield close("nothing behind a prefix changes it", behind[:cut], before[:cut])
    inside = bench.witness.forward(bench.changed(slice(cut - 1, cut)), prefix=cut)
    seen = difference(inside[: cut - 1], before[: cut - 1])
    yield Check("a prefix sees itself", seen > SAME, seen, f"more than {SAME:.0e}")


def against_reference(bench: Bench) -> Iterator[Check]:
    """(3) The whole decoder, and attention at once and by blocks of keys, states and feed-forward against `reference`.

    The branches run in float32, the reference in float64; the whole decoder runs in float64 too. What the reference
    does not have is named.
    """
    logits, expected = bench.whole()
    if expected is None:
        yield not_applicable("logits as the reference", "the reference does not have all of its parts")
    else:
        yield close("logits as the reference", logits, expected)
    for title, branches in (
        ("attention", bench.branches("mixer", None)),
        ("attention by blocks", bench.branches("mixer", 5)),
        ("states", bench.states()),
        ("streams", bench.streams()),
        ("feed-forward", bench.branches("feed_forward", None)),
        ("extras", bench.extras()),
    ):
        found = [difference(measured, expected) for measured, expected in branches]
        if found:
            yield Check(f"{title} as the reference", max(found) <= TOLERANCE, max(found), f"at most {TOLERANCE:.0e}")
        else:
            yield not_applicable(f"{title} as the reference", "nothing in it that the reference has")
    for kind in bench.not_compared():
        yield not_applicable(f"{kind} as the reference", "not in the reference; its passes are held to each other")


def decoding(bench: Bench) -> Iterator[Check]:
    """(4) Read token by token, in chunks, in a ragged batch: the logits are those of one pass."""
    third, half = bench.length // 3, bench.length // 2
    yield close("decode token by token", bench.steps([1] * bench.length), bench.logits)
    yield close("prefill in chunks", bench.steps([third, 1, 4, bench.length - third - 5]), bench.logits)
    if bench.latent:
        for form in ("absorbed", "reexpanded"):
            two = bench.steps([half, bench.length - half], mla=form)
            yield close(f"latent attention {form}", two, bench.logits)
    sequences = [bench.tokens[:3], bench.tokens[::-1][:half], bench.tokens[2:]]
    yield close(
        "ragged batch", _in_turns(bench, sequences), np.concatenate([bench.witness.forward(s) for s in sequences])
    )


def _in_turns(bench: Bench, sequences: list[Array]) -> Array:
    """Logits of sequences of different lengths that take a token each in turns, every one with its own cache."""
    caches = [bench.witness.cache() for _ in sequences]
    logits: list[list[Array]] = [[] for _ in sequences]
    for step in range(max(map(len, sequences))):
        for sequence, cache, found in zip(sequences, caches, logits, strict=True):
            if step < len(sequence):
                found.append(bench.witness.forward(sequence[step : step + 1], cache))
    return np.concatenate([row for found in logits for row in found])


def cache(bench: Bench) -> Iterator[Check]:
    """(5) Bytes of the arrays that are kept, over lengths and a ragged batch, against the formula."""
    lengths = [1, 4, 5, 6, 7, bench.length // 2, bench.length - 1]
    single = Witness(bench.small, bench.weights, np.float32)
    caches = [single.cache() for _ in lengths]
    for length, kept in zip(lengths, caches, strict=True):
        single.forward(bench.tokens[:length], kept, emitted=1)
    for when in ("after prefill", "after a step"):
        measured = [kept.nbytes for kept in caches]
        expected = [accounts.cache_bytes(bench.small, kept.length) for kept in caches]
        name = f"cache bytes {when}"
        yield Check(
            name, measured == expected, sum(measured), accounts.cache_bytes(bench.small, [c.length for c in caches])
        )
        for kept in caches:
            single.forward(bench.tokens[-1:], kept)


def positions(bench: Bench) -> Iterator[Check]:
    """(6) Shifted positions, the ends of what is stated, an offset from a cached prefix."""
    if bench.absolute:
        yield not_applicable("relative positions", f"{bench.absolute} knows where a sequence begins")
    else:
        yield close("relative positions", bench.witness.forward(bench.tokens, offset=7), bench.logits)
    for name, last in (
        ("trained length", bench.small.trained_positions),
        ("stated maximum", bench.small.max_positions),
    ):
        if last is not None and last > bench.length:
            logits = bench.witness.forward(bench.tokens, offset=last - bench.length)
            yield Check(f"positions up to the {name}", bool(np.isfinite(logits).all()), f"finite at {last:,}", "finite")
    table = bench.small.embedding.learned_positions
    if table is not None:
        bench.witness.forward(bench.tokens, offset=table - bench.length)
        try:
            bench.witness.forward(bench.tokens, offset=table - bench.length + 1)
        except UsageError as error:
            yield Check("positions end with their table", True, str(error), "refused")
        else:
            yield Check("positions end with their table", False, f"position {table} was read", "refused")
    yield _across(bench)
    cached = bench.witness.cache()
    bench.witness.forward(bench.tokens[:9], cached, offset=3)
    behind = bench.witness.forward(bench.tokens[9:], cached, offset=3)
    whole = bench.witness.forward(bench.tokens, offset=3)
    yield close("positions go on behind a cached prefix", behind, whole[9:])


def _across(bench: Bench) -> Check:
    """Frequencies that are set for a longer context than the original one stay, wherever a pass ends."""
    name = "positions across the original length"
    ropes = (rope.scaling for rope in bench.of(Rope))
    originals = {scaling.original_positions for scaling in ropes if isinstance(scaling, (Dynamic, LongRope))}
    if not originals:
        return not_applicable(name, "no rotary embedding depends on the length of the context")
    half = bench.length // 2
    options: dict[str, Any] = {"offset": max(min(originals) - half, 0), "reach": max(originals) + bench.length}
    passes = bench.steps([half - 1, 1, 1, bench.length - half - 1], **options)
    return close(name, passes, bench.witness.forward(bench.tokens, **options))


def equal_budget(bench: Bench) -> Iterator[Check]:
    """(7) Variants with as many parameters: no other width of the feed-forward matches them better, and they run."""
    try:
        found = list(variants(bench.model, "mixer", ("mha", "mqa")))
    except PlannerError as error:
        yield not_applicable("variants have an equal budget", str(error))
        return
    largest = max(abs(variant.mismatch) for variant in found)
    matched = all(2 * abs(variant.spent - variant.target) <= variant.step for variant in found)
    yield Check("variants have an equal budget", matched, largest, "at most half a step of d_ff")
    for variant in found:
        small = scaled_down(variant.architecture).architecture
        witness, meter = Witness(small, random_weights(small)), Meter()
        witness.forward(bench.tokens % small.vocab_size, meter=meter)
        expected = accounts.flops(small, new=bench.length, logits="all")
        yield exact(f"FLOPs of {variant.name}", sum(meter.flops().values()), expected)


def flops(bench: Bench) -> Iterator[Check]:
    """(8) What was multiplied, product by product, against the formula in both conventions."""
    length, half = bench.length, bench.length // 2
    passes = {
        "prefill": Pass(past=0, new=length, emitted=1),
        "a chunk": Pass(past=half, new=length - half, emitted=2, mla="absorbed"),
        "a decode step": Pass(past=length - 1, new=1, emitted=1, mla="absorbed"),
    }
    if bench.latent:
        passes["a re-expanded latent"] = Pass(past=half, new=3, emitted=3, mla="reexpanded")
    if bench.plain_causal:
        passes["a prefix"] = Pass(past=0, new=length, emitted=1, prefix=half)
    if not bench.compressed:
        passes["packed documents"] = Pass(past=0, new=length, emitted=1, documents=(half, length - half))
    for name, step in passes.items():
        yield from _metered(bench, name, step)


def _metered(bench: Bench, name: str, step: Pass) -> Iterator[Check]:
    cache, meter = bench.witness.cache(), Meter()
    options = {"prefix": step.prefix, "documents": step.documents}
    if step.past:
        bench.witness.forward(bench.tokens[: step.past], cache)
    new = bench.tokens[step.past : step.past + step.new]
    bench.witness.forward(new, cache, emitted=step.emitted, mla=step.mla, meter=meter, **options)
    titles: dict[Literal["causal", "square"], str] = {"causal": "", "square": ", square"}
    for convention, ending in titles.items():
        title = f"FLOPs of {name}{ending}"
        expected = folds.flops(bench.small.parts(), replace(step, attention=convention), by="product")
        found = meter.flops(convention)
        wrong = [path for path in {**expected, **found} if expected.get(path, 0) != found.get(path, 0)]
        measured, total = sum(found.values()), sum(expected.values())
        if wrong:
            yield Check(title, False, f"{measured:,}, different in {', '.join(wrong)}", total)
        else:
            yield exact(title, measured, total)
