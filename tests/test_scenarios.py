"""Tables of scenarios: the figures that the comparison must show, and a sweep that says what exact ints say."""

import math
import tracemalloc

import numpy as np
import pandas as pd
import pytest

import planner
from planner.columns import CHUNK
from planner.errors import PlannerError, UsageError
from planner.scenarios import compare, crossovers, sweep

FIGURES = (
    "parameters active_parameters weight_bytes cache_bytes_per_token cache_fixed_bytes cache_bytes crossover_tokens "
    "prefill_flops decode_flops"
).split()
MODELS = ("llama-3.1-8b", "deepseek-v3", "gemma-2-9b", "mistral-7b-v0.1", "gpt-oss-120b", "qwen3-30b-a3b", "mamba-130m")


def test_the_comparison_set_is_that_of_the_source_figure():
    frame = compare()
    assert frame["name"].tolist() == ["mha", "gqa-8", "mqa", "mla"]
    assert frame["cache_bytes_per_token"].tolist() == [524_288, 131_072, 16_384, 36_864]
    assert [n / 2**30 for n in frame["cache_bytes"]] == [62.5, 15.625, 1.953125, 4.39453125]
    assert frame["crossover_tokens"].round(1).tolist() == [26_702.9, 106_811.5, 854_492.2, 379_774.3]
    assert frame["cache_ratio"].round(3).tolist() == [1, 4, 32, 14.222]
    assert set(frame["weights_basis"]) == {"stated"}


def test_derived_parameters_are_counted():
    frame = compare(derive=True)
    assert frame["parameters"].tolist() == [6_738_415_616, 5_933_109_248, 5_698_228_224, 6_142_840_832]
    assert frame["weight_bytes"].tolist() == [2 * n for n in frame["parameters"]]
    assert set(frame["weights_basis"]) == {"counted"}


def test_a_context_beyond_learned_positions_leaves_a_reason_and_no_figures():
    row = compare(["gpt2", "mha"]).iloc[0]
    assert row["parameters"] == 124_439_808
    assert pd.isna(row["cache_bytes"])
    assert row["reason"] == "128000 positions exceed the 1024 learned ones"
    (alone,) = compare(["gpt2"]).to_dict("records")
    assert all(math.isnan(alone[name]) for name in ("cache_bytes", "crossover_tokens", "decode_flops", "cache_ratio"))
    assert (alone["crossover_note"], alone["warning"]) == ("", "")
    assert compare(["gpt2"], context=1024).iloc[0]["cache_bytes"] == 2 * 12 * 768 * 2 * 1024


def test_a_cache_of_windows_never_reaches_the_weights():
    row = compare(["mistral-7b-v0.1"]).iloc[0]
    assert math.isnan(row["crossover_tokens"])
    assert row["crossover_note"].startswith("never")
    assert row["cache_fixed_bytes"] == 32 * 2 * 8 * 128 * 2 * 4096


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("batch", [1, 3])
def test_at_the_crossover_the_cache_equals_the_weights(model, batch):
    row = compare([model], batch=batch).iloc[0]
    if not math.isnan(row["crossover_tokens"]):
        below, above = math.floor(row["crossover_tokens"]), math.ceil(row["crossover_tokens"])
        m = planner.load(model)
        assert batch * planner.cache_bytes(m, below) <= row["weight_bytes"] <= batch * planner.cache_bytes(m, above)


@pytest.mark.parametrize("model", MODELS)
def test_one_row_of_a_sweep_is_the_exact_result(model):
    frame = sweep(model, context=[1, 4096, 100_000], batch=[1, 7], kv=["bf16", "fp8"])
    for _, row in frame.iterrows():
        exact = compare([model], context=row["context"], batch=row["batch"], kv=row["kv"]).iloc[0]
        for name in FIGURES:
            want, got = exact[name], row[name]
            if isinstance(want, float) and math.isnan(want):
                assert math.isnan(got)
            elif float(want) < 2**53 and name != "crossover_tokens":
                assert got == want, (name, row["context"])
            else:
                assert got == pytest.approx(float(want), rel=1e-15, abs=0)
        assert row["crossover_note"] == exact["crossover_note"]


def test_fields_of_the_contract_are_axes():
    frame = sweep("gqa-8", context=[1000], **{"layers[*].mixer.n_kv_heads": [1, 8, 32]}).set_index(
        "layers[*].mixer.n_kv_heads"
    )
    assert frame["cache_bytes_per_token"].tolist() == [16_384, 131_072, 524_288]


def test_a_window_as_an_axis_turns_the_slope_into_a_fixed_part():
    frame = sweep("gqa-8", context=[1000, 9000], window=[4096, 8192, None])
    by = frame.set_index([frame["window"].astype(object).where(frame["window"].notna(), "none"), "context"])
    assert by.loc[(4096, 9000), "cache_bytes"] == 131_072 * 4096
    assert by.loc[("none", 9000), "cache_bytes"] == 131_072 * 9000


def test_an_illegal_row_stays_with_its_reason():
    frame = sweep("gqa-8", context=[1000, 0, 2.5], n_kv_heads=[8, 3])
    assert len(frame) == 6
    reasons = dict(zip(zip(frame["context"], frame["n_kv_heads"], strict=True), frame["reason"], strict=True))
    assert reasons[1000, 8] == ""
    assert reasons[1000, 3] == "layers[0].mixer: n_kv_heads = 3 does not divide n_heads = 32"
    assert reasons[0, 8] == "context = 0 is not a whole number of at least 1"
    assert reasons[2.5, 8] == "context = 2.5 is not a whole number of at least 1"
    figures = frame.loc[frame["reason"] != "", ["cache_bytes", "prefill_flops", "parameters"]]
    assert figures.isna().all().all()


def test_axes_side_by_side_and_a_table_of_cases():
    zipped = sweep("mha", how="zip", context=[10, 20], batch=[1, 2])
    assert zipped["cache_bytes"].tolist() == [524_288 * 10, 524_288 * 40]
    cases = pd.DataFrame({"model": ["mha", "mqa", "mha"], "context": [10, 10, 20], "kv": ["bf16", "fp8", "fp8"]})
    assert sweep(cases=cases)["cache_bytes"].tolist() == [5_242_880, 81_920, 5_242_880]


def test_a_request_is_its_prefill_and_its_steps():
    m = planner.load("llama-3.1-8b")
    row = sweep(m, isl=[2048], osl=[256]).iloc[0]
    steps = sum(planner.flops(m, past=2048 + i, new=1) for i in range(255))
    assert row["request_flops"] == planner.flops(m, new=2048) + steps
    assert row["cache_bytes"] == planner.cache_bytes(m, 2048 + 255)


def test_crossings_of_models_and_of_figures():
    frame = sweep(["mqa", "mistral-7b-v0.1"], context=np.arange(1000, 60_001, 1000))
    found = crossovers(frame, "mqa", "mistral-7b-v0.1").iloc[0]
    assert found["context"] == pytest.approx(536_870_912 / 16_384, rel=1e-12)
    own = sweep("mha", context=np.arange(1000, 60_001, 1000), batch=[1, 2])
    assert crossovers(own, "cache_bytes", "weight_bytes")["context"].round(2).tolist() == [26_702.88, 13_351.44]
    none = crossovers(sweep("mqa", context=[10, 20]), "cache_bytes", "weight_bytes").iloc[0]
    assert math.isnan(none["context"])
    assert "do not cross" in none["note"]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: sweep("mha", context=[]), "context: an axis needs at least one value"),
        (lambda: sweep("mha", how="zip", context=[1, 2], batch=[1, 2, 3]), "axes of 2 and 3 values cannot be zipped"),
        (lambda: compare(["mha"], contxt=1), "unknown option 'contxt'; did you mean 'context'?"),
        (lambda: compare([]), "name at least one model"),
        (lambda: compare(["mha"], isl=3), "isl and osl belong together: tokens in and tokens out of one request"),
    ],
)
def test_a_question_that_cannot_be_asked(call, sentence):
    with pytest.raises(UsageError) as caught:
        call()
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "axes",
    [
        {"context": [1, 5000, 0, 70_000], "batch": list(range(1, 41))},
        {"context": list(range(100, 8000, 97)), "n_kv_heads": [8, 3, 4], "batch": [1, 2.5]},
        {"n_kv_heads": [1, 5], "context": list(range(1, 40)), "n_heads": [32, 12], "kv": ["bf16", "fp8"]},
        {"context": [4000]},
    ],
    ids=" ".join,
)
def test_a_grid_says_of_each_row_what_the_row_says_alone(axes):
    """However a grid shares its work between rows, side by side and as a table of cases nothing is shared."""
    grid = sweep(["gqa-8", "mistral-7b-v0.1"], **axes)
    assert len(grid) == 2 * math.prod(map(len, axes.values()))
    assert len(grid.drop_duplicates(["name", *axes])) == len(grid)
    mixed = grid.sample(frac=1, random_state=3).reset_index(drop=True)
    cases = mixed[["name", *axes]].astype({"name": str}).rename(columns={"name": "model"})
    zipped = sweep(cases["model"].tolist(), how="zip", **{axis: cases[axis].tolist() for axis in axes})
    for table in (sweep(cases=cases), zipped):
        for name in mixed.columns:
            np.testing.assert_array_equal(table[name].to_numpy(), mixed[name].to_numpy(), err_msg=name)


def test_figures_may_be_written_to():
    frame = sweep("mha", context=[10, 20], batch=list(range(1, 100)))
    frame.loc[0, ["parameters", "cache_bytes", "context"]] = 1
    assert frame.loc[:1, "parameters"].tolist() == [1, 6_738_415_616]
    assert frame.loc[1, "cache_bytes"] == 2 * 524_288 * 10


def test_a_table_without_rows_has_no_scenarios():
    assert len(sweep("mha", cases=pd.DataFrame({"context": pd.Series([], dtype=int)}))) == 0


def test_many_reasons_keep_their_rows():
    frame = sweep("gqa-8", n_kv_heads=list(range(1, 301)), context=[7])
    said = frame["reason"].tolist()
    assert [n for n, text in enumerate(said, 1) if text == ""] == [1, 2, 4, 8, 16, 32]
    assert said[298] == "layers[0].mixer: n_kv_heads = 299 does not divide n_heads = 32"


def test_small_integers_do_not_wrap():
    row = sweep("mha", isl=np.array([100], "int8"), osl=np.array([100], "uint8")).iloc[0]
    assert row["cache_bytes"] == 524_288 * 199


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: sweep("mha", contxt=[1, 2]), "mha: contxt: unknown field; did you mean 'count'?"),
        (lambda: sweep("mha", kv="bf61"), "unknown cache format 'bf61'; did you mean 'bf16'?"),
        (lambda: sweep("mha", kv=[8]), "kv is a text such as bf16, and not a number"),
        (lambda: sweep("mha", isl=[8]), "isl and osl belong together: tokens in and tokens out of one request"),
        (lambda: sweep("mha", name=["mla"]), "name is no axis; name the models before the axes"),
        (lambda: sweep(7), "7 is neither a model's name nor a path, a config or an Architecture"),
        (lambda: sweep("mha", context=[[1, 2]]), "context = [1, 2] is not a whole number of at least 1"),
        (lambda: sweep("mha", context=np.ones((1, 2))), "context: an axis is one row of values, and this one has 2"),
        (lambda: sweep("mha", context=[10**400]), "context: an axis holds a number beyond all that are computed with"),
        (lambda: sweep(context=range(10**5), batch=range(10**5)), "40,000,000,000 scenarios are more than a table"),
        (lambda: sweep("mha", cases=[1]), "cases = [1] is no DataFrame"),
        (lambda: sweep("mha", cases=pd.DataFrame({"norm": [{}]})), "column norm holds something that is neither"),
        (lambda: sweep(cases=pd.DataFrame({"model": ["a"], "name": ["b"]})), "column name stands twice"),
        (lambda: crossovers(sweep("mha"), "mha", "mla"), "'mla' is neither a column nor a model of the frame"),
        (lambda: crossovers(sweep("mha"), "mha", "mha", axis="kv"), "'kv' is no column of numbers of the frame"),
    ],
)
def test_a_sweep_of_which_no_row_can_be_computed_is_refused(call, sentence):
    with pytest.raises(PlannerError) as caught:
        call()
    assert str(caught.value).startswith(sentence)


def test_a_row_of_infinities_is_refused_without_a_warning():
    frame = sweep("mha", context=[math.inf, 1], n_kv_heads=[math.inf, 8])
    assert (frame["reason"] != "").tolist() == [True, True, True, False]


def test_a_sweep_needs_little_room_beside_its_frame():
    tracemalloc.start()
    frame = sweep("llama-3.1-8b", context=np.arange(1, 30_001), batch=np.arange(1, 33))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < frame.memory_usage(index=False).sum() + 16 * 8 * CHUNK
