"""Crossovers: where one cost overtakes another, solved once and for all.

None is a property of the Transformer: each moves with every input. A crossover that is zero or negative, or that
divides by zero, does not happen; `validity` says when. Each is proved in the tests to solve its equation.
"""

from planner.formula import formula
from planner.textbook.cache import mla_over_mqa_cache
from planner.textbook.memory_traffic import ridge_intensity
from planner.textbook.parameters import attention_projection_parameters, gated_ffn_parameters


@formula("token", source="pope-2023", equation="section 2", validity="a cache that grows with every position")
def cache_equals_weights_context(weight_bytes, batch, kv_bytes_per_token):
    """Context of each sequence at which the cache of the batch is as large as all weights.

    >>> round(cache_equals_weights_context(14_000_000_000, 1, 524_288))     # 7 billion weights, multi-head, in fp16
    26703
    """
    return weight_bytes / (batch * kv_bytes_per_token)


@formula("1", source="pope-2023", equation="section 2", validity="a cache that grows with every position")
def cache_equals_weights_batch(weight_bytes, context, kv_bytes_per_token):
    """Sequences of that context whose caches are together as large as all weights.

    >>> round(cache_equals_weights_batch(16_060_522_496, 8192, 131_072), 2)     # Llama-3.1-8B in bf16
    14.96
    """
    return weight_bytes / (context * kv_bytes_per_token)


@formula("1", source="deepseek-2024", equation="table 1", validity="one element format, equal layers")
def mla_equals_gqa_kv_heads(kv_lora_rank, rope_head_dim, head_dim):
    """Key/value heads with which grouped-query attention keeps as much as latent attention; with more, it keeps more.

    >>> mla_equals_gqa_kv_heads(512, 64, 128)     # DeepSeek-V2: its cache is that of 2.25 groups
    2.25
    """
    return mla_over_mqa_cache(kv_lora_rank, rope_head_dim, head_dim)


@formula("1", source="deepseek-2024", equation="table 1", validity="rotary key narrower than two heads")
def mla_equals_mqa_kv_lora_rank(head_dim, rope_head_dim):
    """Latent width at which latent attention keeps as much as one shared key/value head; DeepSeek-V2's is wider.

    >>> mla_equals_mqa_kv_lora_rank(128, 64)     # DeepSeek-V2 has 512
    192
    """
    return 2 * head_dim - rope_head_dim


@formula("token", source="kaplan-2020", equation="table 1", validity="decoding, full attention")
def core_equals_projections_decode(d_model, n_heads, n_kv_heads, head_dim):
    """Context at which one new position takes as much work in the attention core as in its four projections.

    >>> core_equals_projections_decode(4096, 32, 8, 128)     # Llama-3.1-8B
    5120.0
    """
    return attention_projection_parameters(d_model, n_heads, n_kv_heads, head_dim) / (2 * n_heads * head_dim)


@formula("token", source="kaplan-2020", equation="table 1", validity="prefill, full causal attention")
def core_equals_projections_prefill(d_model, n_heads, n_kv_heads, head_dim):
    """Prompt length at which the causal attention core takes as much work as the four projections.

    On average a position of a prompt sees half of it, so the length is about twice that of decoding.

    >>> core_equals_projections_prefill(4096, 32, 8, 128)     # Llama-3.1-8B
    10239.0
    """
    return 2 * core_equals_projections_decode(d_model, n_heads, n_kv_heads, head_dim) - 1


@formula("token", source="kaplan-2020", equation="table 1", validity="decoding, full attention, gated feed-forward")
def core_equals_layer_decode(d_model, n_heads, n_kv_heads, head_dim, d_ff):
    """Context at which one new position takes as much work in the attention core as in all matrices of its layer.

    >>> core_equals_layer_decode(4096, 32, 8, 128, 14336)     # Llama-3.1-8B
    26624.0
    """
    attention = attention_projection_parameters(d_model, n_heads, n_kv_heads, head_dim)
    return (attention + gated_ffn_parameters(d_model, d_ff)) / (2 * n_heads * head_dim)


@formula("token", source="kaplan-2020", equation="table 1", validity="prefill, causal attention, gated feed-forward")
def core_equals_layer_prefill(d_model, n_heads, n_kv_heads, head_dim, d_ff):
    """Prompt length at which the causal attention core takes as much work as all matrices of its layer.

    >>> core_equals_layer_prefill(4096, 32, 8, 128, 14336)     # Llama-3.1-8B
    53247.0
    """
    return 2 * core_equals_layer_decode(d_model, n_heads, n_kv_heads, head_dim, d_ff) - 1


@formula(
    "token",
    source="deepseek-2025",
    equation="section 2.1",
    validity="decoding; an indexer that is cheaper than the core, index_flops_per_pair < core_flops_per_pair",
)
def sparse_equals_dense_context(core_flops_per_pair, index_flops_per_pair, index_top_k):
    """Context at which scoring every position and attending to the best ones takes as much work as attending to all.

    Above it sparse attention takes less, though it still scores, and keeps, every position.

    >>> sparse_equals_dense_context(278_528, 16_384, 2048)     # DeepSeek-V3.2
    2176.0
    """
    return core_flops_per_pair * index_top_k / (core_flops_per_pair - index_flops_per_pair)


@formula(
    "B/s",
    source="jin-2024",
    equation="the two times set equal",
    validity="full causal attention; both rates as reached; loading and computing not overlapped",
)
def load_equals_recompute_bandwidth(
    context, active_parameters, n_layers, n_heads, head_dim, kv_bytes_per_token, flops_per_s
):
    """Bandwidth of a link over which loading the stored cache of a prefix takes as long as computing it again.

    A faster link loads sooner. Computing again takes two FLOPs for each active parameter and position, and the
    attention core. Leave both embedding tables out of the parameters: a prefix multiplies by neither.

    >>> round(load_equals_recompute_bandwidth(8192, 6_979_588_096, 32, 32, 128, 131_072, 400e12))     # Llama-3.1-8B
    3255047740
    """
    core = 2 * n_layers * n_heads * head_dim * (context + 1)
    return kv_bytes_per_token * flops_per_s / (2 * active_parameters + core)


@formula(
    "token",
    source="jin-2024",
    equation="the two times set equal",
    validity="as for the bandwidth; zero or less: loading is the faster at every length",
)
def load_equals_recompute_context(
    link_bytes_per_s, active_parameters, n_layers, n_heads, head_dim, kv_bytes_per_token, flops_per_s
):
    """Length of a prefix from which on loading its stored cache is faster than computing it again.

    Loading grows with the length, computing with its square.

    >>> round(load_equals_recompute_context(2e9, 6_979_588_096, 32, 32, 128, 131_072, 400e12))     # Llama-3.1-8B
    46749
    """
    each_position = kv_bytes_per_token * flops_per_s / link_bytes_per_s - 2 * active_parameters
    return each_position / (2 * n_layers * n_heads * head_dim) - 1


@formula("1", source="williams-2009", equation="ridge point", validity="a dense model; attention and cache left out")
def ridge_batch(flops_per_s, memory_bytes_per_s, weight_elem_bytes):
    """Sequences in a decode step at which multiplying by the weights takes as long as reading them.

    >>> round(ridge_batch(989e12, 3.35e12, 2))     # H100 SXM, dense bf16
    295
    """
    return ridge_intensity(flops_per_s, memory_bytes_per_s) * weight_elem_bytes / 2
