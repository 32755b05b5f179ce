"""The columns of Scenarios about accelerators: does a row fit, how fast can it be, and what does a token cost at least.

A row has the plan's ranks and engine, and its own accelerator and number of them: replicas of the layout, which share
the sequences out. Its prompt is as long as its context, and the decode step is the next one (or, of a request, the mean
of its steps), as in the columns of FLOPs. Floors are those of `planner.timing`; nothing between ranks is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from planner.arithmetic import Value, ceil_div, evaluate, maximum, word
from planner.bill import CacheEntry, Product
from planner.catalogue import Accelerator
from planner.ladder import room_bytes
from planner.memory import TIGHT, verdicts
from planner.notation import excel
from planner.rules import CAUSAL
from planner.textbook.cost import usd_per_mtok
from planner.textbook.memory_traffic import logits_bytes
from planner.traffic import Batch
from planner.workbook.book import GIB, OK
from planner.workbook.cases import Case
from planner.workbook.contents import Contents
from planner.workbook.hardware import devices_of, listed_usd, peak_of
from planner.workbook.inputs import CHECK_OF_INPUTS
from planner.workbook.ranges import price
from planner.workbook.ranked import OF_MODEL, OF_WEIGHTS, forms
from planner.workbook.steps import Steps

INPUTS = {"accelerator": "", "count": "", "usd_per_hour": "USD/h"}
"""Columns to fill in, with their units; a price left blank is the listed one."""
HOUR = "usd_per_accelerator_hour"
SHOWN = {
    "verdict": ("", "whether the fullest rank fits, in the plan's layout and with its engine"),
    "headroom_gib": ("GiB", "memory of an accelerator less reserved and needed; negative where it is too little"),
    "floor_ttft_s": ("s", "reading one prompt as long as the context: no program takes less"),
    "floor_tpot_s": ("s", "one decode step of all sequences of a replica: no program takes less"),
    HOUR: ("USD/h", "stated in the row, or the listed price of the Hardware sheet"),
    "floor_usd_per_mtok_output": ("USD", "a million tokens of such decode steps at their floor; no program is cheaper"),
}
"""Columns with answers: unit and meaning."""
FLOORS = ("floor_ttft_s", "floor_tpot_s", "floor_usd_per_mtok_output")
NOT_KNOWN = "unknown"
ASSUMED = ("memory_fraction", "reserve_bytes", "logits_elem_bytes", "prefill_tokens")
"""Assumptions that a fit rests on; the workbook has cells for them."""


@dataclass(frozen=True)
class Fleet:
    """The formulas of these columns over the words of a row and over named cells; `steps` are what they share."""

    made: Contents
    trees: Mapping[str, Value]
    steps: Mapping[str, Value]

    @property
    def coefficients(self) -> dict[str, str]:
        """Column -> the table on Inputs that holds it."""
        slots, _ = self.made.ranks
        return {
            **dict.fromkeys(OF_MODEL, "Models"),
            **dict.fromkeys((*OF_WEIGHTS, *slots.flops), "RankWeights"),
            **dict.fromkeys((*slots.kept, *slots.reads), "CacheBytes"),
        }

    @property
    def hidden(self) -> tuple[str, ...]:
        """The columns behind the answers."""
        own = ("accelerator_row", "rank_reason", "rank_ok", "timed", "headroom_bytes", "device_memory_bytes")
        return (*own, "s_per_byte", *map(_s_per, _peaks(self.made)), *self.coefficients, *self.steps)

    def formulas(self, at: Callable[[str], str], heads: Collection[str]) -> Iterator[tuple[str, str]]:
        """Column -> its formula, the same in all rows; words that are no column of the table are named cells."""
        tp = self.made.plan.layout.tp

        def cell(name: str) -> str:
            return at(name) if name in heads else name

        def when(text: str, other: str = "0") -> str:
            return f"=IF({at('rank_ok')}=1,{text},{other})"

        name, layout = at("accelerator"), f"INDEX(Models[layout],{at('model_row')})"
        yield "accelerator_row", f'=IF({name}="",0,IFERROR(MATCH({name},Accelerators[name],0),0))'
        whole = f"{at('count')}/{tp}"
        usd = price("usd_per_hour")
        reason = '""'
        for wrong, sentence in (
            (f'{CHECK_OF_INPUTS}<>"{OK}"', f'"Inputs: "&{CHECK_OF_INPUTS}'),
            (usd.broken(at("usd_per_hour")), f'"usd_per_hour is not {usd.rule}"'),
            (f"OR(N({at('count')})<1,IFERROR({whole}<>INT({whole}),TRUE))", f'"{self.miscounted}"'),
            (f'{layout}<>""', layout),
            (f"{at('accelerator_row')}=0", '"unknown accelerator"'),
        ):
            reason = f"IF({wrong},{sentence},{reason})"
        yield "rank_reason", f'=IF(OR({at("ok")}<>1,{name}=""),"",{reason})'
        known = f'AND({at("ok")}=1,{at("accelerator_row")}>0,{at("rank_reason")}="")'
        yield "rank_ok", f"=IF({known},1,0)"

        def figure(column: str) -> str:
            return f"INDEX(Accelerators[{column}],{at('accelerator_row')})"

        yield "device_memory_bytes", when(figure("memory_bytes"))
        yield "s_per_byte", when(f"1/{figure('bandwidth_bytes_per_s')}")
        for peak in _peaks(self.made):
            yield _s_per(peak), when(f"IFERROR(1/{figure(peak)},0)")
        terms = (f"OR({at(_s_per(peak))}>0,{'+'.join(map(at, names))}=0)" for peak, names in _peaks(self.made).items())
        yield "timed", when(f"IF(AND({','.join(terms)}),1,0)")
        row = f"({at('model_row')}-1)*{len(self.made.weights)}+{at('weights_column')}"
        rows = {"Models": at("model_row"), "RankWeights": row, "CacheBytes": at("cache_row")}
        for column, table in self.coefficients.items():
            yield column, when(f"INDEX({table}[{column}],{rows[table]})")
        for column, tree in {**self.steps, "headroom_bytes": self.trees["headroom_bytes"]}.items():
            yield column, when(excel(tree, cell))
        left, tight = at("headroom_bytes"), excel(TIGHT * word("device_memory_bytes"), at)
        yield "verdict", when(f'IF({left}<0,"does not fit",IF({left}<{tight},"tight","fits"))', '""')
        yield "headroom_gib", when(excel(word("headroom_bytes") / GIB, at), '""')
        listed = f'IF(N({figure("usd_per_hour")})>0,{figure("usd_per_hour")},"{NOT_KNOWN}")'
        yield HOUR, when(f"IF(N({at('usd_per_hour')})>0,{at('usd_per_hour')},{listed})", '""')
        for column in FLOORS:
            known = f"AND({at('timed')}=1,ISNUMBER({at(HOUR)}))" if column == FLOORS[-1] else f"{at('timed')}=1"
            yield column, when(f'IF({known},{excel(self.trees[column], cell)},"{NOT_KNOWN}")', '""')

    @property
    def miscounted(self) -> str:
        """What is said of a number of accelerators that are no whole replicas."""
        tp = self.made.plan.layout.tp
        return f"count is no multiple of the {tp} ranks of a replica" if tp > 1 else "count is not a whole number"

    def inputs(self, case: Case | None) -> dict[str, Any]:
        """What stands in the cells of a row to change."""
        plan = self.made.plan
        if case is None:
            return dict.fromkeys(INPUTS, "")
        stated = plan.prices.usd_per_hour is not None or plan.prices.purchase_usd is not None
        hour = self.made.live.hour if stated else ""
        return {"accelerator": plan.device.name, "count": plan.layout.accelerators, "usd_per_hour": hour}

    def values(self, case: Case | None, numbers: Mapping[str, Any]) -> dict[str, Any]:
        """Every value of a row, as the formulas give it; `numbers` are those of the other columns, `ok` among them."""
        found = {**dict.fromkeys(self.hidden, 0), **dict.fromkeys(SHOWN, ""), "rank_reason": "", **self.inputs(case)}
        if case is None:
            return found
        device, (slots, ranks) = self.made.plan.device, self.made.ranks
        found["accelerator_row"] = [each.name for each in devices_of(self.made.plan)].index(device.name) + 1
        if numbers["ok"] != 1:
            return found
        mine = ranks[numbers["model_row"] - 1]
        if mine.reason:
            return found | {"rank_reason": mine.reason, "reason": mine.reason}
        trees = {**mine.of_model, **mine.of_weights[case.weights], **mine.of_cache[case.kv]}
        cells = self.made.subjects[numbers["model_row"] - 1].values
        found |= {name: evaluate(trees.get(name, 0), cells) for name in self.coefficients}
        found |= {"device_memory_bytes": device.memory_bytes, "s_per_byte": 1 / device.bandwidth_bytes_per_s}
        rates = {peak: peak_of(device, basis) for peak, basis in slots.peaks.items()}
        found |= {_s_per(peak): 0 if rate is None else 1 / rate for peak, rate in rates.items()}
        timed = all(rates[peak] or not any(found[n] for n in names) for peak, names in _peaks(self.made).items())
        hour = found["usd_per_hour"] or listed_usd(self.made.plan, device)
        values = {**self.made.live.values, **numbers, **found, HOUR: hour}
        for name, tree in {**self.steps, **self.trees}.items():
            known = (timed or name not in FLOORS) and (hour is not None or name != FLOORS[-1])
            values[name] = found[name] = evaluate(tree, values) if known else NOT_KNOWN
        left = found["headroom_bytes"]
        verdict = next(text for held, text in verdicts(left, device.memory_bytes) if held)
        said = {"rank_ok": 1, "timed": int(timed), "verdict": verdict, "headroom_gib": left / GIB}
        return {**found, **said, HOUR: NOT_KNOWN if hour is None else hour}


def fleet_of(made: Contents) -> Fleet | None:
    """The columns, where one formula serves the ranks of all decoders."""
    if not made.ranks[1]:
        return None
    steps = Steps("fleet_step")
    layout = made.plan.layout
    each = ceil_div(word("batch"), word("count") / layout.tp)
    per_mtok = usd_per_mtok(word(HOUR) * layout.tp, word("floor_tpot_s"), each)
    found = {"headroom_bytes": _headroom(made, each), **_floors(made, each), "floor_usd_per_mtok_output": per_mtok}
    trees = {name: steps.split(tree) for name, tree in found.items()}
    return Fleet(made, trees, steps.trees)


class _Device:
    """Stands for the accelerator of a row."""

    memory_bytes = word("device_memory_bytes")


def _headroom(made: Contents, each: Value) -> Value:
    """The ladder of `planner.ladder` over coefficients, for so many sequences of a replica."""
    slots, _ = made.ranks
    numbers = {entry.name for entry in made.live.inputs}
    assumed = {name: word(name) if name in numbers else made.plan.assume(name) for name in ASSUMED}
    device = cast(Accelerator, _Device())
    plan = replace(made.plan, accelerator=device, overrides={**made.plan.overrides, **assumed})
    length = made.load.resident
    kept = sum(word(name) * made.slots.rule(label).kept(length) for name, label in slots.kept.items())
    logits = logits_bytes(each, 1, word("vocab_size"), assumed["logits_elem_bytes"])
    working = assumed["prefill_tokens"] * word("working_bytes_per_token")
    return room_bytes(plan) - (word("rank_weight_bytes") + kept * each + logits + working)


def _floors(made: Contents, each: Value) -> dict[str, Value]:
    load, said = made.load, made.plan.conventions
    prefill, decode = forms(made.plan)
    prompt = load.context if load.isl is None else load.isl
    steps = 1 if load.isl is None else maximum(load.osl - 1, 1)
    emitted = prompt if said.logits == "all" else 1
    one, resident = ((1, 0),), ((each, prompt),)
    read = Batch(members=one, mixer_members=one, new=prompt, emitted=emitted, attention=said.attention)
    step = Batch(members=resident, mixer_members=resident, passes=steps, attention=said.attention)
    return {"floor_ttft_s": _floor(made, read, prefill), "floor_tpot_s": _floor(made, step, decode) / steps}


def _floor(made: Contents, batch: Batch, form: str) -> Value:
    """The larger of arithmetic and traffic, as `planner.timing.Run.floor_s` has it."""
    slots, _ = made.ranks
    members, compute = batch.members, 0
    for peak, names in _peaks(made).items():
        flops: Value = 0
        for name in names:
            domain, label, own, _ = slots.flops[name]
            if own in (None, form):
                rule = made.slots.rule(label) if label else CAUSAL
                flops = flops + word(name) * batch.units(Product(name, 0, cast(Any, domain), "", rule=rule), members)
        compute = compute + flops * word(_s_per(peak))
    moved = batch.passes * (word("rank_read_bytes") + word("rank_row_bytes") * batch.tokens(members))
    for name, (seen, label, own) in slots.reads.items():
        if own in (None, form):
            product = Product(name, 0, "new", "")
            if seen:
                product = Product(name, 0, "pairs", "", rule=made.slots.rule(seen))
            entry = CacheEntry(name, 1, 1, made.slots.rule(label))
            moved = moved + word(name) * batch.read(product, entry, members)
    for name, label in slots.kept.items():
        moved = moved + word(name) * batch.written(made.slots.rule(label), members)
    return maximum(compute, moved * word("s_per_byte"))


def _peaks(made: Contents) -> dict[str, list[str]]:
    """Word of a peak -> its columns of FLOPs."""
    slots, _ = made.ranks
    return {peak: [name for name, (*_, of) in slots.flops.items() if of == peak] for peak in slots.peaks}


def _s_per(peak: str) -> str:
    return peak.replace("flops_per_s", "s_per_flop")
