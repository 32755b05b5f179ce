"""The phases of a request on a plan: its prefill, its decode steps and the rates that follow, in generic arithmetic.

A request is its prefill, which emits the first token, and osl - 1 decode steps over a context that grows from isl.
FLOPs, cache reads and writes of the steps are summed exactly; the time of all is that of osl - 1 equal steps, which is
the sum of their own times unless a product's binding resource changes on the way, and never more. Chunks of a prompt
are taken together in the same manner, all but the last; they follow one another through the stages of a pipeline.

A replica in the steady state works on all its sequences: each request costs it its share of a pass that reads several
prompts, as many as `prefill_tokens` has room for, and its share of the decode steps. (With prompts read one by one, the
throughput of public benchmarks with 128 tokens in and out came out 1.3 times too low in the median and 2.3 times in a
tenth of them, and floors of it above what was measured.) In the floor the prompts have no traffic of their own, since
decode steps read the same weights: only their arithmetic is added. Queueing, scheduling and transport of tokens are
left out, so `ttft_s` is that of an idle replica.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

from planner.arithmetic import Value, ceil_div, floor_div, maximum, minimum
from planner.ladder import largest_share
from planner.parallel import ranks
from planner.plan import Plan
from planner.textbook.pipeline import pipelined_s
from planner.timing import Rates, Run
from planner.traffic import Batch, Members


@dataclass(frozen=True)
class Timing:
    """What a replica takes and gives; `sequences` are its own, `all_sequences` and `accelerators` those of all.

    `ttft_s` is the prefill of a request from end to end, the mean of ragged prompts; `prefill_s` is how long it keeps a
    replica from other work, less than that where prompts are read together and where the stages of a pipeline work on
    different ones. `burst_ttft_s` is the TTFT of the last of all sequences of a replica, whose prompts arrive at once.
    `tpot_s` is the mean of the decode steps; with osl = 1, which has none, that of the next one. `cycle_s` is how long
    a replica in the steady state takes to complete as many requests as it has sequences.
    """

    ttft_s: Any
    prefill_s: Any
    burst_ttft_s: Any
    tpot_s: Any
    cycle_s: Any
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
    def requests_per_s(self) -> Any:
        """Requests that a replica completes in the steady state."""
        return self.sequences / self.cycle_s

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
        """Output tokens of all replicas for each of their accelerators."""
        return self.output_tok_s / self.accelerators

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


class Phases(NamedTuple):
    """The runs of each phase: a prompt read alone, prompts read together, and the decode steps."""

    prefill: Stages
    together: Stages
    decode: Stages


def runs(plan: Plan, peak: Rates | None = None) -> Phases:
    """The runs of each phase; more than one for a batch where latent attention has several forms."""
    rates = Rates.peak(plan) if peak is None else peak
    reached, stages = rates.reached(plan), ranks(plan.model, plan.layout)

    def of(batches: Sequence[tuple[Value, Batch, tuple[str, ...]]]) -> Stages:
        return tuple(
            tuple(
                (passes, tuple(Run(plan, rank, batch, mla, rates, reached) for mla in forms))
                for passes, batch, forms in batches
            )
            for rank in stages
        )

    together = _prefill(plan, lambda rest, prompts: _at_once(plan, rest, prompts))
    return Phases(of(list(_prefill(plan, lambda rest, prompts: 1))), of(list(together)), of([(1, *_decode(plan))]))


def timings(plan: Plan, peak: Rates | None = None) -> tuple[Timing, Timing]:
    """(floor, estimate) in generic arithmetic; `peak` stands for the data sheet's rates, with words in their place."""
    return timed(plan, runs(plan, peak))


def timed(plan: Plan, phases: Phases) -> tuple[Timing, Timing]:
    """(floor, estimate) of the runs of a plan."""
    return _floor(plan, phases), _timing(plan, phases, lambda run: run.seconds)


def estimated(plan: Plan) -> Timing:
    """The estimate alone, for prices and rankings: half the work of both."""
    return _timing(plan, runs(plan), lambda run: run.seconds)


def _timing(plan: Plan, phases: Phases, time: Callable[[Run], Value]) -> Timing:
    layout, lengths = plan.layout, plan.workload.lengths
    prompts = 1 if lengths is None else len(lengths)
    alone = [seconds / prompts for seconds in _by_stage(phases.prefill, time)]
    slowest = reduce(maximum, _by_stage(phases.together, time)) / prompts
    ttft = _pipelined(phases.prefill, time) / prompts if chunks_overlap(plan) else sum(alone)
    steps, sequences = maximum(plan.osl - 1, 1), largest_share(plan.sequences, layout.dp)
    step = sum(way := _by_stage(phases.decode, time))
    if layout.pp > 1:  # as many groups follow each other as there are stages, or sequences
        step = maximum(step, minimum(sequences, layout.pp) * reduce(maximum, way))
    return Timing(
        ttft_s=ttft,
        prefill_s=slowest,
        burst_ttft_s=ttft - reduce(maximum, alone) + sequences * slowest,
        tpot_s=step / steps,
        cycle_s=sequences * slowest + (plan.osl - 1) * step / steps,
        isl=plan.isl if lengths is None else sum(lengths) / len(lengths),
        osl=plan.osl,
        sequences=sequences,
        all_sequences=plan.sequences,
        accelerators=layout.accelerators,
    )


def _floor(plan: Plan, phases: Phases) -> Timing:
    """Prompts and steps overlap: their arithmetic adds up, and one traffic of the weights serves both."""
    floor, prompts = _timing(plan, phases, lambda run: run.floor_s), len(plan.workload.lengths or (1,))
    reading, steps = (_by_stage(stages, lambda run: run.arithmetic_s) for stages in (phases.together, phases.decode))
    alone = [seconds / prompts for seconds in _by_stage(phases.prefill, lambda run: run.floor_s)]
    prefill, sequences = reduce(maximum, reading) / prompts, floor.sequences
    groups = (plan.osl - 1) / maximum(plan.osl - 1, 1) * sequences / largest_share(sequences, plan.layout.pp)
    busy = [sequences * read / prompts + groups * step for read, step in zip(reading, steps, strict=True)]
    return replace(
        floor,
        prefill_s=prefill,
        burst_ttft_s=maximum(floor.ttft_s, sequences * prefill),
        cycle_s=reduce(maximum, [floor.decode_s, *alone, *busy]),
    )


def _by_stage(stages: Stages, time: Callable[[Run], Value]) -> list[Value]:
    return [sum(n * _fastest(choices, time) for n, choices in batches) for batches in stages]


def _fastest(choices: Sequence[Run], time: Callable[[Run], Value]) -> Value:
    return reduce(minimum, map(time, choices))


def chunks_overlap(plan: Plan) -> bool:
    """Whether the stages of a pipeline read different chunks of a prompt at the same time."""
    return plan.layout.pp > 1 and plan.workload.chunk is not None


def _pipelined(prefill: Stages, time: Callable[[Run], Value]) -> Value:
    """Seconds of all prompts whose chunks follow one another through the stages, one prompt alone at a time.

    The last chunk, which may be short, enters a stage when it has left the one before and the others have left this
    one: of the stages on which it may have had to wait, the one that makes it latest counts.
    """
    by_batch, total = list(zip(*prefill, strict=True)), 0
    for before, behind in zip(by_batch[::2], by_batch[1::2], strict=True):
        prompts, runs = before[0]
        chunks, last = runs[0].batch.passes, [_fastest(choices, time) for _, choices in behind]
        each = [_fastest(choices, time) / maximum(chunks, 1) for _, choices in before]
        waits = (
            pipelined_s(chunks, sum(each[:n]), reduce(maximum, each[:n])) + sum(last[n - 1 :])
            for n in range(1, len(each) + 1)
        )
        total = total + prompts * reduce(maximum, waits)
    return total


def _at_once(plan: Plan, rest: Value, prompts: Value) -> Value:
    """Of so many equal prompts of a replica, those that one pass reads: at least one for each group of mixers."""
    room = plan.assume("prefill_tokens") if plan.workload.chunk is None else plan.workload.chunk
    return minimum(prompts, maximum(plan.layout.attention_dp, floor_div(room, rest)))


def _prefill(plan: Plan, at_once: Callable[[Value, Value], Value]) -> Iterator[tuple[Value, Batch, tuple[str, ...]]]:
    """(how many batches of that kind, batch, forms of latent attention that may serve it), for all prompts."""
    work = plan.workload
    prompts = [(plan.isl, 1)] if work.lengths is None else sorted(Counter(work.lengths).items())
    for length, count in prompts:
        rest, past = length - work.cached_prefix, work.cached_prefix
        n = at_once(rest, largest_share(plan.sequences if work.lengths is None else count, plan.layout.dp))
        if work.chunk is not None:
            chunks = ceil_div(rest, work.chunk) - 1
            forms = prefill_forms(plan, past, chunked=True)
            yield count / n, _batch(n, past, plan, work.chunk, passes=chunks), forms
            rest, past = rest - chunks * work.chunk, past + chunks * work.chunk
        last = _batch(n, past, plan, rest, emitted=1)
        yield count / n, last, prefill_forms(plan, past, chunked=work.chunk is not None)


def _batch(prompts: Value, past: Value, plan: Plan, new: Value, *, emitted: Value = 0, passes: Value = 1) -> Batch:
    said = plan.conventions
    return Batch(
        members=((prompts, past),),
        mixer_members=((largest_share(prompts, plan.layout.attention_dp), past),),
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
        return ((beams * largest_share(plan.sequences, ways), plan.isl),)
    dealt = max(plan.dealt(ways), key=sum)
    return tuple((beams * n, length) for length, n in Counter(dealt).items())
