"""The key/value cache: payload, that is the elements of the tensors times their bytes.

Blocks, scales, padding, fragmentation and what an engine reserves are not payload.
"""

from planner.arithmetic import minimum
from planner.formula import formula


@formula("1", source="ainslie-2023", equation="section 2.2")
def kv_elements(n_kv_heads, head_dim, v_head_dim):
    """Elements that one layer keeps of one position: a key and a value for each key/value head.

    >>> kv_elements(8, 128, 128)     # Llama-3.1-8B
    2048
    """
    return n_kv_heads * (head_dim + v_head_dim)


@formula("B", source="ainslie-2023", equation="section 2.2", validity="equal layers, keys as wide as values")
def kv_payload(n_layers, batch, context, n_kv_heads, head_dim, kv_elem_bytes):
    """Payload of the cache of equal layers: one key and one value for each position, head and layer.

    MHA has n_kv_heads = n_heads, MQA has n_kv_heads = 1.

    >>> kv_payload(32, 1, 128_000, 8, 128, 2)     # Llama-3.1-8B in bf16
    16777216000
    """
    return 2 * n_layers * batch * context * n_kv_heads * head_dim * kv_elem_bytes


@formula("B", source="ainslie-2023", equation="section 2.2", validity="equal layers, keys as wide as values")
def kv_payload_ragged(n_layers, resident_tokens, n_kv_heads, head_dim, kv_elem_bytes):
    """Payload of the cache of sequences of unequal length: only the sum of the lengths counts.

    >>> kv_payload_ragged(32, 1000 + 20, 8, 128, 2)     # Llama-3.1-8B in bf16, two sequences
    133693440
    """
    return kv_payload(n_layers, 1, resident_tokens, n_kv_heads, head_dim, kv_elem_bytes)


@formula("B/token", source="ainslie-2023", equation="section 2.2", validity="equal layers, keys as wide as values")
def kv_payload_per_token(n_layers, n_kv_heads, head_dim, kv_elem_bytes):
    """Payload of one position in all layers.

    >>> kv_payload_per_token(32, 32, 128, 2)     # Llama-2-7B in fp16: multi-head
    524288
    """
    return kv_payload(n_layers, 1, 1, n_kv_heads, head_dim, kv_elem_bytes)


@formula("B", source="jiang-2023", equation="section 2, rolling buffer cache", validity="every layer has the window")
def kv_payload_windowed(n_layers, batch, context, window, n_kv_heads, head_dim, kv_elem_bytes):
    """Payload of the cache during a pass when a query sees no more than a window of positions.

    Between passes the oldest position is not needed any more, and window - 1 are enough.

    >>> kv_payload_windowed(32, 1, 32_768, 4096, 8, 128, 2)     # Mistral-7B-v0.1 in bf16
    536870912
    """
    return kv_payload(n_layers, batch, minimum(context, window), n_kv_heads, head_dim, kv_elem_bytes)


@formula("B", source="deepseek-2024", equation="table 1")
def mla_payload(n_layers, batch, context, kv_lora_rank, rope_head_dim, kv_elem_bytes):
    """Payload of the cache of latent attention: one joint latent and one rotary key for each position and layer.

    >>> mla_payload(61, 1, 128_000, 512, 64, 2)     # DeepSeek-V3 in bf16
    8994816000
    """
    return n_layers * batch * context * (kv_lora_rank + rope_head_dim) * kv_elem_bytes


@formula("B/token", source="deepseek-2024", equation="table 1")
def mla_payload_per_token(n_layers, kv_lora_rank, rope_head_dim, kv_elem_bytes):
    """Payload of one position of latent attention in all layers.

    >>> mla_payload_per_token(61, 512, 64, 2)     # DeepSeek-V3 in bf16
    70272
    """
    return mla_payload(n_layers, 1, 1, kv_lora_rank, rope_head_dim, kv_elem_bytes)


@formula("1", source="ainslie-2023", equation="section 2.2", validity="all else equal")
def cache_saved_by_grouping(n_heads, n_kv_heads):
    """How many times smaller the cache becomes when query heads share key/value heads; a storage ratio, not a quality.

    >>> cache_saved_by_grouping(64, 8)     # Llama-3.1-70B against its multi-head form
    8.0
    """
    return n_heads / n_kv_heads


@formula("1", source="deepseek-2024", equation="table 1", validity="all else equal")
def mla_over_mqa_cache(kv_lora_rank, rope_head_dim, head_dim):
    """How many times larger the cache of latent attention is than that of one shared key/value head.

    DeepSeek-V2's 4.5 head widths for each position and layer stand against MQA's 2.

    >>> mla_over_mqa_cache(512, 64, 128)     # DeepSeek-V2
    2.25
    """
    return (kv_lora_rank + rope_head_dim) / (2 * head_dim)
