"""Results in a notebook: what they show, what they give to pandas and Plotly, and that they survive a copy."""

import copy
import pickle
import re

import pandas as pd
import plotly.graph_objects as go
import pytest

import planner
from planner.cost import cost
from planner.errors import UsageError

PLAN = {"accelerator": "h100-sxm", "context": 8192, "sequences": 16}
VALUES = {"n_layers": 32, "batch": 1, "context": 8192, "n_kv_heads": 8, "head_dim": 128, "kv_elem_bytes": 2}


def injected():
    """A contract whose name is markup."""
    from dataclasses import replace

    return replace(planner.load("llama-3.1-8b"), name="<script>alert(1)</script>")


MAKE = {
    "fit": lambda: planner.fit("llama-3.1-8b", **PLAN),
    "estimate": lambda: planner.estimate("llama-3.1-8b", **PLAN),
    "cost": lambda: cost("llama-3.1-8b", api="gpt-oss-120b", **PLAN),
    "report": lambda: planner.verify(planner.load("llama-3.1-8b")),
    "formula": lambda: planner.formulas["kv_payload"],
    "explanation": lambda: planner.formulas["kv_payload"].explain(VALUES),
    "plan": lambda: planner.fit("llama-3.1-8b", **PLAN).plan,
    "decoder": lambda: planner.load("deepseek-v3"),
    "comparison": lambda: planner.compare(["mha", "mla"]),
    "sweep": lambda: planner.sweep(["mha", "mla"], context=[1000, 30_000]),
    "ranking": lambda: planner.size("llama-3.1-8b", accelerators=["h100-sxm", "l40s"], context=8192, sequences=64),
    "rows": lambda: planner.plan_frame(pd.DataFrame({"model": ["mha"], "accelerator": ["h100-sxm"]})),
    "ablation": lambda: planner.ablate(planner.load("gqa-8"), {"mixer": ["mqa"]}),
}
FRAMES = ("comparison", "sweep", "ranking", "rows", "ablation")


def pickled(result):
    return pickle.loads(pickle.dumps(result))  # noqa: S301  (our own)


@pytest.fixture(scope="module")
def results():
    return {name: make() for name, make in MAKE.items()}


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("way", [copy.deepcopy, pickled])
def test_a_copy_says_the_same(results, name, way):
    result = results[name]
    again = way(result)
    if isinstance(result, pd.DataFrame):
        pd.testing.assert_frame_equal(again, result)
        assert again.attrs == result.attrs
    else:
        assert repr(again) == repr(result)
    if hasattr(result, "explain") and name != "formula":
        assert again.explain() == result.explain()


def test_a_formula_is_pickled_by_its_name():
    formula = planner.formulas["kv_payload"]
    assert pickled(formula) is formula
    assert copy.deepcopy(formula) is formula


@pytest.mark.parametrize("name", ["fit", "estimate", "cost", "report", *FRAMES])
def test_html(results, name):
    shown = results[name]._repr_html_()
    assert re.search(r"<(table|pre)\b", shown)
    assert "0x" not in shown


@pytest.mark.parametrize("ask", [planner.fit, planner.estimate, cost])
def test_html_shows_names_as_texts(ask):
    shown = ask(injected(), **PLAN)._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


def test_a_report_shows_what_was_measured_and_what_failed(results):
    from planner.witness.report import Check, Report

    shown = results["report"]._repr_html_()
    assert "8,030,261,248" in shown or "pass" in shown
    report = Report("a<b", [Check("x<y", False, 1, 2), Check("z", None, "no cache")], {"layers": (2, "<1>")})
    shown = report._repr_html_()
    assert "FAIL" in shown
    assert "–" in shown
    assert "a&lt;b" in shown
    assert "x&lt;y" in shown
    assert "layers = 2 → &lt;1&gt;" in shown


def test_latex(results):
    assert results["formula"]._repr_latex_().startswith(r"$$\text{kv payload} = 2 L")
    assert results["explanation"]._repr_latex_().endswith(r"1{,}073{,}741{,}824\ \mathrm{B}$$")


@pytest.mark.parametrize("name", ["fit", "estimate", "cost", "report", "formula", "explanation"])
def test_frames(results, name):
    frame = results[name].to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) > 0
    assert "unit" in frame.columns or frame.attrs.get("units") or name == "report"


@pytest.mark.parametrize("name", FRAMES)
def test_units_are_those_of_columns(results, name):
    frame = results[name]
    units = frame.attrs["units"]
    assert set(units) <= set(frame.columns)
    for column in frame.columns:
        for suffix, unit in (("_bytes", "B"), ("_flops", "FLOP"), ("_s", "s")):
            if column.endswith(suffix) and "per_s" not in column and "tok_s" not in column:
                assert units[column] == unit, column


def test_explanations_name_formula_and_source(results):
    assert "positions that each layer keeps x stored bytes of a position" in results["fit"].explain()
    assert "prefill: " in results["estimate"].explain()
    said = results["cost"].explain()
    assert "usd_per_mtok_output" in said
    assert planner.formulas["usd_per_mtok"].citation in said
    for name in ("fit", "estimate", "cost"):
        answer = results[name]
        for assumed in set(answer.assumed) & {"memory_fraction", "compute_fraction", "utilisation"}:
            assert f"  {assumed} = {answer.assumed[assumed]}: " in answer.explain()


@pytest.mark.parametrize("name", ["fit", "estimate", "cost"])
def test_results_plot_themselves(results, name):
    drawn = results[name].plot()
    assert isinstance(drawn, go.Figure)
    assert drawn.to_dict() == planner.plot(results[name]).to_dict()
    assert drawn.layout.meta["alt"]


def test_what_is_drawn(results):
    bars = {trace.name: trace.x[0] for trace in results["fit"].plot().data}
    assert bars["kv cache"] == 16 * 8192 * 131_072
    assert bars["free"] == results["fit"].headroom_bytes
    spent = {trace.name: trace.x[0] for trace in results["estimate"].plot(phase="decode").data}
    assert spent["estimate"] == pytest.approx(results["estimate"].tpot_s, rel=1e-12)
    assert spent["floor"] == results["estimate"].floor.tpot_s
    lines = {trace.name: trace for trace in results["cost"].plot().data}
    assert lines["fleet"].y[0] == results["cost"].fleet_usd_per_month
    assert "cache = weights at 26,703 tokens" in planner.plot(results["sweep"]).layout.meta["alt"]
    best = results["ranking"].iloc[0]
    assert f"at {best['usd_per_mtok_blended']:,.4g} USD" in planner.plot(results["ranking"]).layout.meta["alt"]


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        (lambda: planner.fit("llama-3.1-8b"), "the plan names no accelerator"),
        (lambda: pd.DataFrame({"a": [1]}), "a frame is drawn if it comes from size, or from a sweep over context"),
        (lambda: "llama-3.1-8b", "a str has no figure"),
        (
            lambda: planner.size("deepseek-v3", accelerators=["l4"], replica_sizes=[1], context=8192),
            "no layout of the frame carries the load",
        ),
    ],
)
def test_what_has_no_figure_says_so(what, sentence):
    with pytest.raises(UsageError, match=sentence):
        planner.plot(what())


def test_a_phase_that_is_none():
    with pytest.raises(UsageError, match="phase = 'warm-up' is neither prefill nor decode"):
        planner.estimate("llama-3.1-8b", **PLAN).plot(phase="warm-up")
