"""How fast a plan is: floor and estimate side by side, with the table that they add up from.

`planner.traffic` says what products compute and move, `planner.timing` how long a rank takes for it, `planner.phases`
what a request and a replica make of it; an `Estimate` shows them together.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from planner.arithmetic import evaluate, word
from planner.phases import Stages, Timing, chunks_overlap, runs, timed
from planner.plan import Plan, as_plan, explained, position_notes
from planner.timing import Run, compute_fraction, compute_fractions, reach
from planner.traffic import over_host, unpacked
from planner.units import show

if TYPE_CHECKING:
    from pandas import DataFrame

RESTS_ON = (
    "weights kv tp pp dp isl osl sequences attention logits mla prefill_tokens bandwidth_fraction link_fraction "
    "collective_latency_s seconds_per_layer"
).split()

UNITS = {
    "ttft_s": "s",
    "tpot_s": "s",
    "request_s": "s",
    "prefill_s": "s",
    "decode_s": "s",
    "burst_ttft_s": "s",
    "requests_per_s": "1/s",
    "output_tok_s_per_user": "token/s",
    "output_tok_s_per_replica": "token/s",
    "output_tok_s_per_accelerator": "token/s",
    "output_tok_s": "token/s",
    "input_tok_s": "token/s",
    "total_tok_s": "token/s",
}
"""The figures that a floor and an estimate both have."""

MOST_SEQUENCES = 2**40
"""Beyond so many sequences nothing changes any more: experts are all read, and the rest is linear."""


@dataclass(frozen=True)
class Estimate(Timing):
    """The answer of `estimate`; the figures of `Timing` are estimated, those under `floor` no program goes below.

    `prefill` and `decode` are what each stage runs, `notes` what stands beside the figures.
    """

    plan: Plan
    floor: Timing
    prefill: Stages = field(repr=False)
    decode: Stages = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def mfu_prefill(self) -> float:
        """FLOPs of the prefill over what the ranks could do at their peak while they work on it."""
        return self._at_peak("prefill", lambda run: run.compute_s(run.peak))

    @property
    def mbu_decode(self) -> float:
        """Bytes that a decode step moves over what the memory could move while the step lasts."""
        return self._at_peak("decode", lambda run: run.memory_s(run.peak))

    @property
    def binding_prefill(self) -> str:
        """What most of the prefill is spent on: compute, bandwidth, host link, link or fixed time."""
        return _largest(self.shares("prefill"))

    @property
    def binding_decode(self) -> str:
        """What most of a decode step is spent on: compute, bandwidth, host link, link or fixed time."""
        return _largest(self.shares("decode"))

    def shares(self, phase: str) -> dict[str, float]:
        """Seconds of a phase by what they are spent on: the prefill of a request, or one decode step.

        All stages count; what those that read different chunks of a prompt at once have in common is a negative
        `overlap`.
        """
        spent = dict.fromkeys(("compute", "bandwidth", "host link", "link", "fixed time"), 0.0)
        for weight, run in self._runs(phase):
            times = (run.compute_s(run.rates), run.memory_s(run.rates), run.host_s(run.rates))
            for seconds in zip(*times, strict=True):
                spent[_binding(*seconds)] += weight * max(seconds)
            spent["link"] += weight * sum(exchange.seconds for exchange in run.exchanges)
            spent["fixed time"] += weight * run.fixed_s
        overlaps = phase == "prefill" and chunks_overlap(self.plan)
        spent["overlap"] = min(0.0, self.ttft_s - sum(spent.values())) if overlaps else 0.0
        return spent

    @cached_property
    def ridge_batch(self) -> int | None:
        """The fewest resident sequences with which the arithmetic of a decode step takes as long as its traffic.

        None where one more sequence always brings more traffic than arithmetic. Ragged sequences count with their mean
        length.
        """
        equal = {"lengths": None, "context": None, "isl": round(self.isl), "osl": self.osl}
        plan = self.plan.changed(**equal, sequences=word("sequences"))
        compute: Any = 0
        memory: Any = 0
        for _, run in _chosen(runs(plan).decode):
            compute = compute + sum(run.compute_s(run.rates))
            memory = memory + sum(run.memory_s(run.rates))

        def bound(sequences: int) -> bool:
            return bool(evaluate(compute, {"sequences": sequences}) >= evaluate(memory, {"sequences": sequences}))

        if not bound(MOST_SEQUENCES):
            return None
        low, high = 0, 1
        while not bound(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if bound(middle) else (middle, high)
        return high

    @property
    def joules_per_output_token(self) -> float | None:
        """Energy of all accelerators at their rated power; None where that is not known."""
        power = self.plan.device.power_w
        return None if power is None else float(power * self.accelerators / self.output_tok_s)

    @property
    def assumed(self) -> dict[str, Any]:
        """What the answer rests on and the user did not say."""
        said = self.plan.workload
        follows = {"isl"} if said.context is not None else {"isl", "sequences"} if said.lengths is not None else set()
        rests_on = (*RESTS_ON, *compute_fractions(self.plan))
        return self.plan.assumed(*(name for name in rests_on if name not in follows))

    @property
    def products(self) -> DataFrame:
        """A row for each product of each stage, in the prefill of a request and in one decode step."""
        columns = ("flops", "bytes", "host_bytes", "compute_s", "memory_s", "host_s", "seconds")
        rows: dict[tuple[str, ...], list[float]] = {}
        for phase in ("prefill", "decode"):
            for weight, run in self._runs(phase):
                times = (run.compute_s(run.rates), run.memory_s(run.rates), run.host_s(run.rates), run.products_s)
                for w, *seconds in zip(run.work, *times, strict=True):
                    key = (phase, run.rank.name, f"{w.part}.{w.product or 'other'}".lstrip("."), w.component, w.format)
                    added = [weight * amount for amount in (w.flops, w.bytes, w.host_bytes, *seconds)]
                    rows[key] = [a + b for a, b in zip(rows.get(key, [0] * 7), added, strict=True)]
        frame = _frame(("phase", "rank", "product", "component", "format"), columns, rows)
        frame["binding"] = list(map(_binding, frame.compute_s, frame.memory_s, frame.host_s))
        return frame

    @property
    def roofs(self) -> DataFrame:
        """A row for each format that its products multiply in: rates of the data sheet and as reached, and the ridges.

        A ridge is where both bind: FLOPs for each byte moved.
        """
        import pandas

        device, reading = self.plan.device, self.plan.assume("bandwidth_fraction")
        used = {
            w.format for phase in ("prefill", "decode") for _, run in self._runs(phase) for w in run.work if w.flops
        }
        formats = [format for format in device.peak_flops if format in used]
        frame = pandas.DataFrame({"format": formats, "peak_flops_per_s": [device.peak(name) for name in formats]})
        reached = [self.plan.assume(compute_fraction(name)) for name in formats]
        frame["reached_flops_per_s"] = frame["peak_flops_per_s"] * reached
        frame["peak_bytes_per_s"] = device.bandwidth_bytes_per_s
        frame["reached_bytes_per_s"] = device.bandwidth_bytes_per_s * reading
        for name in ("peak", "reached"):
            frame[f"{name}_ridge"] = frame[f"{name}_flops_per_s"] / frame[f"{name}_bytes_per_s"]
        return frame

    @property
    def collectives(self) -> DataFrame:
        """A row for each collective of each stage: how many there are, bytes that a rank sends and seconds, of all."""
        rows: dict[tuple[str, ...], list[float]] = {}
        for phase in ("prefill", "decode"):
            for weight, run in self._runs(phase):
                for exchange in run.exchanges:
                    c = exchange.collective
                    key = (phase, run.rank.name, f"{c.path}.{c.id}".lstrip("."), c.kind, str(c.ranks))
                    calls = weight * exchange.calls
                    added = [calls, calls * exchange.bytes, weight * exchange.seconds]
                    rows[key] = [a + b for a, b in zip(rows.get(key, [0] * 3), added, strict=True)]
        return _frame(("phase", "rank", "collective", "kind", "ranks"), ("calls", "bytes", "seconds"), rows)

    def to_frame(self) -> DataFrame:
        """A row for each figure: figure, unit, estimate, floor."""
        import pandas

        rows = [(name, unit, getattr(self, name), getattr(self.floor, name)) for name, unit in UNITS.items()]
        return pandas.DataFrame(rows, columns=["figure", "unit", "estimate", "floor"])

    def explain(self) -> str:
        """What the times of both phases add up from, and every assumption with its meaning and source."""
        lines = [repr(self), "", "how"]
        for phase in ("prefill", "decode"):
            done = [(weight * w.flops, weight * w.bytes) for weight, run in self._runs(phase) for w in run.work]
            flops, moved = show(sum(f for f, _ in done), "FLOP"), show(sum(b for _, b in done), "B")
            shares = {what: s for what, s in self.shares(phase).items() if s}
            spent = ", ".join(f"{what} {_seconds(s, max(shares.values()))}" for what, s in shares.items())
            lines.append(f"  {phase}: {flops} and {moved} on one rank of each stage; {spent}")
        return "\n".join([*lines, *explained(self.assumed)])

    def plot(self, **options: Any) -> Any:
        """A Plotly figure: every product under its roofs, or a `phase` over its floor (`planner.figures.results`)."""
        from planner import plot  # the face knows where; the figures lie above

        return plot(self, **options)

    def __repr__(self) -> str:
        rows = [f"  {name:<30}{estimate:>12}{floor:>14}" for name, estimate, floor in self._lines]
        return "\n".join([self._title, *rows, *(f"  {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{a}</td><td>{b}</td><td>{c}</td></tr>" for a, b, c in self._lines)
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self.notes)
        return f"<table><caption>{html.escape(self._title)}</caption>{rows}</table>{notes}"

    @property
    def _title(self) -> str:
        plan = self.plan
        load = f"{plan.sequences:,} at once, {self.isl:,.0f} tokens in, {self.osl:,} out"
        return f"{plan.model.name} on {plan.layout.accelerators} x {plan.device.name}, {plan.layout}: {load}"

    @property
    def _lines(self) -> Iterator[tuple[str, str, str]]:
        yield "", "estimate", "floor"
        for name in ("ttft_s", "tpot_s", "request_s"):
            own, floor = getattr(self, name), getattr(self.floor, name)
            yield name.removesuffix("_s"), _seconds(own, own), _seconds(floor, own)
        for name in ("output_tok_s_per_user", "output_tok_s_per_accelerator", "output_tok_s"):
            yield name, f"{getattr(self, name):,.1f}", f"{getattr(self.floor, name):,.1f}"
        yield "binds (prefill, decode)", self.binding_prefill, self.binding_decode

    def _runs(self, phase: str) -> Iterator[tuple[float, Run]]:
        """The fastest runs of a phase with their weights: of one prompt, or of one decode step."""
        prompts = len(self.plan.workload.lengths or (1,))
        each = 1 / prompts if phase == "prefill" else 1 / max(self.osl - 1, 1)
        return ((n * each, run) for n, run in _chosen(getattr(self, phase)))

    def _at_peak(self, phase: str, times: Any) -> float:
        found = [(weight * sum(times(run)), weight * run.seconds) for weight, run in self._runs(phase)]
        return float(sum(ideal for ideal, _ in found) / sum(real for _, real in found))


def estimate(model: Any, **keywords: Any) -> Estimate:
    """TTFT, TPOT and throughput: `model` is what `load` takes, or a `Plan`; keywords are those of a plan.

    The commonest are accelerator, count, tp, weights, kv, isl, osl, sequences (of all replicas together), lengths
    (ragged prompts, from which the decode steps start), chunk and cached_prefix. Raises `UsageError` or `InputError`
    with the field and its rule: without an accelerator, with a link or a peak that is not known.

    >>> answer = estimate("llama-3.1-8b", accelerator="h100-sxm", isl=2048, osl=2)
    >>> round(1e3 * answer.floor.ttft_s, 1), round(1e3 * answer.floor.tpot_s, 2)
    (30.0, 4.56)
    """
    plan = as_plan(model, **keywords)
    phases = runs(plan)
    floor, times = timed(plan, phases)
    figures = {name: getattr(times, name) for name in Timing.__dataclass_fields__}
    notes = tuple(_notes(plan, [run for _, run in _chosen(phases.decode)]))
    return Estimate(**figures, plan=plan, floor=floor, prefill=phases.prefill, decode=phases.decode, notes=notes)


def _notes(plan: Plan, decode: list[Run]) -> Iterator[str]:
    """What the times leave out or take for granted, where it matters."""
    yield from position_notes(plan)
    found: dict[str, str] = {}
    for run in decode:
        found |= unpacked(plan, run.rank)
    for stored, format in found.items():
        yield f"{plan.device.name} unpacks {stored} weights and multiplies them in {format}"
    exchanged = (c for run in decode for c in run.rank.collectives)
    if any(plan.device.route(reach(plan.layout, c)) == "host_bytes_per_s" for c in exchanged):
        machine = f"a machine of {plan.device.group_size}"
        yield f"no link joins all ranks: {plan.device.name} exchanges over PCIe, in {machine}"
    if plan.sequences < plan.layout.dp:
        yield f"{plan.layout.dp - plan.sequences:,} of {plan.layout.dp:,} replicas have no sequence"
    if plan.moe:
        yield "tokens are taken to choose their experts evenly"
    held = plan.holders
    if over_host(plan):
        yield "what is offloaded is read over the host link in every pass, while the rest is computed"
    left_out = [name for name in ("draft", "adapters", "mtp") if getattr(held, name)]
    if left_out:
        yield f"{' and '.join(left_out)} take memory in this plan, but no time is counted for them"


def _chosen(stages: Stages) -> Iterator[tuple[int, Run]]:
    for batches in stages:
        for n, choices in batches:
            yield n, choices[0] if len(choices) == 1 else min(choices, key=lambda run: run.seconds)


def _binding(compute: float, memory: float, host: float) -> str:
    """What a product waits for."""
    if host > max(compute, memory):
        return "host link"
    return "compute" if compute > memory else "bandwidth"


def _largest(spent: dict[str, float]) -> str:
    return max(spent, key=lambda what: spent[what])


def _frame(keys: tuple[str, ...], columns: tuple[str, ...], rows: dict[tuple[str, ...], list[float]]) -> DataFrame:
    import pandas

    frame = pandas.DataFrame([(*key, *values) for key, values in rows.items()], columns=[*keys, *columns])
    units = {"flops": "FLOP", "bytes": "B", "host_bytes": "B"}
    units |= dict.fromkeys(("compute_s", "memory_s", "host_s", "seconds"), "s")
    frame.attrs["units"] = {name: unit for name, unit in units.items() if name in frame}
    return frame


def _seconds(value: float, beside: float) -> str:
    """A time in the unit that suits the one `beside` it, so that a line compares at a glance."""
    return f"{value:,.2f} s" if beside >= 10 else f"{1e3 * value:,.2f} ms"
