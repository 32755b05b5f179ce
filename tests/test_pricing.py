"""Prices as of a date: the lowest offer as it stood then, one's own file over ours, and nothing made up."""

import datetime
import math

import pytest

from planner import catalogue
from planner.errors import InputError, PlannerError, UnknownName
from planner.pricing import BASES, TOKEN_CLASSES, api_prices, hour_price, prices

HEADER = "date,accelerator,provider,basis,usd_per_hour"
HISTORY = f"""{HEADER}
2025-01-01,h100-sxm,Alpha,on_demand,4.00
2025-06-01,h100-sxm,Alpha,on_demand,3.00
2025-06-01,h100-sxm,Beta,on_demand,2.50
2026-01-01,h100-sxm,Alpha,on_demand,2.00
2025-03-01,h100-sxm,Alpha,spot,1.00
"""


@pytest.fixture
def write(tmp_path):
    def written(text):
        path = tmp_path / "mine.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return written


@pytest.mark.parametrize(
    ("as_of", "provider", "usd"),
    [
        ("2025-01-01", None, 4.00),  # the day itself counts
        ("2025-05-31", None, 4.00),
        ("2025-06-01", None, 2.50),  # two offers: the lower
        ("2025-12-31", "Alpha", 3.00),
        ("2025-12-31", "beta", 2.50),
        ("2026-01-01", None, 2.00),
        ("2099-01-01", "Beta", 2.50),
        (datetime.date(2025, 7, 1), "Alpha", 3.00),
        (None, None, 2.00),
    ],
)
def test_the_lowest_price_of_those_that_were_known(write, as_of, provider, usd):
    assert hour_price("h100-sxm", as_of, provider=provider, file=write(HISTORY)).usd_per_hour == usd


def test_a_dearer_offer_does_not_count_for_being_newer(write):
    newer = write(f"{HISTORY}2026-03-01,h100-sxm,Zeta,on_demand,9.00\n2026-03-01,h100-sxm,Alpha,on_demand,2.75\n")
    assert hour_price("h100-sxm", "2026-02-28", file=newer).provider == "Alpha"
    assert hour_price("h100-sxm", file=newer).provider == "Beta"  # Alpha's 2.00 is no longer offered


def test_the_table_holds_one_row_for_each_offer(write):
    frame = prices("2025-12-31", "h100-sxm", "on_demand", file=write(HISTORY))
    assert frame[["provider", "usd_per_hour", "date"]].values.tolist() == [
        ["Alpha", 3.0, "2025-06-01"],
        ["Beta", 2.5, "2025-06-01"],
    ]
    newer = write(f"{HISTORY}2026-03-01,h100-sxm,Zeta,on_demand,9.00\n")
    assert prices("2026-06-01", "h100-sxm", "on_demand", file=newer)["provider"].tolist() == ["Zeta", "Alpha", "Beta"]


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        (
            {"accelerator": "h100-sxm", "as_of": "2024-12-31"},
            "no on_demand price of h100-sxm is known as of 2024-12-31; state usd_per_hour",
        ),
        (
            {"accelerator": "h100-sxm", "as_of": "2024-11-30", "basis": "reserved"},
            "no reserved price of h100-sxm is known as of 2024-11-30; state usd_per_hour",
        ),
        (
            {"accelerator": "b300", "provider": "Azure"},
            "no on_demand price of b300 from Azure is known; state usd_per_hour",
        ),
        (
            {"accelerator": "mi355x"},
            "no on_demand price of mi355x is known; state usd_per_hour",
        ),
        ({"accelerator": "h100-smx"}, "unknown accelerator 'h100-smx'; did you mean 'h100-sxm'?"),
        ({"accelerator": "h100-sxm", "basis": "on-demand"}, "unknown basis 'on-demand'; did you mean 'on_demand'?"),
        ({"accelerator": "h100-sxm", "provider": "Alfa"}, "unknown provider 'Alfa'; did you mean 'Alpha'?"),
        ({"accelerator": "h100-sxm", "as_of": "June 2026"}, "as_of: 'June 2026' is no date; write it as 2026-06-01"),
    ],
)
def test_an_unknown_price_is_a_sentence_and_never_zero(write, question, sentence):
    with pytest.raises(PlannerError) as refusal:
        hour_price(**question, file=write(HISTORY))
    assert str(refusal.value) == sentence


def test_rows_of_ones_own_replace_ours_of_that_accelerator_and_basis(write):
    path = write(f"{HEADER}\n2020-01-01,H100 SXM,us,on_demand,1.11\n")
    mine = hour_price("h100-sxm", file=path)
    assert (mine.usd_per_hour, mine.provider, mine.source, mine.confidence) == (1.11, "us", str(path), "given")
    assert prices(accelerator="h100-sxm", basis="on_demand", file=path)["provider"].tolist() == ["us"]
    assert hour_price("h100-sxm", basis="spot", file=path) == hour_price("h100-sxm", basis="spot")
    assert hour_price("l40s", file=path) == hour_price("l40s")


def test_a_device_of_ones_own_has_prices_of_ones_own(write):
    path = write(f"{HEADER}\n2026-01-01,our-card,us,on_demand,0.42\n")
    assert hour_price("our-card", file=path).usd_per_hour == 0.42


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"{HEADER}\n2026-01-01,l4,us,on_demand,0", "row 2: usd_per_hour = 0 is not from 0.01 to 1000 USD"),
        (f"{HEADER}\n2026-01-01,l4,us,on_demand,-1", "row 2: usd_per_hour = -1 is not from 0.01 to 1000 USD"),
        (f"{HEADER}\n2026-01-01,l4,us,on_demand,nan", "row 2: usd_per_hour = nan is not from 0.01 to 1000 USD"),
        (f"{HEADER}\n2026-01-01,l4,us,on_demand,inf", "row 2: usd_per_hour = inf is not from 0.01 to 1000 USD"),
        (f"{HEADER}\n2026-01-01,l4,us,on_demand,2500", "row 2: usd_per_hour = 2500 is not from 0.01 to 1000 USD"),
        (f"{HEADER}\n2026-01-01,l4,us,on_demand,", "row 2: usd_per_hour is missing"),
        (f"{HEADER}\n2026-01-01,l4,us,on_demand,2 USD", "row 2: usd_per_hour = '2 USD' is not a number"),
        (f"{HEADER}\n2026-01,l4,us,on_demand,2", "row 2: date: '2026-01' is no date; write it as 2026-06-01"),
        (f"{HEADER}\n2026-01-01,l4,us,ondemand,2", "row 2: basis = 'ondemand' is none of on_demand, spot, reserved"),
        (f"{HEADER}\n2026-01-01,l4,us,spot", "row 2: 4 cells stand under 5 columns"),
        (f"{HEADER}\n2026-01-01,l4,us,spot,1,2", "row 2: 6 cells stand under 5 columns"),
        (f"{HEADER},note,x\n", "column 'x' is none of "),
        ("date,accelerator,provider,basis,price\n", "column 'price' is none of "),
        ("date,accelerator\n2026-01-01,l4\n", "row 2: basis is missing"),
        (f"{HEADER},accelerators\n2026-01-01,l4,us,spot,1,8.5", "row 2: accelerators = '8.5' is not a whole number"),
    ],
)
def test_a_bad_price_file_gets_one_sentence_with_its_place(write, text, sentence):
    path = write(text)
    with pytest.raises(InputError) as refusal:
        prices(file=path)
    assert str(refusal.value).startswith(str(path))
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_file_that_cannot_be_read(tmp_path, content):
    path = tmp_path / "mine.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"mine\.csv: cannot be read: "):
        prices(file=path)


def test_every_row_is_dated_graded_and_of_a_known_accelerator():
    frame = prices()
    assert set(frame["accelerator"]) <= set(catalogue.names())
    assert set(frame["basis"]) <= set(BASES)
    assert set(frame["confidence"]) <= set("ABCD")
    assert frame["source"].str.len().min() > 0
    assert frame["date"].between("2020-01-01", "2026-11-30").all()
    assert not frame.duplicated(["accelerator", "basis", "provider", "region", "instance", "term"]).any()
    assert frame.loc[frame["basis"] != "reserved", "term"].eq("").all()


def test_spot_is_below_the_list_price_of_the_same_offer():
    """A spot price that equals the list says that there is no capacity; such rows are left out."""
    frame = prices()
    keys = ["accelerator", "provider", "region", "instance", "date"]
    both = frame[frame["basis"] == "spot"].merge(frame[frame["basis"] == "on_demand"], on=keys)
    assert len(both) > 30
    assert (both["usd_per_hour_x"] < both["usd_per_hour_y"]).all()


@pytest.mark.parametrize(
    ("name", "provider", "basis", "usd"),
    [
        ("h100-sxm", "AWS", "on_demand", 55.04 / 8),  # list since the cut of June 2025, not the 98.32 still quoted
        ("h100-sxm", "Azure", "on_demand", 98.32 / 8),
        ("a100-40gb-sxm", "AWS", "on_demand", 21.957642 / 8),
        ("b200", "AWS", "on_demand", 113.9328 / 8),
        ("tpu-v5e", "GCP", "on_demand", 1.20),
        ("gb200", "Spheron", "on_demand", 9.08 / 2),  # sold by the superchip of two
        ("trainium1", "AWS", "on_demand", 21.5 / 16),
        ("h100-sxm", "AWS", "reserved", 39.33 / 8),
        ("mi300x", "Crusoe", "on_demand", 3.45),
        ("mi300x", "DigitalOcean", "on_demand", 2.59),
        ("rtx-4090", "Akash", "on_demand", 0.39),
    ],
)
def test_an_hour_of_one_accelerator_is_the_instance_divided(name, provider, basis, usd):
    assert hour_price(name, provider=provider, basis=basis).usd_per_hour == pytest.approx(usd, rel=1e-5)


def test_prices_of_tokens_as_of_a_date():
    frame = api_prices("2026-11-30")
    assert set(frame["token_class"]) == set(TOKEN_CLASSES)
    assert set(frame["confidence"]) <= set("ABC")
    assert (frame["usd_per_mtok"] > 0).all()
    assert api_prices("2026-10-31").empty


def test_a_model_is_found_by_our_word_and_by_the_providers():
    frame = api_prices(model="Llama-3.3-70B")
    assert frame["provider"].nunique() > 5
    assert api_prices(model="meta-llama/Llama-3.3-70B-Instruct")["model"].unique().tolist() == ["llama-3.3-70b"]
    with pytest.raises(UnknownName, match=r"^unknown API model 'llama-3\.3-71b'; did you mean "):
        api_prices(model="llama-3.3-71b")


def test_classes_of_tokens_stand_in_order():
    """Cached input costs less than input, a batch at most as much, output no less, and a long prompt no less."""
    frame = api_prices()
    wide = frame.pivot(index=["provider", "model_id", "above_tokens"], columns="token_class", values="usd_per_mtok")
    assert not (wide["cached_input"] > wide["input"]).any()
    assert not (wide["batch_input"] > wide["input"]).any()
    assert not (wide["batch_output"] > wide["output"]).any()
    assert not (wide["output"] < wide["input"]).any()
    tiers = frame[frame["above_tokens"] > 0].merge(
        frame[frame["above_tokens"] == 0], on=["provider", "model_id", "token_class"]
    )
    assert len(tiers) > 20
    assert (tiers["usd_per_mtok_x"] >= tiers["usd_per_mtok_y"]).all()


def test_a_token_price_of_ones_own(write):
    path = write("date,model,provider,token_class,usd_per_mtok\n2026-01-01,llama-3.1-8b,deepinfra,output,0.01\n")
    frame = api_prices(model="llama-3.1-8b", provider="deepinfra", file=path)
    assert frame["usd_per_mtok"].tolist() == [0.01]
    path = write("date,model,provider,token_class,usd_per_mtok\n2026-01-01,llama-3.1-8b,deepinfra,outputs,0.01\n")
    with pytest.raises(InputError, match=r"row 2: token_class = 'outputs' is none of .*; did you mean 'output'\?$"):
        api_prices(file=path)


def test_nothing_in_the_tables_is_nan():
    assert not any(math.isnan(value) for value in [*prices()["usd_per_hour"], *api_prices()["usd_per_mtok"]])
