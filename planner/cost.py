"""What a plan costs: an hour of its accelerators, a million tokens of each class, a request, a user's month.

Prefill and decode are priced by the time that each takes on a replica: the input pays for the pass that reads it, the
output for its share of the decode steps. Every figure stands on two bases. *Used* prices the tokens as if the replica
worked at the planned load in every paid hour; *reserved* divides by `utilisation`, since an idle hour is paid for, too;
the difference is the idle share, and it is shown apart.

The arithmetic is generic: the numbers of a plan may be words, and the figures compile to columns.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from planner.errors import InputError, UsageError
from planner.phases import Timing, estimated
from planner.plan import Plan, as_plan, explained
from planner.pricing import api_prices, hour_price
from planner.textbook.cost import break_even_requests, fleet_usd, owned_usd_per_hour, usd_per_mtok
from planner.timing import compute_fractions

if TYPE_CHECKING:
    from pandas import DataFrame

HOURS_PER_DAY = 24
SECONDS_PER_HOUR = 3600
STEPS = 200  # of a growing fleet's cost; more of them look like a line

UNITS = {
    "usd_per_accelerator_hour": "USD/h",
    "replica_usd_per_hour": "USD/h",
    "fleet_usd_per_hour": "USD/h",
    "fleet_usd_per_day": "USD",
    "fleet_usd_per_month": "USD",
    "usd_per_request": "USD",
    "usd_per_mtok_input": "USD",
    "usd_per_mtok_cached_input": "USD",
    "usd_per_mtok_output": "USD",
    "usd_per_mtok_blended": "USD",
    "usd_per_mtok_blended_reserved": "USD",
    "usd_per_user_month": "USD",
    "idle_usd_per_month": "USD",
    "requests_per_month": "1",
}


@dataclass(frozen=True, slots=True)
class HourPrice:
    """What an hour of an accelerator costs, and how that is known."""

    usd: Any
    provenance: str
    source: str


def hour_price_of(plan: Plan) -> HourPrice:
    """The rent that the plan states, else the cost of owning, else the lowest listed rent.

    Raises `UsageError` where a purchase lacks a figure of the plan, `InputError` where it lacks one of the accelerator
    or no price is known: unknown is never 0.
    """
    said = plan.prices
    if said.usd_per_hour is not None:
        return HourPrice(said.usd_per_hour, "given", "the plan")
    if said.purchase_usd is not None:
        power = plan.device.power_w
        missing = [name for name in ("amortisation_years", "usd_per_kwh") if getattr(said, name) is None]
        if missing:
            raise UsageError(f"purchase_usd = {said.purchase_usd} needs {' and '.join(missing)}")
        if power is None:
            name = plan.device.name
            raise InputError(f"purchase_usd = {said.purchase_usd} needs power_w of {name}, which is not known")
        pue = plan.assume("pue")
        owned = owned_usd_per_hour(said.purchase_usd, said.amortisation_years, power, pue, said.usd_per_kwh)
        return HourPrice(owned, "given", "purchase, power and years of the plan")
    listed = hour_price(plan.device.name, said.as_of, said.basis, said.provider)
    return HourPrice(listed.usd_per_hour, "listed", f"{listed.provider}, {listed.basis}, {listed.date.isoformat()}")


def paid_usd_per_hour(plan: Plan, timing: Timing, hour: Any) -> Any:
    """USD/h that the tokens of one replica pay for: its accelerators, and the seats that others leave empty.

    With 9 sequences on 8 replicas the busiest has 2, and the fleet gives what 4.5 such replicas give.
    """
    layout = plan.layout
    replica = hour * layout.tp * layout.pp
    return replica if layout.dp == 1 else replica * layout.dp * timing.sequences / timing.all_sequences


def figures(plan: Plan, timing: Timing, hour: Any) -> dict[str, Any]:
    """Figure -> value, from the plan's estimated `timing` and USD of an `hour`, in the order in which they are shown.

    A cached input token costs what its presence adds to the pass that reads the rest of the prompt; with nothing cached
    it has no price.
    """
    layout, cached = plan.layout, plan.workload.cached_prefix
    isl, osl = timing.isl, timing.osl
    paid = paid_usd_per_hour(plan, timing, hour)
    decode_s = timing.decode_s / timing.sequences
    request_s = timing.prefill_s + decode_s
    used, month = plan.assume("utilisation"), HOURS_PER_DAY * plan.assume("days_per_month")
    monthly = fleet_usd(layout.accelerators, hour, month)
    per_request = paid * request_s / SECONDS_PER_HOUR
    blended = usd_per_mtok(paid, request_s, isl + osl)
    alone_s = timing.prefill_s
    cached_price: Any = None
    if not (isinstance(cached, int) and cached == 0):
        alone_s = estimated(plan.changed(isl=isl - cached, cached_prefix=0, context=None)).prefill_s
        cached_price = usd_per_mtok(paid, timing.prefill_s - alone_s, cached)
    return {
        "usd_per_accelerator_hour": hour,
        "replica_usd_per_hour": hour * layout.tp * layout.pp,
        "fleet_usd_per_hour": hour * layout.accelerators,
        "fleet_usd_per_day": fleet_usd(layout.accelerators, hour, HOURS_PER_DAY),
        "fleet_usd_per_month": monthly,
        "usd_per_request": per_request,
        "usd_per_mtok_input": usd_per_mtok(paid, alone_s, isl - cached),
        "usd_per_mtok_cached_input": cached_price,
        "usd_per_mtok_output": usd_per_mtok(paid, decode_s, osl),
        "usd_per_mtok_blended": blended,
        "usd_per_mtok_blended_reserved": blended / used,
        "usd_per_user_month": per_request * plan.assume("requests_per_user_day") * plan.assume("days_per_month") / used,
        "idle_usd_per_month": monthly * (1 - used),
        "requests_per_month": month * SECONDS_PER_HOUR * used * timing.output_tok_s / osl,
    }


@dataclass(frozen=True)
class ApiCost:
    """The same requests at an API: its prices by token class, and the volume beyond which the fleet is cheaper.

    `model_id` is the provider's own name: one may sell a model twice, such as a faster one for more. `reachable` says
    whether the fleet can serve that many requests in a month.
    """

    model: str
    provider: str
    model_id: str
    date: str
    usd_per_mtok: Mapping[str, float]
    usd_per_request: float
    break_even_requests_per_month: float
    reachable: bool


def against_api(
    plan: Plan,
    own: Mapping[str, Any],
    model: str,
    provider: str | None = None,
    given: Mapping[str, float] | None = None,
) -> ApiCost:
    """What the plan's requests cost at an API, and where the fleet's month, one of the plan's `own` figures, is less.

    Of several offers of the model, by several providers or by one, the one that asks the least for a request counts.
    `given` prices of token classes stand in the place of listed ones. Raises `UnknownName` for a model that no price is
    known of, `InputError` where a token class has none, `UsageError` for a given price that is none.
    """
    given = given or {}
    for name, usd in given.items():
        if not 0 < usd < math.inf:
            raise UsageError(f"{name} = {usd} USD per million tokens is no price; state a number above 0")
    offered = api_prices(as_of=plan.prices.as_of, model=model, provider=provider)
    offered = offered[offered["above_tokens"] <= plan.isl].sort_values("above_tokens", kind="stable")
    offers = dict(list(offered.groupby(["provider", "model_id"])))
    prices = {name: offer.set_index("token_class")["usd_per_mtok"].to_dict() | given for name, offer in offers.items()}
    complete = {name: classes for name, classes in prices.items() if {"input", "output"} <= classes.keys()}
    if not complete:
        raise InputError(f"{model} has no API price of both input and output; name another (planner prices --api)")
    cached = plan.workload.cached_prefix
    asked = {name: _api_usd(classes, plan.isl, cached, plan.osl) for name, classes in complete.items()}
    chosen = min(asked, key=lambda name: asked[name])
    volume = break_even_requests(own["fleet_usd_per_month"], asked[chosen])
    return ApiCost(
        model=model,
        provider=chosen[0],
        model_id=chosen[1],
        date=str(offers[chosen]["date"].max()),
        usd_per_mtok=complete[chosen],
        usd_per_request=asked[chosen],
        break_even_requests_per_month=volume,
        reachable=bool(volume <= own["requests_per_month"]),
    )


def _api_usd(classes: Mapping[str, float], isl: Any, cached: Any, osl: Any) -> Any:
    """One request at an API; cached input at its own price where there is one, else as input."""
    rate = classes.get("cached_input", classes["input"])
    return ((isl - cached) * classes["input"] + cached * rate + osl * classes["output"]) / 1_000_000


@dataclass(frozen=True)
class Cost:
    """The answer of `cost`. Attributes are the names of `UNITS`; `hour` says where the price of an hour comes from."""

    plan: Plan
    hour: HourPrice
    figures: Mapping[str, float] = field(repr=False)
    api: ApiCost | None = None

    def __getattr__(self, name: str) -> Any:
        if name in UNITS:
            return self.figures[name]
        raise AttributeError(name)

    @property
    def assumed(self) -> dict[str, Any]:
        """What the answer rests on and the user did not say."""
        return self.plan.assumed(*RESTS_ON, *compute_fractions(self.plan))

    def to_frame(self) -> DataFrame:
        """A row for each figure: figure, value, unit."""
        import pandas

        rows = [(name, value, UNITS[name]) for name, value in self.figures.items() if value is not None]
        return pandas.DataFrame(rows, columns=["figure", "value", "unit"])

    def over_requests(self, least: float, most: float) -> DataFrame:
        """The corners of what a month costs from `least` to `most` requests: requests, replicas, fleet_usd, api_usd.

        Beyond the month's capacity of the planned fleet each further replica is paid for whole; of more than `STEPS`
        some are passed over. Without an API its column is NaN.
        """
        import pandas

        planned, capacity, usd = self.plan.layout.dp, self.requests_per_month, self.fleet_usd_per_month
        first, last = (max(planned, math.ceil(planned * requests / capacity)) for requests in (least, most))
        corners = [(least, first)]
        for n in range(first, last, max(1, (last - first) // STEPS)):
            full = capacity * n / planned
            corners += [(full, n), (full, n + 1)]
        corners.append((most, last))
        api = math.nan if self.api is None else self.api.usd_per_request
        return pandas.DataFrame(
            {
                "requests": [requests for requests, _ in corners],
                "replicas": [replicas for _, replicas in corners],
                "fleet_usd": [usd * replicas / planned for _, replicas in corners],
                "api_usd": [api * requests for requests, _ in corners],
            }
        )

    def explain(self) -> str:
        """How the price of a token follows from an hour and from seconds, and every assumption with its source."""
        timing = estimated(self.plan)
        decode_s = timing.decode_s / timing.sequences
        paid = paid_usd_per_hour(self.plan, timing, self.hour.usd)
        lines = [repr(self), "", "how"]
        for name, seconds, tokens in (
            ("output", decode_s, timing.osl),
            ("blended", timing.prefill_s + decode_s, timing.isl + timing.osl),
        ):
            said = {"usd_per_hour": paid, "seconds": seconds, "tokens": tokens}
            lines += [f"usd_per_mtok_{name}", *(f"  {line}" for line in str(usd_per_mtok.explain(said)).splitlines())]
        return "\n".join([*lines, *explained(self.assumed)])

    def plot(self, **options: Any) -> Any:
        """A Plotly figure: a month over its requests, against the API that was named (`planner.figures.results`)."""
        from planner import plot  # the face knows where; the figures lie above

        return plot(self, **options)

    def __repr__(self) -> str:
        head = f"{self.plan.model.name} on {self.plan.layout.accelerators} x {self.plan.device.name}"
        lines = [f"{head}: {self.hour.usd:,.4g} USD per accelerator-hour ({self.hour.provenance}: {self.hour.source})"]
        lines += [f"  {name:<32}{_amount(value):>18}" for name, value in self.figures.items() if value is not None]
        replicas, sequences = self.plan.layout.dp, self.plan.sequences
        if sequences % replicas:
            lines.append(f"  {replicas:,} replicas share {sequences:,} sequences: what stays empty is paid for, too")
        if self.api is not None:
            api, able = self.api, "within" if self.api.reachable else "beyond"
            name, usd = api.model_id or api.model, api.usd_per_request
            lines.append(f"  {name} at {api.provider} ({api.date}): {usd:,.4g} USD per request")
            lines.append(
                f"  the fleet is cheaper from {api.break_even_requests_per_month:,.0f} requests a month, "
                f"which is {able} what it can serve"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


RESTS_ON = (
    "weights kv utilisation days_per_month requests_per_user_day basis isl osl sequences prefill_tokens "
    "bandwidth_fraction link_fraction collective_latency_s seconds_per_layer"
).split()


def cost(model: Any, *, api: str | None = None, api_provider: str | None = None, **keywords: Any) -> Cost:
    """What a plan costs: `model` is what `load` takes, or a `Plan`; keywords are those of a plan.

    `api` names a model of the price list (``planner prices --api``) to hold the plan's requests against. Raises
    `UsageError` or `InputError` with the field and its rule; an unknown price is refused, never 0.

    >>> answer = cost("llama-3.1-8b", accelerator="h100-sxm", isl=2048, osl=256, sequences=64, usd_per_hour=2.0)
    >>> round(answer.usd_per_mtok_output, 3), round(answer.fleet_usd_per_day)
    (0.111, 48)
    """
    plan = as_plan(model, **keywords)
    timing, hour = estimated(plan), hour_price_of(plan)
    own = figures(plan, timing, hour.usd)
    return Cost(plan, hour, own, None if api is None else against_api(plan, own, api, api_provider))


def _amount(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:,.6g}"
