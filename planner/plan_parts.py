"""The parts of a plan that its user says: workload, holders of memory, prices and conventions, beside the layout."""

from __future__ import annotations

from typing import Any, Literal

from planner.parallel import Layout
from planner.spec import Count, Extent, Scale, Spec, spec

# Shares of a card to wafers, in USD and years: what lies outside is another unit, and would make figures of 0 or inf.
PRICE_BOUNDS = {
    "usd_per_hour": (1e-6, 1e6),
    "purchase_usd": (1e-3, 1e9),
    "amortisation_years": (1e-3, 1e3),
    "usd_per_kwh": (1e-6, 1e3),
}

Engine = Literal["none", "vllm", "sglang", "tensorrt-llm", "llama.cpp"]


@spec
class Workload(Spec):
    """The load of all replicas together.

    Resident: `sequences` of `context` cached positions each, or of the ragged `lengths`. Requests: `isl` tokens in, of
    which `cached_prefix` are cached already, and `osl` tokens out; a prompt is read in passes of `chunk` tokens. A
    request ends at isl + osl - 1 positions: whichever of context and request is not given follows from the other.
    """

    sequences: Count | None = None
    context: Extent | None = None
    lengths: tuple[Extent, ...] | None = None
    isl: Count | None = None
    osl: Count | None = None
    cached_prefix: Extent = 0
    chunk: Count | None = None

    def rules(self) -> Any:
        if self.context is not None and self.isl is not None:
            if self.osl is None:
                yield self.isl <= self.context, "isl = {isl} does not fit context = {context}"
            else:
                yield (
                    self.isl + self.osl - 1 <= self.context,
                    "isl = {isl} and osl = {osl} do not fit context = {context}",
                )
        yield (
            self.lengths is None or (self.context is None and self.isl is None and self.sequences is None),
            "lengths say themselves what context, isl and sequences say; leave those out",
        )
        yield self.isl is None or self.cached_prefix < self.isl, "cached_prefix = {cached_prefix} leaves nothing of isl"


@spec
class Holders(Spec):
    """What else takes device memory, each by its name.

    `mtp` keeps the multi-token-prediction layers; `draft` is the preset of a draft model, with a cache of its own;
    `beams` sequences are kept for each one asked for; `shared_prefix` positions are the same in all sequences and kept
    once; `adapters` low-rank adapters of `adapter_rank` lie beside every matrix; `other_bytes` belong to something else
    on the device; `offloaded_weights` and `offloaded_cache` are shares that lie in the host's memory.
    """

    mtp: bool = False
    draft: str | None = None
    beams: Count = 1
    shared_prefix: Extent = 0
    adapters: Extent = 0
    adapter_rank: Count = 16
    other_bytes: Extent = 0
    offloaded_weights: float = 0.0
    offloaded_cache: float = 0.0

    def rules(self) -> Any:
        for name in ("offloaded_weights", "offloaded_cache"):
            yield 0 <= getattr(self, name) <= 1, f"{name} = {{{name}}} is not a share from 0 to 1"


@spec
class Prices(Spec):
    """What an accelerator costs: rent by the hour, or purchase, power and years of use.

    Without `usd_per_hour` and `purchase_usd` the lowest price listed by `as_of` (a date) is looked up.
    """

    usd_per_hour: Scale | None = None
    basis: Literal["on_demand", "reserved", "spot"] = "on_demand"
    provider: str | None = None
    as_of: str | None = None
    purchase_usd: Scale | None = None
    amortisation_years: Scale | None = None
    usd_per_kwh: Scale | None = None

    def rules(self) -> Any:
        for name, (low, high) in PRICE_BOUNDS.items():
            value = getattr(self, name)
            sentence = f"{name} = {{{name}}} is not from {low:g} to {high:,.0f}; is it in USD, of one accelerator?"
            yield value is None or value >= low, sentence
            yield value is None or value <= high, sentence


@spec
class Conventions(Spec):
    """How the work of a pass is counted where papers and programs differ, as `planner.bill.Pass` says.

    `logits` are those of the last position of a prompt or of all. `mla` ``auto``: latent attention is expanded where
    nothing is cached, absorbed in a decode step, and elsewhere whichever of absorbed and reexpanded is faster.
    """

    attention: Literal["causal", "square"] = "causal"
    logits: Literal["last", "all"] = "last"
    mla: Literal["auto", "expanded", "absorbed", "reexpanded"] = "auto"


PARTS: dict[str, type[Spec]] = {
    "workload": Workload,
    "layout": Layout,
    "holders": Holders,
    "prices": Prices,
    "conventions": Conventions,
}
