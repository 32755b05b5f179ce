# %% [markdown]
# # Which attention for the next model?
#
# A decoder of the size of Llama-3.1-8B is to read long contexts. What do MQA, a latent and a window gain and lose
# against its eight key-value heads, at equal parameters, and does each variant really run?

# %%
import planner

base = planner.load("llama-3.1-8b")
variants = planner.ablate(base, {"mixer": ["mha", "mqa", "mla", "window-4096"]}, context=128_000)
table = variants.set_index("name")
print(table[["matched_by", "mismatch", "parameters", "cache_bytes", "decode_flops", "verified"]])
print(variants.attrs["note"])

# %% [markdown]
# Every variant was run small in NumPy and counts what its lists declare. Parameters agree to two thousandths, so what
# differs is the cache: by hand, keys and values of so many heads of 128 numbers in 32 layers, or a latent.

# %%
cache = {name.rpartition("=")[2]: size for name, size in table["cache_bytes"].items()}
by_hand = {"mha": 32 * 2 * 32 * 128 * 2, "mqa": 32 * 2 * 1 * 128 * 2}
assert table["verified"].all()
assert table["mismatch"].abs().max() < 0.002
assert cache["llama-3.1-8b"] == 128_000 * 32 * 2 * 8 * 128 * 2
assert all(cache[name] == 128_000 * size for name, size in by_hand.items())
assert cache["window-4096"] == 4096 * 131_072

# %% [markdown]
# From which context on does the cache weigh more than the weights? A named formula says so, with its source, and the
# sweep agrees with it.

# %%
crossover = planner.formulas["cache_equals_weights_context"]
frame = planner.sweep([base, "mistral-7b-v0.1"], context=[1_000, 10_000, 100_000, 1_000_000])
first = frame.groupby("name", observed=True).first()
tokens = first.loc["llama-3.1-8b", "crossover_tokens"]
print(crossover.describe(), first[["crossover_tokens", "crossover_note"]], sep="\n")
assert tokens == crossover(weight_bytes=16_060_522_496, batch=1, kv_bytes_per_token=131_072)
assert first.loc["mistral-7b-v0.1", "crossover_note"].startswith("never")

# %% [markdown]
# What a key-value head costs at inference, in a line that can go into the paper.

# %%
said = planner.formulas["kv_payload"].explain(
    {"n_layers": 32, "batch": 1, "context": 128_000, "n_kv_heads": 8, "head_dim": 128, "kv_elem_bytes": 2}
)
print(said)
assert said.value == planner.cache_bytes(base, 128_000) == cache["llama-3.1-8b"]
