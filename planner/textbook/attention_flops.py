"""The work of attention, in FLOPs; a multiply-accumulate is two.

Two conventions, never mixed: *causal* counts the query-key pairs that the mask allows, *square* those that a dense
kernel or a framework's counter computes. In the causal one, chunks of a prompt and steps of decoding add up to the
whole.
"""

from planner.arithmetic import triangle
from planner.formula import formula
from planner.textbook.parameters import attention_projection_parameters, gated_ffn_parameters


@formula("FLOP", source="vaswani-2017", equation="eq. 1")
def attention_flops_per_pair(n_heads, head_dim):
    """Work of scores and values for one query-key pair in one layer.

    Sharing key and value heads does not change it: the query heads stay, and each reads what it reads.

    >>> attention_flops_per_pair(32, 128)     # Llama-3.1-8B
    16384
    """
    return 4 * n_heads * head_dim


@formula("FLOP", source="deepseek-2024", equation="section 2.1.2", validity="up-projections absorbed, as in decoding")
def absorbed_mla_flops_per_pair(n_heads, kv_lora_rank, rope_head_dim):
    """Work of latent attention for one query-key pair in one layer: scores on latent and rotary key, values on latent.

    >>> absorbed_mla_flops_per_pair(128, 512, 64)     # DeepSeek-V3
    278528
    """
    return 2 * n_heads * (2 * kv_lora_rank + rope_head_dim)


@formula("FLOP", source="deepseek-2025", equation="eq. 1")
def indexer_flops_per_pair(index_heads, index_dim):
    """Work of the lightning indexer of sparse attention for one query-key pair in one layer.

    The dot products only: weighting the heads adds one part in index_dim.

    >>> indexer_flops_per_pair(64, 128)     # DeepSeek-V3.2
    16384
    """
    return 2 * index_heads * index_dim


@formula("FLOP", source="ainslie-2023", equation="section 2.2")
def attention_projection_flops_per_token(d_model, n_heads, n_kv_heads, head_dim):
    """Work of the four attention projections on one position in one layer.

    >>> attention_projection_flops_per_token(4096, 32, 8, 128)     # Llama-3.1-8B
    83886080
    """
    return 2 * attention_projection_parameters(d_model, n_heads, n_kv_heads, head_dim)


@formula("FLOP", source="shazeer-2020", equation="eq. 6")
def gated_ffn_flops_per_token(d_model, d_ff):
    """Work of a gated feed-forward on one position in one layer.

    >>> gated_ffn_flops_per_token(4096, 14336)     # Llama-3.1-8B
    352321536
    """
    return 2 * gated_ffn_parameters(d_model, d_ff)


@formula("FLOP", source="vaswani-2017", equation="eq. 1, over the causal pairs")
def decode_attention_flops(n_layers, batch, past, new, n_heads, head_dim):
    """Work of the attention core in as many decode steps as there are new positions: the TP + T² law.

    One pass over all of them, with the past cached, takes the same.

    >>> decode_attention_flops(32, 1, 2048, 1, 32, 128)     # Llama-3.1-8B, one step
    1074266112
    """
    pairs = new * past + triangle(new)
    return attention_flops_per_pair(n_heads, head_dim) * n_layers * batch * pairs


@formula("FLOP", source="vaswani-2017", equation="eq. 1, over the causal pairs")
def prefill_attention_flops(n_layers, batch, context, n_heads, head_dim):
    """Work of the attention core when a prompt is read: the S² law.

    >>> prefill_attention_flops(32, 1, 2048, 32, 128)     # Llama-3.1-8B
    1100048498688
    """
    return decode_attention_flops(n_layers, batch, 0, context, n_heads, head_dim)


@formula("FLOP", source="vaswani-2017", equation="eq. 1, over all pairs")
def square_attention_flops(n_layers, batch, past, new, n_heads, head_dim):
    """Work of the attention core in one pass that computes every query with every key; a prompt has no past.

    >>> square_attention_flops(32, 1, 0, 2048, 32, 128)     # Llama-3.1-8B
    2199023255552
    """
    return attention_flops_per_pair(n_heads, head_dim) * n_layers * batch * new * (past + new)
