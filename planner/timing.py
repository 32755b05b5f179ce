"""From work to seconds: the floor of a pass, which no program can go below, and the estimate with its fractions.

* **floor** of a pass on a rank = max(sum of FLOPs / peak, sum of bytes / bandwidth): everything overlaps, no fraction,
  no overhead, nothing between ranks, no more experts than one token chooses. What is offloaded is read beside the
  rest, over a link of its own: a third sum, of host bytes / host link.
* **estimate** = the sum over products of the larger of FLOPs / (peak x fraction) and bytes / (bandwidth x fraction), or
  of host bytes / (host link x fraction), one product after another, with the experts that so many tokens choose; the
  collectives, latency + size / (link x fraction); and a fixed time for each layer.

So no estimate is below its floor. A token goes through all stages of a pipeline; the resident sequences are dealt out
over the stages, one group on each at a time, and a step lasts as long as a group's way through all stages, or as the
slowest stage needs for all groups (assumed: stages do not wait for each other otherwise).

The numbers of a load, of `Rates` and of the assumptions may be words that compile to columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

from planner.arithmetic import Value, maximum, minimum
from planner.collectives import Collective
from planner.errors import InputError
from planner.parallel import Layout, Rank
from planner.plan import Plan
from planner.storage import find
from planner.traffic import Batch, Work, compute_bases, over_host, work

ROUTES = ("link_bytes_per_s", "peer_bytes_per_s", "host_bytes_per_s", "network_bytes_per_s")
"""What carries an exchange; `Accelerator.route` says which, and among few devices their links as peers bind."""

FRACTIONS = {
    **dict.fromkeys(("fp8", "int8", "mxfp6"), "fp8_compute_fraction"),
    **dict.fromkeys(("nvfp4", "mxfp4", "int4"), "fp4_compute_fraction"),
}
"""Narrow compute format -> the assumption that says which share of its peak is reached."""


def compute_fraction(format: str) -> str:
    """The assumption that says which share of the peak of a compute format is reached."""
    return FRACTIONS.get(format, "compute_fraction")


def compute_fractions(plan: Plan) -> list[str]:
    """The assumptions about shares of peaks that a plan's products rest on."""
    return list(dict.fromkeys(compute_fraction(plan.device.compute_format(basis)) for basis in compute_bases(plan)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a rank reaches. `s_per_flop` is by compute format, `s_per_sent_byte` by route, as far as one is known."""

    s_per_flop: Mapping[str, Any]
    s_per_byte: Any
    s_per_sent_byte: Mapping[str, Any] = field(default_factory=dict)
    collective_latency_s: Any = 0
    seconds_per_layer: Any = 0

    @classmethod
    def peak(cls, plan: Plan) -> Rates:
        """The rates of the data sheet."""
        device = plan.device
        return cls(
            s_per_flop={format: 1 / peak for format, peak in device.peak_flops.items()},
            s_per_byte=1 / device.bandwidth_bytes_per_s,
            s_per_sent_byte={name: 1 / rate for name in ROUTES if (rate := getattr(device, name)) is not None},
        )

    def reached(self, plan: Plan) -> Rates:
        """These rates times the fractions that the plan assumes, and its fixed times."""
        link = plan.assume("link_fraction")
        return Rates(
            s_per_flop={format: s / plan.assume(compute_fraction(format)) for format, s in self.s_per_flop.items()},
            s_per_byte=self.s_per_byte / plan.assume("bandwidth_fraction"),
            s_per_sent_byte={name: s / link for name, s in self.s_per_sent_byte.items()},
            collective_latency_s=plan.assume("collective_latency_s"),
            seconds_per_layer=plan.assume("seconds_per_layer"),
        )


@dataclass(frozen=True, slots=True)
class Exchange:
    """One kind of collective of a batch: how many there are, bytes of each that a rank sends, seconds of all."""

    collective: Collective
    calls: Any
    bytes: Any
    seconds: Any


@dataclass(frozen=True)
class Run:
    """What a batch takes on one rank, at given rates; `peak` are those of the data sheet."""

    plan: Plan
    rank: Rank
    batch: Batch
    mla: str
    peak: Rates
    rates: Rates

    @cached_property
    def work(self) -> tuple[Work, ...]:
        """The products, one after another."""
        return work(self.plan, self.rank, self.batch, self.mla)

    def compute_s(self, rates: Rates) -> list[Value]:
        """Seconds of arithmetic of each product."""
        return [w.flops * rates.s_per_flop[w.format] for w in self.work]

    def memory_s(self, rates: Rates, *, least: bool = False) -> list[Value]:
        """Seconds of reading and writing of each product."""
        return [(w.least_bytes if least else w.bytes) * rates.s_per_byte for w in self.work]

    def host_s(self, rates: Rates, *, least: bool = False) -> list[Value]:
        """Seconds of what each product reads from the host's memory."""
        if not over_host(self.plan):
            return [0] * len(self.work)
        if "host_bytes_per_s" not in rates.s_per_sent_byte:
            name = self.plan.device.name
            raise InputError(
                f"{name}: host_bytes_per_s is not known, and what is offloaded comes over that link; state it in a "
                f'file with base = "{name}"'
            )
        s_per_byte = rates.s_per_sent_byte["host_bytes_per_s"]
        return [(w.least_host_bytes if least else w.host_bytes) * s_per_byte for w in self.work]

    @cached_property
    def products_s(self) -> list[Value]:
        """Estimated seconds of each product; where there is nothing to multiply, those of reading."""
        both = zip(self.work, self.compute_s(self.rates), self.memory_s(self.rates), strict=True)
        found = [memory if w.product is None else maximum(compute, memory) for w, compute, memory in both]
        return list(map(maximum, found, self.host_s(self.rates))) if over_host(self.plan) else found

    @cached_property
    def exchanges(self) -> list[Exchange]:
        """The collectives."""
        return list(_exchanges(self.plan, self.rank, self.batch, self.mla, self.rates))

    @cached_property
    def fixed_s(self) -> Value:
        """Fixed times of the layers."""
        first, last = self.rank.layers
        return (last - first + 1) * self.batch.passes * self.rates.seconds_per_layer

    @cached_property
    def arithmetic_s(self) -> Value:
        """All arithmetic at the peak."""
        return sum(self.compute_s(self.peak))

    @cached_property
    def floor_s(self) -> Value:
        """No program takes less."""
        floor = maximum(self.arithmetic_s, sum(self.memory_s(self.peak, least=True)))
        return maximum(floor, sum(self.host_s(self.peak, least=True))) if over_host(self.plan) else floor

    @cached_property
    def seconds(self) -> Value:
        """The estimate."""
        return sum(self.products_s) + sum(exchange.seconds for exchange in self.exchanges) + self.fixed_s


def _exchanges(plan: Plan, rank: Rank, batch: Batch, mla: str, rates: Rates) -> Iterator[Exchange]:
    elem_bytes = find(plan.model.activations).bits // 8
    for collective in (c for c in rank.collectives if c.form in (None, mla)):
        n, members = collective.ranks, batch.mixer_members if collective.own else batch.members
        positions = batch.tokens(members)
        calls = batch.passes * collective.count
        if collective.domain == "emitted":
            positions = batch.emitted * sum(sequences for sequences, _ in members)
            calls = calls * minimum(batch.emitted, 1)
        others = (n - 1) / n  # a ring passes on what belongs to all others
        sent = {"all_reduce": 2 * others, "send": 1}.get(collective.kind, others)
        elements = collective.elements
        if collective.kind == "all_to_all" and (domains := plan.device.domains(n)) > 1:  # one copy to each of them
            elements = minimum(elements, Fraction(domains, n) * plan.model.d_model)
        size = sent * elements * elem_bytes * positions
        seconds = calls * (rates.collective_latency_s + size * _link(plan, collective, rates))
        yield Exchange(collective, calls, size, seconds)


def _link(plan: Plan, collective: Collective, rates: Rates) -> Value:
    """Seconds for each byte that a rank sends in a collective, on the route that joins all of its ranks.

    Without a switch, links to devices that take no part lie idle: two MI300X have a seventh of what eight have (47.7
    against 312.9 GB/s measured; stas00/ml-engineering, network/README.md).
    """
    device, reached = plan.device, reach(plan.layout, collective)
    route = device.route(reached)
    if route not in rates.s_per_sent_byte:
        raise InputError(
            f"{device.name}: {route} is not known, and {reached} of them exchange data in {plan.layout}; state it, or "
            f'link_bytes_per_s with its domain_size, in a file with base = "{device.name}"'
        )
    if route == "link_bytes_per_s":
        to_peers = rates.s_per_sent_byte["peer_bytes_per_s"] / (collective.ranks - 1)
        return maximum(rates.s_per_sent_byte[route], to_peers)
    return rates.s_per_sent_byte[route]


def reach(layout: Layout, collective: Collective) -> int:
    """Devices that must be joined for a collective: a stage's next neighbour may stand at the replica's other end."""
    return layout.tp * layout.pp if collective.kind == "send" else collective.ranks
