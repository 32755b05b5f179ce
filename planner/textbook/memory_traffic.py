"""Temporary memory, weights, and what goes through the device memory.

Temporary memory lives for one pass. A tiled kernel lowers it and the traffic, never the cache that stays.
"""

from planner.arithmetic import ceil_div
from planner.formula import formula


@formula("B", source="dao-2022", equation="algorithm 0")
def score_bytes(batch, n_heads, context, elem_bytes):
    """Bytes of the score matrix of one layer, where a kernel writes it out.

    >>> score_bytes(1, 32, 8192, 2)     # Llama-3.1-8B in bf16
    4294967296
    """
    return batch * n_heads * context**2 * elem_bytes


@formula("B", source="dao-2022", equation="algorithm 1 and theorem 1", validity="one layer, forward")
def tiled_statistics_bytes(batch, n_heads, context, elem_bytes):
    """Bytes that attention in tiles keeps of one layer: the largest score and the sum of each query.

    >>> tiled_statistics_bytes(1, 32, 8192, 4)     # Llama-3.1-8B, in fp32
    2097152
    """
    return 2 * batch * n_heads * context * elem_bytes


@formula("B", source="dao-2022", equation="algorithm 0 and theorem 2", validity="one layer, forward, no mask skipped")
def naive_attention_traffic(batch, n_heads, context, head_dim, elem_bytes):
    """Bytes read and written by attention that stores its scores: Q, K, V and O once, scores and weights twice each.

    >>> naive_attention_traffic(64, 16, 1024, 64, 2)     # GPT-2 medium, as measured in the paper
    9126805504
    """
    return batch * n_heads * (4 * context * head_dim + 4 * context**2) * elem_bytes


@formula(
    "B",
    source="dao-2022",
    equation="algorithm 1 and theorem 2",
    validity="one layer, forward, no mask skipped; d <= M <= S d in elements; the first FlashAttention, which goes "
    "over the queries once for each block of keys, and not its successors",
)
def tiled_attention_traffic(batch, n_heads, context, head_dim, on_chip_bytes, elem_bytes):
    """Bytes read and written by attention in tiles that fit on chip, which never stores its scores.

    K and V go through once. For each block of M/4d keys, Q is read, and O and its two running statistics are read and
    written: S²d²/M in all, where the scores would be S².

    >>> tiled_attention_traffic(64, 16, 1024, 64, 192 * 1024, 2)     # GPT-2 medium on an A100
    1501560832
    """
    block = ceil_div(on_chip_bytes, 4 * head_dim * elem_bytes)
    each_block = context * (3 * head_dim + 4)
    return batch * n_heads * (2 * context * head_dim + ceil_div(context, block) * each_block) * elem_bytes


@formula("B", source="vaswani-2017", equation="section 3.4")
def logits_bytes(batch, emitted, vocab_size, elem_bytes):
    """Bytes of the logits of a pass.

    >>> logits_bytes(1, 8192, 128256, 4)     # Llama-3.1-8B in fp32, all positions of a prompt
    4202692608
    """
    return batch * emitted * vocab_size * elem_bytes


@formula("B", source="pope-2023", equation="section 2", validity="every weight in one format, without scales")
def weight_bytes(parameters, weight_elem_bytes):
    """Bytes of all weights.

    >>> weight_bytes(8_030_261_248, 2)     # Llama-3.1-8B in bf16
    16060522496
    """
    return parameters * weight_elem_bytes


@formula("B", source="pope-2023", equation="section 2", validity="a dense model: every weight is read in every step")
def decode_step_traffic(weight_bytes, batch, context, kv_bytes_per_token):
    """Bytes that one decode step reads: all weights once for the batch, and each sequence's cache.

    >>> decode_step_traffic(16_060_522_496, 16, 8192, 131_072)     # Llama-3.1-8B in bf16
    33240391680
    """
    return weight_bytes + batch * context * kv_bytes_per_token


@formula("FLOP/B", source="shazeer-2019", equation="section 3", validity="keys as wide as values")
def decode_attention_intensity(n_heads, n_kv_heads, kv_elem_bytes):
    """Work of the attention core of a decode step for each cache byte read; neither batch nor context changes it.

    >>> decode_attention_intensity(32, 8, 2)     # Llama-3.1-8B in bf16
    4.0
    """
    return 2 * n_heads / (n_kv_heads * kv_elem_bytes)


@formula("FLOP/B", source="williams-2009", equation="ridge point")
def ridge_intensity(flops_per_s, memory_bytes_per_s):
    """Work for each byte at which a device is as busy calculating as reading.

    >>> round(ridge_intensity(989e12, 3.35e12), 1)     # H100 SXM, dense bf16
    295.2
    """
    return flops_per_s / memory_bytes_per_s
