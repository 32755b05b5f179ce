"""Commands that answer for hardware: fit, estimate, cost, size."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from planner.commands.options import (
    MODEL,
    Commands,
    count,
    edit_option,
    edited,
    emit,
    note,
    online_option,
    pair,
    read_model,
    say,
)
from planner.errors import UnknownName, UsageError
from planner.units import show

if TYPE_CHECKING:
    from pandas import DataFrame

    from planner.plan import Plan


def register(commands: Commands) -> None:
    """Add the commands of this module."""
    on = "llama-3.1-70b --accelerator h100-sxm --count 4"
    sub = commands.add(
        "fit",
        fit,
        "Whether a decoder fits on accelerators, what binds, and what would help. Exit status 1 if it does not.",
        f"{on} --context 32Ki --sequences 8",
        explained=True,
    )
    plan_options(sub)
    sub.add_argument("--terms", action="store_true", help="the ladder of every rank instead of one row")

    sub = commands.add(
        "estimate",
        estimate,
        "How fast: the physical floor and the estimate with its assumptions.",
        f"{on} --isl 4k --osl 512 --sequences 8",
        explained=True,
    )
    plan_options(sub)
    sub.add_argument("--products", action="store_true", help="a row for each product of each phase instead")

    sub = commands.add(
        "cost",
        cost,
        "What a token, a request and a month cost, against an API too.",
        f"{on} --isl 4k --osl 512 --sequences 8 --usd-per-hour 2.50",
        explained=True,
    )
    plan_options(sub)
    sub.add_argument(
        "--api", metavar="MODEL", help="hold the requests against this model's API price (planner prices --api)"
    )
    sub.add_argument("--api-provider", metavar="NAME", help="of this provider (default: the cheapest)")

    sub = commands.add(
        "size",
        size,
        "All legal layouts over the catalogue that carry a load, the cheapest first. Exit status 1 if there is none.",
        "llama-3.1-8b --accelerators l40s,h100-sxm --isl 4k --osl 512 --sequences 64",
    )
    plan_options(sub, without=("accelerator", "count", "tp", "pp", "dp", "attention_dp", "ep", "dcp", "stage_layers"))
    sub.add_argument("--accelerators", metavar="A,B", help="only these (default: all with a known price)")
    sub.add_argument("--replica-sizes", metavar="1,2", help="accelerators of a replica (default 1,2,4,8,16)")
    sub.add_argument("--top", metavar="N", help="only the N cheapest, if any carries the load")


def plan_options(sub: argparse.ArgumentParser, without: Collection[str] = ()) -> None:
    """Every keyword of a plan as an option; a plan file gives what no option says."""
    if "model" not in without:
        sub.add_argument("model", nargs="?", metavar="MODEL", help=MODEL)
    sub.add_argument("--plan", metavar="FILE", help="a plan file (TOML); options stand above it")
    sub.add_argument("--mtp", action="store_true", default=None, help="keep the multi-token-prediction layers")
    sub.add_argument(
        "--assume",
        dest="assumptions",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="replace one of planner assumptions, such as memory_fraction=0.85; may come again",
    )
    edit_option(sub)
    online_option(sub)
    for title, options in OPTIONS.items():
        group = sub.add_argument_group(title)
        for name, (metavar, text) in options.items():
            if name not in without:
                group.add_argument(f"--{name.replace('_', '-')}", dest=name, metavar=metavar, help=text)


OPTIONS = {
    "accelerators and layout": {
        "accelerator": ("NAME", "a name (planner accelerators) or a TOML file"),
        "count": ("N", "accelerators in all: alone, the widest tp; beside tp or pp, as many replicas as that leaves"),
        "tp": ("N", "tensor-parallel ranks of a stage"),
        "pp": ("N", "pipeline stages"),
        "dp": ("N", "replicas"),
        "attention_dp": ("N", "groups inside tp whose mixers have sequences of their own"),
        "ep": ("N", "ranks inside tp that share the experts out whole"),
        "dcp": ("N", "ranks that share the cached positions out"),
        "stage_layers": ("N,N", "layers of each stage, as 20,21,21,18"),
    },
    "formats and engine": {
        "weights": ("FORMAT", "of the weights: see planner formats (default: the contract's)"),
        "kv": ("FORMAT", "of the cache: see planner formats (default: the contract's)"),
        "engine": (
            "NAME",
            "whose defaults are assumed: vllm, sglang, tensorrt-llm, llama.cpp or none (default vllm)",
        ),
    },
    "load (what is left out: see planner assumptions)": {
        "context": ("N", "cached positions of a sequence: 128k = 128,000, 128Ki = 131,072"),
        "sequences": ("N", "resident sequences of all replicas"),
        "lengths": ("N,N", "ragged sequences instead, as 1k,2k,30k"),
        "isl": ("N", "tokens in of a request"),
        "osl": ("N", "tokens out of a request"),
        "cached_prefix": ("N", "tokens of the prompt that are cached already"),
        "chunk": ("N", "tokens of a prompt that one pass reads"),
        "beams": ("N", "sequences kept for each one asked for"),
        "shared_prefix": ("N", "positions that are the same in all sequences and kept once"),
        "attention": ("RULE", "pairs counted: causal or square (default causal)"),
        "logits": ("WHICH", "positions with logits in a prefill: last or all (default last)"),
        "mla": ("HOW", "latent attention: auto, expanded, absorbed or reexpanded (default auto)"),
    },
    "other memory": {
        "draft": ("MODEL", "a draft model that is resident, too"),
        "adapters": ("N", "low-rank adapters that are resident"),
        "adapter_rank": ("N", "their rank (default 16)"),
        "other_bytes": ("SIZE", "bytes that something else holds on each device, such as 2GiB"),
        "offloaded_weights": ("SHARE", "share of the weights that lies in the host's memory, such as 0.25"),
        "offloaded_cache": ("SHARE", "share of the cache that lies in the host's memory, such as 0.25"),
    },
    "prices": {
        "usd_per_hour": ("USD", "rent of one accelerator for an hour"),
        "basis": ("BASIS", "listed prices: on_demand, reserved or spot (default on_demand)"),
        "provider": ("NAME", "whose listed price (default: of those who offer it, the lowest)"),
        "as_of": ("DATE", "prices as they were known on a date, such as 2026-06-01"),
        "purchase_usd": ("USD", "price of buying an accelerator instead"),
        "amortisation_years": ("YEARS", "years over which it is written off"),
        "usd_per_kwh": ("USD", "price of electrical energy"),
    },
}
"""Group of options -> keyword of a plan -> what stands for its value, and what it is."""


def plan_of(args: argparse.Namespace) -> Plan:
    """The plan that the options and the plan file say."""
    from planner.assumptions import assumptions
    from planner.plan import make_plan
    from planner.plan_fields import parse_field
    from planner.plan_file import read_plan

    texts = {name: getattr(args, name, None) for options in OPTIONS.values() for name in options}
    said = {
        name: parse_field(name, text, f"--{name.replace('_', '-')}") for name, text in texts.items() if text is not None
    }
    if args.mtp:
        said["mtp"] = True
    for text in args.assumptions:
        name, value = pair(text, "NAME=VALUE, such as memory_fraction=0.85")
        if name not in assumptions():
            raise UnknownName("assumption", name, assumptions())
        said[name] = parse_field(name, value)
    if args.plan is not None:
        plan = read_plan(args.plan)
        if args.model is not None:
            raise UsageError("a model and a plan file are both given; the file names its model")
        if args.edits:
            said["model"] = edited(plan.model, args.edits)
        return plan.changed(**said) if said else plan
    if args.model is None:
        raise UsageError("no model; name a preset or a file, or give a plan file with --plan")
    return make_plan(edited(read_model(args.model, args.online).architecture, args.edits), **said)


def _say(assumed: dict[str, Any], notes: Iterable[str] = ()) -> dict[str, Any]:
    """What was taken for granted and what else to know, beside the data."""
    say(assumed)
    for line in notes:
        note(line)
    return assumed


def _say_fit(plan: Plan) -> None:
    """Times and prices of what cannot run are worth nothing without this."""
    from planner.memory import fit as ask

    headroom = ask(plan).headroom_bytes
    if headroom is not None and headroom < 0:
        short = show(-headroom, "B", binary=True)
        note(f"this plan does not fit, a rank lacks {short}; planner fit says what would help")


def _row(args: argparse.Namespace, plan: Plan, assumed: dict[str, Any], **more: Any) -> None:
    """The one flat row of a plan, for programs: the same names whichever command is asked."""
    import pandas

    from planner.rows import UNITS, plan_row

    frame = pandas.DataFrame([plan_row(plan) | more])
    frame.attrs["units"] = dict(UNITS)
    emit(args, frame, assumed)


def fit(args: argparse.Namespace) -> int:
    from planner.memory import fit as ask

    answer = ask(plan_of(args))
    assumed = _say(answer.assumed, answer.notes)
    if args.form == "explain":
        print(answer.explain())
    elif args.terms:
        emit(args, answer.to_frame(), assumed)
    elif args.form == "table":
        print(f"{answer}\n  {answer.lever}")
    else:
        found = {name: getattr(answer, name) for name in ("binding", "lever", "longest_context", "most_sequences")}
        _row(args, answer.plan, assumed, fits=answer.fits, **found)
    return 0 if answer.fits else 1


def estimate(args: argparse.Namespace) -> None:
    from planner.speed import estimate as ask

    answer = ask(plan_of(args))
    text = args.form == "explain" or (args.form == "table" and not args.products)
    assumed = _say(answer.assumed, () if text else answer.notes)  # the text has them itself
    _say_fit(answer.plan)
    if args.form == "explain":
        print(answer.explain())
    elif args.products:
        products = answer.products
        alike = [str(name) for name in products if products[name].nunique() == 1]
        emit(args, products, assumed, spare=tuple(dict.fromkeys((*alike, *SPARE))))
    elif args.form == "table":
        print(answer)
    else:
        names = "binding_prefill binding_decode mfu_prefill mbu_decode ridge_batch joules_per_output_token".split()
        _row(args, answer.plan, assumed, **{name: getattr(answer, name) for name in names})


SPARE = ("component", "compute_s", "memory_s", "format")
"""Columns of the products that a terminal goes without, after those that say the same of all."""


def cost(args: argparse.Namespace) -> None:
    from planner.cost import cost as ask

    answer = ask(plan_of(args), api=args.api, api_provider=args.api_provider)
    assumed = _say(answer.assumed)
    _say_fit(answer.plan)
    if args.form == "explain":
        print(answer.explain())
    elif args.form == "table":
        print(answer)
    else:
        more = {} if answer.api is None else {f"api_{name}": getattr(answer.api, name) for name in API}
        _row(args, answer.plan, assumed, **{**answer.figures, "hour_price_source": answer.hour.source, **more})


API = ("model", "provider", "date", "usd_per_request", "break_even_requests_per_month", "reachable")


def size(args: argparse.Namespace) -> int:
    from planner import catalogue, sizing

    plan = plan_of(args)
    top = count(args.top, "--top") if args.top else None
    if top == 0:
        raise UsageError("--top = 0 shows nothing; write 1 or more")
    chosen: dict[str, Any] = {}
    if args.accelerators:
        chosen["accelerators"] = args.accelerators.split(",")
    if args.replica_sizes:
        chosen["replica_sizes"] = [count(part, "--replica-sizes") for part in args.replica_sizes.split(",")]
    frame = sizing.size(plan, **chosen)
    ranked = frame["rank"].notna()
    assumed = _say(sizing.assumed(plan))
    untried = 0 if args.accelerators else len(catalogue.names()) - frame["accelerator"].nunique()
    if untried:
        note(
            f"{untried} accelerators have no {plan.prices.basis} price and were not tried; "
            "--accelerators names them, --usd-per-hour prices them"
        )
    if top is not None and ranked.any():  # else the reasons are the answer
        frame = frame[ranked].head(top)
    _say_prices(plan, frame.head(MOST_CARRIED) if args.form == "table" else frame)
    if args.form == "table":
        _show_ranking(args, frame)
    else:
        emit(args, frame, assumed)
    return 0 if ranked.any() else 1


def _say_prices(plan: Plan, frame: DataFrame) -> None:
    """Whose prices a ranking rests on, as they are of different providers and days."""
    from planner.cost import hour_price_of

    ranked = frame.loc[frame["rank"].notna(), "accelerator"].unique()
    hours = {name: hour_price_of(plan.changed(accelerator=name)) for name in ranked}
    listed = [f"{name} {hour.usd:g} ({hour.source})" for name, hour in hours.items() if hour.provenance == "listed"]
    if listed:
        note(f"listed USD per accelerator-hour: {'; '.join(listed)}")


def _show_ranking(args: argparse.Namespace, frame: DataFrame) -> None:
    """The cheapest layouts, and below them why others are none: first of the accelerators that carry nothing."""
    from planner.parallel import Layout
    from planner.sizing import LAYOUT_FIELDS

    shapes = frame[list(LAYOUT_FIELDS)].itertuples(index=False)
    frame = frame.assign(layout=[str(Layout(**dict(zip(LAYOUT_FIELDS, shape, strict=True)))) for shape in shapes])
    ranked = frame["rank"].notna()
    carried, rejected = frame[ranked], frame[~ranked]
    useful = rejected["accelerator"].isin(carried["accelerator"])
    rejected = rejected.loc[useful.sort_values(kind="stable").index].drop_duplicates("accelerator")
    carried, rejected = carried[BRIEF].head(MOST_CARRIED), rejected[REJECTED].head(MOST_REJECTED)
    left = len(frame) - len(carried) - len(rejected)
    if left:
        note(f"{left:,} more layouts; --json, --csv or -o has them all")
    if len(carried):
        emit(args, carried, {}, SPARE_OF_RANKING)
    if len(carried) and len(rejected):
        print()
    if len(rejected):
        emit(args, rejected, {})


MOST_CARRIED, MOST_REJECTED = 20, 10
"""Rows of each kind that a terminal shows."""

BRIEF = (
    "rank accelerator count layout verdict headroom_bytes ttft_s tpot_s output_tok_s fleet_usd_per_hour "
    "usd_per_mtok_blended"
).split()
SPARE_OF_RANKING = ("verdict", "headroom_bytes", "output_tok_s")
REJECTED = "accelerator count layout reason".split()
"""What a terminal has room for; every other form has all columns."""
