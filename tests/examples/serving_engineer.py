# %% [markdown]
# # A chat model on four cards
#
# Llama-3.1-70B is to serve 32 chats at a time, each up to 16,384 positions, on four H100. Does it fit, what binds, how
# fast is it, and is there a cheaper machine?

# %%
import planner

chat = {"context": 16_384, "osl": 512, "sequences": 32}
answer = planner.fit("llama-3.1-70b", accelerator="h100-sxm", count=4, **chat)
print(answer)

# %% [markdown]
# It does not, by a little. The cache is what fills the cards: 80 layers keep a key and a value of 8 heads of 128
# numbers for each position, a quarter of them on each card.

# %%
per_position = 80 * 2 * 8 * 128 * 2
on_one_card = 32 * 16_384 * per_position // 4
rungs = answer.to_frame().set_index("term")["bytes"]
print(answer.lever)
assert answer.verdict == "does not fit"
assert answer.binding == "kv cache"
assert rungs["kv cache"] == on_one_card == 40 * 2**30

# %% [markdown]
# The lever that costs least is the cache in 8 bits. It frees half of those 40 GiB, and leaves room to spare.

# %%
eight_bits = planner.fit(answer.plan, kv="fp8")
print(eight_bits)
assert answer.lever.startswith("kv = fp8 saves 20 GiB and fits")
assert eight_bits.headroom_bytes - answer.headroom_bytes == 20 * 2**30
assert eight_bits.verdict == "fits"
assert not planner.fit(eight_bits.plan, sequences=eight_bits.most_sequences + 1).fits

# %% [markdown]
# How fast? A step reads the weights and the cache of all chats once, so no program on these cards writes a token in
# less time than that reading takes; the estimate stands above it.

# %%
speed = planner.estimate(eight_bits.plan)
print(speed)
bandwidth = 4 * 3.35e12
read = 2 * (70_553_706_496 - 128_256 * 8_192) + 32 * per_position // 2 * (16_384 - 512 / 2)
assert speed.binding_decode == "bandwidth"
assert abs(speed.floor.tpot_s / (read / bandwidth) - 1) < 0.001
assert speed.floor.tpot_s < speed.tpot_s < 2 * speed.floor.tpot_s

# %% [markdown]
# And the cheapest machine that carries this load at the listed prices? Cards with more memory need fewer of them.

# %%
ranking = planner.size("llama-3.1-70b", accelerators=["h100-sxm", "h200-sxm"], kv="fp8", as_of="2026-09-30", **chat)
best = ranking.iloc[0]
print(ranking[["rank", "accelerator", "count", "verdict", "tpot_s", "usd_per_mtok_blended", "reason"]].head())
assert (best["accelerator"], best["count"], best["tp"]) == ("h200", 2, 2)
assert 0 < best["headroom_bytes"] < planner.accelerator("h200").memory_bytes
