"""Rows for spreadsheets: one plan says what fit, estimate and cost say; a frame says what its rows say one by one."""

import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
import planner.rows
from planner.cost import cost
from planner.errors import UsageError
from planner.rows import REMARKS, UNITS, VARIED, plan_frame, plan_row

MODELS = {
    "dense": "llama-3.1-8b",
    "windows": "gemma-2-9b",
    "all layers windowed": "mistral-7b-v0.1",
    "latent": "deepseek-v3",
    "experts": "mixtral-8x7b",
    "hybrid": "jamba-v0.1",
    "state space": "mamba-130m",
    "learned positions": "gpt2",
    "sinks and fp4": "gpt-oss-120b",
}
BASE = {"model": "llama-3.1-8b", "accelerator": "h100-sxm"}


def same(got, want):
    """Whole numbers below 2^53 to the last digit, others to 1e-12 of the larger."""
    if want is None or (isinstance(want, float) and math.isnan(want)):
        return math.isnan(got)
    if isinstance(want, int) and abs(want) < 2**53:
        return got == want
    return abs(got - want) <= 1e-12 * max(abs(got), abs(want))


def assert_rows_agree(cases):
    """Every row of the frame is the row of its own plan, or has the sentence that refuses it."""
    frame = plan_frame(cases)
    assert len(frame) == len(cases)
    for place, case in enumerate(cases.to_dict("records")):
        row = frame.iloc[place]
        said = {name: value for name, value in case.items() if pd.isna(value) is not True}
        said = {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in said.items()}
        try:
            want = plan_row(**said)
        except planner.PlannerError as error:
            want = dict.fromkeys(UNITS) | {"verdict": "", "warning": "", "reason": str(error)}
        for name in UNITS:
            assert same(row[name], want[name]), (said, name, row[name], want[name])
        assert {name: row[name] for name in REMARKS} == {name: want[name] for name in REMARKS}, said
    return frame


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_row_is_what_fit_estimate_and_cost_say(model):
    asked = {"model": model, "accelerator": "h100-sxm", "count": 4, "context": 1000, "sequences": 6, "kv": "fp8"}
    row = plan_row(**asked)
    fit, speed, money = planner.fit(**asked), planner.estimate(**asked), cost(**asked)
    assert row["parameters"] == planner.parameters(planner.load(model))
    assert row["weights_bytes"] == max(rung.bytes for rung in fit.ladder if rung.term == "weights")
    assert row["kv_cache_bytes"] == max(rung.bytes for rung in fit.ladder if rung.term == "kv cache")
    for name in ("needed_bytes", "usable_bytes", "headroom_bytes", "verdict"):
        assert row[name] == getattr(fit, name), name
    for name in UNITS:
        if hasattr(speed, name):
            assert row[name] == getattr(speed, name), name
        if name.startswith("usd") or "_usd_" in name:
            assert row[name] == getattr(money, name), name
    assert (row["floor_ttft_s"], row["floor_tpot_s"]) == (speed.floor.ttft_s, speed.floor.tpot_s)
    assert {row["count"], row["tp"] * row["pp"] * row["dp"]} == {4}
    assert row["reason"] == ""


def test_a_row_of_a_plan_that_was_made_before():
    plan = planner.fit(**BASE, context=4096).plan
    assert plan_row(plan) == plan_row(**BASE, context=4096)
    assert plan_row(plan, context=8192) == plan_row(**BASE, context=8192)


def test_the_cache_of_a_row_by_hand():
    row = plan_row(**BASE, context=32_768, sequences=8)
    assert row["kv_cache_bytes"] == 8 * 32_768 * 2 * 32 * 8 * 128 * 2
    assert row["weights_bytes"] == 2 * 8_030_261_248
    assert (row["context"], row["isl"], row["osl"]) == (32_768, 32_768 - 255, 256)


def test_ragged_lengths_show_the_longest_and_the_mean():
    row = plan_row(**BASE, lengths=(1000, 20))
    assert (row["context"], row["sequences"], row["isl"]) == (1000, 2, 510)
    assert row["kv_cache_bytes"] == 133_693_440
    frame = plan_frame(pd.DataFrame({**BASE, "lengths": ["1000,20", (1000, 20), [1000, 20]]}))
    assert frame["kv_cache_bytes"].tolist() == [133_693_440] * 3


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_frame_is_its_rows(model):
    contexts, sequences = [300, 1000, 4096, 32_768, 131_071], [1, 7, 96]
    loads = pd.MultiIndex.from_product([contexts, sequences], names=["context", "sequences"]).to_frame(index=False)
    assert_rows_agree(loads.assign(model=model, accelerator="h100-sxm", count=8))


PRESETS = sorted(path.stem for path in (Path(__file__).parent.parent / "presets" / "models").glob("*.toml"))


@pytest.mark.parametrize("model", PRESETS[::5])
def test_every_fifth_preset(model):
    loads = {"context": [1000, 8192, 33_333, 131_072, 8192], "sequences": [1, 16, 7, 64, 2]}
    layouts = {"tp": [1, 4, 1, 4, 1], "pp": [1, 2, 1, 2, 1], "cached_prefix": [0, 100, 0, 100, None]}
    assert_rows_agree(pd.DataFrame({"model": model, "accelerator": "h200-sxm", **loads, **layouts}))


def test_groups_that_are_mixed_row_by_row():
    cases = pd.DataFrame(
        {
            "model": ["llama-3.1-8b", "deepseek-v3", "llama-3.1-8b", "gemma-2-9b", "deepseek-v3", "llama-3.1-8b"],
            "accelerator": ["h100-sxm", "h200-sxm", "h100-sxm", "h100-sxm", "h200-sxm", None],
            "tp": [1, 8, 1, 2, 8, 1],
            "kv": ["bf16", "bf16", "fp8", None, "bf16", "fp8"],
            "isl": [None, 2000, None, None, 900, None],
            "osl": [128, 100, None, 64, None, 32],
            "context": [5000, None, 9000, 8192, None, 4096],
            "sequences": [4, 32, None, 2, 64, 1],
            "utilisation": [0.5, None, 0.4, None, None, 0.3],
            "compute_fraction": [None, 0.6, 0.5, None, 0.4, None],
            "usd_per_hour": [2.5, 4.0, None, 1.5, None, 3.0],
            "cached_prefix": [0, 500, 100, None, 0, None],
        }
    )
    frame = assert_rows_agree(cases)
    assert frame["reason"].tolist() == [""] * 5 + ["the plan names no accelerator"]
    assert frame.loc[5, "verdict"] == "unknown"


def test_a_prefix_of_0_is_none():
    """A latent of 32 is cheaper to attend to than its heads; a prompt without a cached prefix expands it yet."""
    narrow = planner.edit(planner.load("deepseek-v2-lite"), **{"layers[*].mixer.kv_lora_rank": 32})
    cases = {"model": [narrow] * 3, "accelerator": "h200-sxm", "isl": 20_000, "cached_prefix": [0, 5000, None]}
    frame = plan_frame(pd.DataFrame(cases))
    exact = planner.estimate(narrow, accelerator="h200-sxm", isl=20_000).ttft_s
    assert frame["ttft_s"].tolist()[::2] == pytest.approx([exact, exact], rel=1e-12)
    assert frame.loc[1, "ttft_s"] < exact


def test_the_worst_of_uneven_stages():
    frame = plan_frame(pd.DataFrame({**BASE, "pp": 2, "context": [1000, 2000], "stage_layers": ["8,24", "20,12"]}))
    assert frame["kv_cache_bytes"].tolist() == [24 * 4096 * 1000, 20 * 4096 * 2000]


def test_a_share_of_the_memory_is_taken_to_the_byte():
    shares = [0.9, 0.575, 0.333, 0.61]  # 0.575 of this card, in floats, is a byte too little
    cases = pd.DataFrame({"model": "llama-3.1-8b", "accelerator": "h100-nvl", "memory_fraction": shares})
    frame = assert_rows_agree(cases)
    memory = planner.accelerator("h100-nvl").memory_bytes
    outside = (memory - frame["headroom_bytes"] - frame["needed_bytes"] - 3 * 2**28).tolist()
    assert outside == [memory - memory * round(1000 * share) // 1000 for share in shares]


def test_what_is_not_ours_stays():
    cases = pd.DataFrame(
        {"team": ["=cmd()", "b"], 7: [1.5, None], **BASE, "context": [1000, 2000]}, index=pd.Index(["x", "x"], name="k")
    )
    before = cases.copy(deep=True)
    frame = plan_frame(cases)
    pd.testing.assert_frame_equal(frame[cases.columns], before)
    pd.testing.assert_frame_equal(cases, before)
    assert frame.attrs["units"] == UNITS
    assert list(frame.columns[len(cases.columns) :]) == [*UNITS, *REMARKS]


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([4096, 8192, None], dtype="Int64"),
        pd.Series([4096.0, 8192.0, math.nan]),
        pd.Series([4096, "8192", ""], dtype=object),
        pd.Series(["4096", "8,192", None], dtype="str"),
        pd.Series(["4096", "8Ki", " "], dtype="category"),
        pd.Series([np.int16(4096), np.float32(8192), pd.NA], dtype=object),
    ],
    ids=["nullable", "float", "object", "text", "categorical", "NumPy's"],
)
def test_kinds_of_columns(column):
    frame = plan_frame(pd.DataFrame({**BASE, "context": column}))
    assert frame["kv_cache_bytes"].tolist() == [131_072 * n for n in (4096, 8192, 8192)]  # 8192 is assumed
    assert frame["reason"].tolist() == [""] * 3


def test_a_decoder_or_an_accelerator_itself_may_stand_in_a_cell():
    small = planner.edit(planner.load("llama-3.1-8b"), n_kv_heads=4)
    cases = pd.DataFrame({"model": [small, "llama-3.1-8b"], "accelerator": [planner.accelerator("h100-sxm")] * 2})
    assert plan_frame(cases)["kv_cache_bytes"].tolist() == [65_536 * 8192, 131_072 * 8192]
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    config |= {"intermediate_size": 128, "vocab_size": 100}
    found = plan_frame(pd.DataFrame({"model": [config, config]}))
    assert found["kv_cache_bytes"].tolist() == [2 * 2 * 64 * 2 * 8192] * 2


def test_texts_of_many_numbers_are_one_group(monkeypatch):
    made = []
    make_plan = planner.rows.make_plan
    monkeypatch.setattr("planner.rows.make_plan", lambda **said: made.append(said) or make_plan(**said))
    frame = plan_frame(pd.DataFrame({**BASE, "context": [f"{n}Ki" for n in range(1, 50)]}))
    assert len(made) == 1
    assert frame["kv_cache_bytes"].tolist() == [n * 2**27 for n in range(1, 50)]


def test_an_empty_table_has_all_columns():
    frame = plan_frame(pd.DataFrame({"model": pd.Series([], dtype=object), "context": pd.Series([], dtype=float)}))
    assert list(frame.columns) == ["model", "context", *UNITS, *REMARKS]
    assert len(frame) == 0


BAD = [
    ({"context": -1}, "context = -1 is not a whole number from 0 to 10^15"),
    ({"context": 1000.5}, "context = 1000.5 is not a whole number"),
    ({"context": math.inf}, "context = inf is not a whole number"),
    ({"context": "-5"}, "context: '-5' is negative"),
    ({"context": "many"}, "context: 'many' is not a number"),
    ({"context": "128K"}, "context: '128K' has the unknown unit 'K'"),
    ({"context": True}, "context = True is not a number"),
    ({"sequences": 0}, "sequences = 0 is not a whole number from 1"),
    ({"isl": 100, "osl": 100, "context": 150}, "isl = 100 and osl = 100 do not fit context = 150"),
    ({"isl": 200, "context": 150}, "isl = 200 does not fit context = 150"),
    ({"isl": 100, "cached_prefix": 100}, "cached_prefix = 100 leaves nothing of isl"),
    ({"usd_per_hour": -2.0}, "usd_per_hour = -2 is not a positive, finite number"),
    ({"utilisation": 0.0}, "utilisation = 0 is not a share above 0 and up to 1"),
    ({"memory_fraction": 1.5}, "memory_fraction = 1.5 is not a share above 0 and up to 1"),
    ({"model": "lama-3.1-8b"}, "did you mean 'llama-3.1-8b'"),
    ({"model": None}, "model is missing"),
    ({"model": 7}, "model = 7 is not a text"),
    ({"accelerator": "h100"}, "accelerator 'h100'"),
    ({"accelerator": 3}, "accelerator = 3 is not a text"),
    ({"context": (1, 2)}, "context = (1, 2) is not a number"),
    ({"context": [1, 2]}, "context = (1, 2) is not a number"),
    ({"tp": 3}, "8 key-value heads neither divide nor are divided by 3 ranks"),
    ({"tp": 2.5}, "tp = 2.5 is not a whole number"),
    ({"count": 2, "tp": 4}, "count = 2 is not the 4 of"),
    ({"weights": "q9"}, "q9"),
    ({"weights": 4}, "weights = 4 is not a text"),
    ({"engine": "vlm"}, "unknown engine 'vlm'; did you mean 'vllm'?"),
    ({"mtp": "perhaps"}, "mtp: 'perhaps' is neither true nor false"),
    ({"model": "gpt2", "context": 1025}, "1,025 positions exceed the 1,024 learned ones of gpt2"),
    ({"context": 100, "shared_prefix": 200}, "shared_prefix = 200 exceeds the 100 positions of a sequence"),
]


@pytest.mark.parametrize(("case", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_a_bad_row_keeps_its_place(case, reason):
    cases = pd.DataFrame([{**BASE, "context": 5000}, {**BASE, **case}, {**BASE, "context": 6000}])
    frame = plan_frame(cases)
    assert reason in frame.loc[1, "reason"]
    assert "\n" not in frame.loc[1, "reason"]
    assert frame.loc[1, list(UNITS)].isna().all()
    assert frame.loc[1, "verdict"] == frame.loc[1, "warning"] == ""
    assert frame["reason"].tolist()[::2] == ["", ""]
    assert frame["kv_cache_bytes"].tolist()[::2] == [131_072 * 5000, 131_072 * 6000]


@pytest.mark.parametrize("context", [[100, 9000], [100, 100]], ids=["varied", "for all rows"])
def test_no_room_for_a_request_leaves_the_memory(context):
    frame = assert_rows_agree(pd.DataFrame({**BASE, "context": context}))
    row = frame.iloc[0]
    assert row["reason"] == "context = 100 has no room for osl = 256; state isl and osl"
    assert (row["kv_cache_bytes"], row["verdict"]) == (13_107_200, "fits")
    assert math.isnan(row["ttft_s"])
    assert math.isnan(row["usd_per_request"])


def test_what_nobody_publishes_is_a_reason_and_not_a_figure():
    frame = assert_rows_agree(pd.DataFrame({"model": "llama-3.1-8b", "accelerator": ["v100-32gb-sxm", "h100-sxm"]}))
    unpriced = assert_rows_agree(pd.DataFrame({**BASE, "as_of": ["2019-01-01"]})).iloc[0]
    assert "price" in unpriced["reason"]
    assert unpriced["ttft_s"] > 0
    assert math.isnan(unpriced["usd_per_request"])
    assert frame["verdict"].tolist() == ["fits", "fits"]


def test_dates_of_a_frame_are_those_of_the_prices():
    days = ["2025-10-31", "2026-06-01"]
    frame = pd.DataFrame({**BASE, "as_of": pd.to_datetime([*days, None])})
    texts = pd.DataFrame({**BASE, "as_of": [*days, None]})
    priced = planner.plan_frame(frame)["usd_per_accelerator_hour"].tolist()
    assert priced == planner.plan_frame(texts)["usd_per_accelerator_hour"].tolist()
    assert priced[0] != priced[1] == priced[2]


def test_beyond_the_stated_maximum_is_computed_and_said():
    frame = assert_rows_agree(pd.DataFrame({**BASE, "context": [131_072, 131_073]}))
    assert frame["warning"].tolist() == ["", "beyond the stated maximum of 131,072 positions"]
    assert frame.loc[1, "kv_cache_bytes"] == 131_072 * 131_073


def test_verdicts_turn_where_the_memory_does():
    fit = planner.fit(**BASE, context=8192)
    cases = pd.DataFrame({**BASE, "context": 8192, "sequences": range(1, fit.most_sequences + 3)})
    frame = plan_frame(cases)
    said = frame["verdict"].tolist()
    assert said == [planner.fit(**BASE, context=8192, sequences=n).verdict for n in cases["sequences"]]
    assert said[fit.most_sequences - 1] == "tight"
    assert said[fit.most_sequences] == "does not fit"


@pytest.mark.parametrize(
    ("cases", "sentence"),
    [
        ({"model": ["mha"]}, "plan_frame takes a table of cases, a pandas DataFrame, and not a dict"),
        (pd.DataFrame({"name": ["mha"]}), "the table has no column 'model'"),
        (pd.DataFrame([["mha"]], columns=[["model"], ["a"]]), "the table has no column 'model'"),
        (pd.DataFrame({"model": ["mha"], "tpot_s": [1]}), "the table has a column 'tpot_s' already"),
        (pd.DataFrame({"model": ["mha"], "reason": [1]}), "the table has a column 'reason' already"),
        (pd.DataFrame([["mha", 1, 2]], columns=["model", "tp", "tp"]), "the table has 2 columns 'tp'; keep one"),
    ],
)
def test_what_is_no_table_of_cases(cases, sentence):
    with pytest.raises(UsageError, match=re.escape(sentence)):
        plan_frame(cases)


def test_a_single_row_is_refused_with_an_error():
    with pytest.raises(UsageError, match="1,025 positions exceed the 1,024 learned ones of gpt2"):
        plan_row("gpt2", accelerator="h100-sxm", context=1025)
    with pytest.raises(UsageError, match="unknown accelerator 'h100-smx'"):
        plan_row("gpt2", accelerator="h100-smx")


@settings(max_examples=40)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"model": st.sampled_from(["llama-3.1-8b", "gemma-2-9b", "deepseek-v3", "mamba-130m"])},
            optional={
                "accelerator": st.sampled_from(["h100-sxm", "h200-sxm", "mi300x"]),
                "count": st.sampled_from([1, 8]),
                "kv": st.sampled_from(["bf16", "fp8"]),
                "context": st.integers(-1, 300_000),
                "sequences": st.integers(0, 300),
                "osl": st.integers(1, 3000),
                "cached_prefix": st.integers(0, 3000),
                "utilisation": st.floats(0.1, 1.0),
                "seconds_per_layer": st.floats(0, 1e-3),
                "usd_per_hour": st.floats(0.5, 20),
            },
        ),
        min_size=1,
        max_size=6,
    )
)
def test_any_table_is_its_rows(cases):
    frame = pd.DataFrame(cases)
    for name in ("context", "sequences", "osl", "cached_prefix", "count"):
        if name in frame:
            frame[name] = frame[name].astype("Int64").astype(object).where(frame[name].notna(), None)
    assert_rows_agree(frame)


def test_fields_that_vary_are_fields_of_a_plan():
    from planner.plan import fields_of_a_plan

    assert set(fields_of_a_plan()) >= VARIED
