"""One decoder on accelerators: does it fit, how fast is it, what does it cost, and which layout would be better."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from planner import figures
from planner.app import money, plans, ranking, show, state, words
from planner.capacity import headroom_bytes, maximum_positions
from planner.cost import Cost, cost
from planner.curves import GROUPS
from planner.memory import Fit, fit
from planner.plan import Plan
from planner.plan_file import plan_to_toml
from planner.speed import Estimate, estimate
from planner.units import show as shown
from planner.units import show_exact

BOXES = {"fits": st.success, "tight": st.warning, "does not fit": st.error, "unknown": st.info}
ICONS = {"fits": ":material/check:", "tight": ":material/warning:", "does not fit": ":material/close:", "unknown": None}

TIMES = {
    "ttft_s": ("First token after", "s", ""),
    "tpot_s": ("Each output token", "s", ""),
    "request_s": ("One request", "s", "ttft_s + (osl - 1) x tpot_s"),
    "output_tok_s_per_user": ("Token/s of a user", "token/s", "1 / tpot_s"),
    "output_tok_s_per_accelerator": (
        "Token/s of a card",
        "token/s",
        "those in all / accelerators",
    ),
    "output_tok_s": (
        "Token/s in all",
        "token/s",
        "osl x sequences / (sequences x prefill_s + decode_s), summed",
    ),
}
"""Figure of `planner.speed.Estimate` -> its name on the page, unit, and formula in words."""

PRICES = ("usd_per_mtok_input", "usd_per_mtok_output", "usd_per_mtok_blended", "fleet_usd_per_month")


def draw() -> None:
    """Draw the page."""
    st.title("Size a deployment")
    asked = plans.asked()
    if asked is None:
        return
    decoder, plan = asked
    answer = state.attempt(lambda: fit(plans.held(plan)))
    if answer is None:
        _assumptions(plan, words.MEMORY)
        return
    drawn: dict[str, go.Figure] = {}
    binary = st.session_state["bytes"] == "GiB"
    state.attempt(_verdict, answer, binary)
    in_short = st.empty()
    state.attempt(_memory, answer, drawn, binary)
    st.subheader("Speed")
    timed, times, priced, frame = state.attempt(plans.timed, answer.plan), None, None, None
    if timed is not None:
        times = state.attempt(_speed, timed, answer.fits, drawn, binary)
        priced = state.attempt(plans.priced, timed)
    _assumptions(plan, words.TIMES)
    if priced is not None:
        paid = None if times is None else _cost(priced, times)
        if answer.fits and times is not None:
            in_short.markdown(_in_short(times, paid))
        frame = state.attempt(ranking.draw, decoder, priced, drawn)
    show.downloads(answer.to_frame() if frame is None else frame, "size", drawn, priced or answer.plan)
    st.download_button(
        "Plan as TOML",
        lambda: plan_to_toml(priced or answer.plan),
        "plan.toml",
        "application/toml",
        on_click="ignore",
        icon=":material/download:",
    )


def _in_short(times: Estimate, paid: Cost | None) -> str:
    """What the sections below find, in one sentence."""
    user, all_users = (shown(rate, "token/s") for rate in (times.output_tok_s_per_user, times.output_tok_s))
    said = f"First token after **{shown(times.ttft_s, 's')}**, then **{user}** for each user, {all_users} in all"
    if paid is None:
        return f"{said}."
    token, month = map(money.usd, (paid.usd_per_mtok_blended, paid.fleet_usd_per_month))
    return f"{said}; **{token}** for a million tokens, {month} a month for the fleet."


def _memory(answer: Fit, drawn: dict[str, go.Figure], binary: bool) -> None:
    st.subheader("Memory")
    _room(answer, binary)
    frame = answer.to_frame()
    rungs = frame[frame["rank"] == _stage(answer, frame, binary)]
    drawn["memory"] = figures.memory_waterfall(rungs, answer.plan.device.memory_bytes, binary=binary)
    show.figure(drawn["memory"], "memory")
    with st.expander("Every term, exactly"):
        rows = [
            [f"{row['term']}\n{row['kind']}, {row['provenance']}", row["formula"], show_exact(row["bytes"])]
            for row in rungs.to_dict("records")
        ]
        show.table("terms of the rank", ["term", "how", "bytes"], rows, text=2)
    plans.assumed_badge({**plans.assumed(), **answer.assumed})
    _assumptions(answer.plan, words.MEMORY)


def _stage(answer: Fit, frame: pd.DataFrame, binary: bool) -> str:
    """The stage of a pipeline whose memory is shown, unless another is chosen the fullest."""
    totals = frame[frame["kind"] == "needed"].groupby("rank", sort=False)["bytes"].sum()
    if len(totals) == 1:
        return answer.rank
    texts = {str(n): f"{name}: {show.amount(size, 'B', binary)}" for n, (name, size) in enumerate(totals.items())}
    texts = {words.FULLEST: f"the fullest, {answer.rank}", **texts}
    if st.session_state["stage"] not in texts:
        st.session_state["stage"] = words.FULLEST
    chosen = st.selectbox("Stage", list(texts), key="stage", format_func=texts.__getitem__, persist_state="session")
    return answer.rank if chosen == words.FULLEST else str(totals.index[int(chosen)])


def _verdict(answer: Fit, binary: bool) -> None:
    plan = answer.plan
    where = f"{plan.model.name} on {plan.layout.accelerators} x {plan.device.name} ({plan.layout})"
    head = {"fits": "It fits.", "tight": "It fits tightly.", "does not fit": "It does not fit.", "unknown": "Unknown."}
    binding = f"Most of the memory is {answer.binding}."
    lever = answer.lever_in(binary=binary)
    lever = lever[0].upper() + lever[1:] if answer.fits else f"What would help: {lever}"
    BOXES[answer.verdict](
        f"**{head[answer.verdict]}** {state.plain(f'{where}. {binding} {lever}.', 900)}", icon=ICONS[answer.verdict]
    )
    for note in answer.notes:
        st.warning(state.plain(note), icon=":material/warning:")


def _room(answer: Fit, binary: bool) -> None:
    longest, most = answer.longest_context, answer.most_sequences
    with st.container(horizontal=True, gap="small"):
        with st.container(border=True, width=170):
            st.metric("Free on the fullest rank", show.amount(answer.headroom_bytes, "B", binary))
            with st.popover("How", key="how headroom"):
                rows = [["usable memory", show_exact(answer.usable_bytes or 0)]]
                rows += [[f"- {rung.term}", f"{-rung.bytes:,}"] for rung in answer.rungs]
                rows.append(["free", f"{answer.headroom_bytes:,}"])
                show.table("free memory", ["part", "bytes"], rows)
        with st.container(border=True, width=170):
            st.metric("Longest context", _limit(longest))
            with st.popover("How", key="how longest"):
                stated = maximum_positions(answer.plan)
                if longest is not None and longest == stated:
                    st.markdown(f"The contract states no more than {stated:,} positions, and they fit.")
                else:
                    _step(answer.plan.changed(isl=None, osl=None, cached_prefix=0), "context", longest)
        with st.container(border=True, width=170):
            st.metric("Most sequences", _limit(most))
            with st.popover("How", key="how most"):
                _step(answer.plan, "sequences", most)


def _limit(count: int | None) -> str:
    return "any number" if count is None else show_exact(count)


def _step(plan: Plan, field: str, count: int | None) -> None:
    """What is free at a limit and just beyond it, which is how it is found: by bisection on the exact ladder."""
    if count is None:
        st.markdown("What the ladder needs does not grow with it.")
        return
    rows = [[f"{n:,}", f"{headroom_bytes(plan.changed(**{field: n})):,}"] for n in (count, count + 1) if n > 0]
    show.table(f"limit of {field}", [field, "bytes left"], rows)
    st.caption("Found by bisection on the exact ladder, with its windows and shares rounded up.")


def _assumptions(plan: Plan, names: tuple[str, ...]) -> None:
    with st.container(horizontal=True, gap="small"):
        for name in names:
            plans.text(name, width=230, plan=plan)


def _speed(plan: Plan, fits: bool, drawn: dict[str, go.Figure], binary: bool) -> Estimate:
    answer = estimate(plan)
    if not fits:
        st.warning("The plan does not fit; it would be as fast as this if it did.", icon=":material/warning:")
    products = answer.products
    with st.container(horizontal=True, gap="small"):
        for name, (label, unit, formula) in TIMES.items():
            with st.container(border=True, width=170):
                least = shown(getattr(answer.floor, name), unit)
                bound = "floor" if unit == "s" else "at most"
                value = getattr(answer, name)
                st.metric(label, shown(value, unit), f"{bound} {least}", delta_color="off", delta_arrow="off")
                with st.popover("How", key=f"how {name}"):
                    st.markdown(f"**{value:,.10g} {unit}**")
                    _addends(answer, products, name) if not formula else st.markdown(f"{formula}")
    for column, phase, name, title in (
        (left, phase, name, title)
        for left, (phase, name, title) in zip(
            st.columns(2),
            (("prefill", "ttft_s", "Prefill of a request"), ("decode", "tpot_s", "One decode step")),
            strict=True,
        )
    ):
        with column:
            st.markdown(f"**{title}**")
            drawn[phase] = figures.seconds_spent(_spent(answer, phase, name), getattr(answer.floor, name), title)
            show.figure(drawn[phase], phase)
    _words(answer)
    st.markdown("**Roofline**")
    drawn["roofline"] = figures.roofline(products, answer.roofs, binary=binary)
    show.figure(drawn["roofline"], "roofline")
    st.caption("A point is a product, larger the more of its phase it takes; the solid roof is the data sheet's.")
    with st.expander("Every product"):
        rows = [
            [
                f"{row['product']}\n{row['phase']}, {row['rank']}",
                shown(row["flops"], "FLOP"),
                shown(row["bytes"], "B", binary=binary),
                f"{row['flops'] / row['bytes']:,.1f}" if row["bytes"] else "–",
                shown(row["seconds"], "s"),
                row["binding"],
            ]
            for row in products.to_dict("records")
        ]
        show.table("products", ["product", "work", "traffic", "FLOP/B", "time", "binds"], rows)
    plans.assumed_badge({name: value for name, value in answer.assumed.items() if name in words.TIMES})
    return answer


def _spent(answer: Estimate, phase: str, name: str) -> dict[str, float]:
    """Seconds of a phase by what they are spent on; stages that wait for a slower one are the rest of its time."""
    spent = answer.shares(phase)
    waiting = getattr(answer, name) - sum(spent.values())
    return {**spent, "waiting": waiting if waiting > 1e-9 else 0.0}


def _addends(answer: Estimate, products: pd.DataFrame, name: str) -> None:
    phase = "prefill" if name == "ttft_s" else "decode"
    spent = _spent(answer, phase, name)
    parts: dict[str, float] = {}
    for each, component, seconds in zip(
        *(products[column] for column in ("phase", "component", "seconds")), strict=True
    ):
        if each == phase:
            parts[GROUPS[component]] = parts.get(GROUPS[component], 0.0) + seconds
    parts |= {"collectives": spent["link"], "fixed time of the layers": spent["fixed time"]}
    parts |= {"stages that read chunks at the same time": spent["overlap"]} if spent["overlap"] else {}
    parts |= {"waiting for a slower stage": spent["waiting"]} if spent["waiting"] else {}
    rows = [[what.replace("_", " "), shown(seconds, "s")] for what, seconds in parts.items()]
    rows.append(["sum", shown(sum(parts.values()), "s")])
    show.table(f"seconds of {name}", ["part", "seconds"], rows)
    st.caption(
        "Each product takes the longer of its arithmetic and its traffic at what is assumed to be reached. The floor "
        "is the longer of all arithmetic and all traffic at the data sheet's rates, and nothing else."
    )


def _words(answer: Estimate) -> None:
    ridge = answer.ridge_batch
    reach = "No number of sequences" if ridge is None else f"{ridge:,} sequences"
    energy = answer.joules_per_output_token
    said = [
        f"Prefill is bound by {answer.binding_prefill} and computes at {answer.mfu_prefill:.1%} of the peak (MFU);",
        f"decode is bound by {answer.binding_decode} and reads at {answer.mbu_decode:.1%} of the bandwidth (MBU).",
        f"{reach} would make a decode step's arithmetic as long as its traffic.",
        *([] if energy is None else [f"An output token takes {shown(energy, '1')} J at the rated power."]),
    ]
    st.markdown(state.plain(" ".join(said)))
    for note in answer.notes:
        st.caption(state.plain(f"{note[0].upper()}{note[1:]}."))


def _cost(plan: Plan, times: Estimate) -> Cost | None:
    st.subheader("Cost")
    answer = state.attempt(cost, plan)
    if answer is None:
        st.caption("The Cost page takes a price of your own: type it into its table.")
        return None
    money.metrics(answer, times, PRICES)
    hour = f"{money.usd(answer.hour.usd)} for an accelerator-hour ({answer.hour.provenance}: {answer.hour.source})"
    st.caption(state.plain(f"{hour}; the Cost page has the rest."))
    plans.assumed_badge({name: value for name, value in answer.assumed.items() if name not in words.TIMES})
    return answer
