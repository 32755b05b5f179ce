# %% [markdown]
# # Next year's fleet
#
# Three products grow at their own pace. How many accelerators does each month need, what do they cost, and which card
# suits which product? One table of cases, one row for each product, card and month; everything else is pandas.

# %%
import math
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

import planner

products = pd.DataFrame(
    {
        "product": ["assistant", "search", "code review"],
        "model": ["llama-3.1-70b", "llama-3.1-8b", "deepseek-v3"],
        "isl": [3_000, 1_200, 8_000],
        "osl": [400, 150, 1_000],
        "peak_requests_per_s": [6.0, 60.0, 1.5],
        "monthly_growth": [1.06, 1.10, 1.15],
    }
)
cards = pd.DataFrame(
    {"accelerator": ["h100-sxm", "h200-sxm"], "usd_per_hour": [2.40, 3.10]}  # what the two contracts on the table say
)
sizes = {"llama-3.1-70b": 4, "llama-3.1-8b": 1, "deepseek-v3": 8}  # accelerators of a replica
months = pd.DataFrame({"month": pd.period_range("2027-01", periods=12, freq="M").astype(str), "age": range(12)})

cases = products.merge(cards, how="cross").merge(months, how="cross")
cases = cases.assign(tp=cases["model"].map(sizes), pp=1, sequences=32, weights="fp8")
plans = planner.plan_frame(cases)
assert len(plans) == 3 * 2 * 12
assert plans.attrs["units"]["headroom_bytes"] == "B"

# %% [markdown]
# Eight of the smaller card do not hold 671 billion weights in 8 bits: a rank's share alone is more than the nine tenths
# of its memory that the engine takes. Two machines as a pipeline do.

# %%
verdicts = plans.groupby(["product", "accelerator"])["verdict"].first()
print(verdicts.unstack())
assert verdicts[verdicts == "does not fit"].index.tolist() == [("code review", "h100-sxm")]
small = (cases["product"] == "code review") & (cases["accelerator"] == "h100-sxm")
assert (plans.loc[small, "weights_bytes"] > 0.9 * plans.loc[small, "usable_bytes"]).all()
cases.loc[small, "pp"] = 2
plans = planner.plan_frame(cases)
assert plans["verdict"].isin(["fits", "tight"]).all()
assert (plans["reason"] == "").all()

# %% [markdown]
# Replicas for the peak of each month, and what they cost; the rest is arithmetic on columns.

# %%
peak = plans["peak_requests_per_s"] * plans["monthly_growth"] ** plans["age"]
plans["replicas"] = np.ceil(peak / plans["requests_per_s"])
plans["fleet"] = plans["replicas"] * plans["tp"] * plans["pp"]
plans["usd"] = plans["fleet"] * plans["usd_per_hour"] * 24 * 30
bill = plans.pivot_table(index="month", columns=["product", "accelerator"], values="usd")
choice = bill.sum().unstack().idxmin(axis=1)
print(bill.round(0), choice, sep="\n")
assert (bill.diff().dropna() >= 0).all().all()
assert choice["code review"] == "h200-sxm"

# %% [markdown]
# The last month of one product, asked for by itself, gives the same figures.

# %%
last = plans[(plans["product"] == "search") & (plans["accelerator"] == "h100-sxm")].iloc[-1]
alone = planner.estimate(
    "llama-3.1-8b", accelerator="h100-sxm", isl=1_200, osl=150, sequences=32, weights="fp8"
).requests_per_s
assert abs(last["requests_per_s"] / alone - 1) < 1e-12
assert last["replicas"] == math.ceil(60 * 1.10**11 / alone)
assert math.isclose(last["usd"], last["replicas"] * 2.40 * 720)

# %% [markdown]
# Finance takes it from here.

# %%
with tempfile.TemporaryDirectory() as folder:
    plans.to_csv(Path(folder) / "fleet.csv", index=False)
    again = pd.read_csv(Path(folder) / "fleet.csv")
assert math.isclose(again["usd"].sum(), plans["usd"].sum())
