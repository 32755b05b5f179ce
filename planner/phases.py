"""The phases of a request on a plan: its prefill, its decode steps and the rates that follow, in generic arithmetic.

A request is its prefill, which emits the first token, and osl - 1 decode steps over a context that grows from isl.
FLOPs, cache reads and writes of the steps are summed exactly; the time of all is that of osl - 1 equal steps, which is
the sum of their own times unless a product's binding resource changes on the way, and never more. Chunks of a prompt
are taken together in the same manner, all but the last; they follow one another through the stages of a pipeline.

A replica in the steady state works on all its sequences: each request costs it one prefill, alone, and its share of the
decode steps. Queueing, scheduling and transport of tokens are left out, so `ttft_s` is that of an idle replica.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from planner.arithmetic import Value, ceil_div, maximum, minimum
from planner.parallel import ranks
from planner.plan import Plan
from planner.textbook.pipeline import pipelined_s
from planner.timing import Rates, Run
from planner.traffic import Batch, Members


@dataclass(frozen=True)
class Timing:
    """What a replica takes and gives. `sequences` are those of one replica, `all_sequences` those of all.

    `ttft_s` is the prefill of a request from end to end, the mean of ragged prompts; `prefill_s` is how long it keeps a
    replica from other work, less than that where the stages of a pipeline work on different prompts. `tpot_s` is the
    mean of the decode steps; with osl = 1, which has none, that of the next one.
    """

    ttft_s: Any
    prefill_s: Any
    tpot_s: Any
    isl: Any
    osl: Any
    sequences: Any
    all_sequences: Any
    accelerators: int

    @property
    def decode_s(self) -> Any:
        """The osl - 1 decode steps of a request, which all sequences of the replica share."""
        return (self.osl - 1) * self.tpot_s

    @property
    def request_s(self) -> Any:
        """A request from end to end."""
        return self.ttft_s + self.decode_s

    @property
    def burst_ttft_s(self) -> Any:
        """TTFT of the last of all sequences of a replica, whose prompts arrive together and are read in turn."""
        return self.ttft_s + (self.sequences - 1) * self.prefill_s

    @property
    def requests_per_s(self) -> Any:
        """Requests that a replica completes in the steady state."""
        return self.sequences / (self.sequences * self.prefill_s + self.decode_s)

    @property
    def output_tok_s_per_user(self) -> Any:
        """Output tokens of one sequence while it decodes."""
        return 1 / self.tpot_s

    @property
    def output_tok_s_per_replica(self) -> Any:
        """Output tokens of a replica in the steady state."""
        return self.osl * self.requests_per_s

    @property
    def output_tok_s_per_accelerator(self) -> Any:
        """Output tokens of a replica for each of its accelerators."""
        return self.output_tok_s_per_replica / self.accelerators

    @property
    def output_tok_s(self) -> Any:
        """Output tokens of all replicas, each of which has its share of the sequences."""
        return self.output_tok_s_per_replica * self.all_sequences / self.sequences

    @property
    def input_tok_s(self) -> Any:
        """Input tokens of all replicas, cached ones counted."""
        return self.output_tok_s * self.isl / self.osl

    @property
    def total_tok_s(self) -> Any:
        """Input and output tokens of all replicas."""
        return self.output_tok_s + self.input_tok_s


Stages = tuple[tuple[tuple[int, tuple[Run, ...]], ...], ...]
"""For each stage (how many prompts, the runs that may serve them) of every batch."""


def runs(plan: Plan, peak: Rates | None = None) -> tuple[Stages, Stages]:
    """The runs of prefill and of decode; more than one for a batch where latent attention has several forms."""
    rates = Rates.peak(plan) if peak is None else peak
    reached, stages = rates.reached(plan), ranks(plan.model, plan.layout)

    def of(batches: Sequence[tuple[int, Batch, tuple[str, ...]]]) -> Stages:
        return tuple(
            tuple(
                (prompts, tuple(Run(plan, rank, batch, mla, rates, reached) for mla in forms))
                for prompts, batch, forms in batches
            )
            for rank in stages
        )

    return of(list(_prefill(plan))), of([(1, *_decode(plan))])


def timings(plan: Plan, peak: Rates | None = None) -> tuple[Timing, Timing]:
    """(floor, estimate) in generic arithmetic; `peak` stands for the data sheet's rates, with words in their place."""
    return timed(plan, *runs(plan, peak))


def timed(plan: Plan, prefill: Stages, decode: Stages) -> tuple[Timing, Timing]:
    """(floor, estimate) of the runs of a plan."""
    floor = _timing(plan, prefill, decode, lambda run: run.floor_s)
    return floor, _timing(plan, prefill, decode, lambda run: run.seconds)


def estimated(plan: Plan) -> Timing:
    """The estimate alone, for prices and rankings: half the work of both."""
    return _timing(plan, *runs(plan), lambda run: run.seconds)


def _timing(plan: Plan, prefill: Stages, decode: Stages, time: Callable[[Run], Value]) -> Timing:
    def fastest(choices: Sequence[Run]) -> Value:
        return reduce(minimum, map(time, choices))

    def by_stage(stages: Stages) -> list[Value]:
        return [sum(n * fastest(choices) for n, choices in batches) for batches in stages]

    layout, lengths = plan.layout, plan.workload.lengths
    prompts = 1 if lengths is None else len(lengths)
    reading = [seconds / prompts for seconds in by_stage(prefill)] if prompts > 1 else by_stage(prefill)
    ttft = sum(reading)
    if chunks_overlap(plan):
        ttft = _pipelined(prefill, fastest) / prompts
    steps = maximum(plan.osl - 1, 1)
    sequences = _shared(plan.sequences, layout.dp)
    step = sum(way := by_stage(decode))
    if layout.pp > 1:  # as many groups follow each other as there are stages, or sequences
        step = maximum(step, minimum(sequences, layout.pp) * reduce(maximum, way))
    return Timing(
        ttft_s=ttft,
        prefill_s=reduce(maximum, reading),
        tpot_s=step / steps,
        isl=plan.isl if lengths is None else sum(lengths) / len(lengths),
        osl=plan.osl,
        sequences=sequences,
        all_sequences=plan.sequences,
        accelerators=layout.tp * layout.pp,
    )


def chunks_overlap(plan: Plan) -> bool:
    """Whether the stages of a pipeline read different chunks of a prompt at the same time."""
    return plan.layout.pp > 1 and plan.workload.chunk is not None


def _pipelined(prefill: Stages, fastest: Callable[[Sequence[Run]], Value]) -> Value:
    """Seconds of all prompts whose chunks follow one another through the stages, one prompt alone at a time.

    The last chunk, which may be short, enters a stage when it has left the one before and the others have left this
    one: of the stages on which it may have had to wait, the one that makes it latest counts.
    """
    by_batch, total = list(zip(*prefill, strict=True)), 0
    for before, behind in zip(by_batch[::2], by_batch[1::2], strict=True):
        prompts, runs = before[0]
        chunks, last = runs[0].batch.passes, [fastest(choices) for _, choices in behind]
        each = [fastest(choices) / maximum(chunks, 1) for _, choices in before]
        waits = (
            pipelined_s(chunks, sum(each[:n]), reduce(maximum, each[:n])) + sum(last[n - 1 :])
            for n in range(1, len(each) + 1)
        )
        total = total + prompts * reduce(maximum, waits)
    return total


def _prefill(plan: Plan) -> Iterator[tuple[int, Batch, tuple[str, ...]]]:
    """(how many prompts of that length, batch, forms of latent attention that may serve it)."""
    work = plan.workload
    prompts = [(plan.isl, 1)] if work.lengths is None else sorted(Counter(work.lengths).items())
    for length, count in prompts:
        rest, past = length - work.cached_prefix, work.cached_prefix
        if work.chunk is not None:
            chunks = ceil_div(rest, work.chunk) - 1
            yield count, _batch(((1, past),), plan, work.chunk, passes=chunks), prefill_forms(plan, past, chunked=True)
            rest, past = rest - chunks * work.chunk, past + chunks * work.chunk
        last = _batch(((1, past),), plan, rest, emitted=1)
        yield count, last, prefill_forms(plan, past, chunked=work.chunk is not None)


def _batch(members: Members, plan: Plan, new: Value, *, emitted: Value = 0, passes: Value = 1) -> Batch:
    said = plan.conventions
    return Batch(
        members=members,
        mixer_members=members,
        new=new,
        emitted=new if said.logits == "all" else emitted,
        passes=passes,
        attention=said.attention,
    )


def prefill_forms(plan: Plan, past: Value, *, chunked: bool) -> tuple[str, ...]:
    """Forms of latent attention in prefill: expanded where nothing is cached, else the faster of the other two."""
    if plan.conventions.mla != "auto":
        return (plan.conventions.mla,)
    if not chunked and isinstance(past, int) and past == 0:
        return ("expanded",)
    latent = any(product.form is not None for part in plan.model.parts() for product in part.bill.products)
    return ("absorbed", "reexpanded") if latent else ("absorbed",)


def _decode(plan: Plan) -> tuple[Batch, tuple[str, ...]]:
    """The decode steps of the sequences that stand on a stage at the same time."""
    layout, said = plan.layout, plan.conventions
    batch = Batch(
        members=_resident(plan, layout.dp * layout.pp),
        mixer_members=_resident(plan, layout.sequence_groups * layout.pp),
        passes=maximum(plan.osl - 1, 1),
        attention=said.attention,
    )
    return batch, (decode_form(plan),)


def decode_form(plan: Plan) -> str:
    """The form of latent attention in decode."""
    said = plan.conventions.mla
    return "absorbed" if said == "auto" else said


def _resident(plan: Plan, ways: int) -> Members:
    """(sequences with their beams, cached positions) of the busiest of so many groups."""
    beams, lengths = plan.holders.beams, plan.workload.lengths
    if lengths is None:
        return ((beams * _shared(plan.sequences, ways), plan.isl),)
    dealt = max(plan.dealt(ways), key=sum)
    return tuple((beams * n, length) for length, n in Counter(dealt).items())


def _shared(sequences: Value, ways: int) -> Value:
    return sequences if ways == 1 else ceil_div(sequences, ways)
