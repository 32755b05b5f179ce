"""Parameters: of a norm, a feed-forward, an attention, and of decoders made of equal pre-norm layers without biases."""

from planner.arithmetic import ceil_div, exact_div
from planner.formula import formula


@formula("1", source="zhang-2019", equation="eq. 4")
def rms_norm_parameters(d_model):
    """Parameters of one RMSNorm: a gain for each component.

    >>> rms_norm_parameters(4096)     # Llama-3.1-8B
    4096
    """
    return d_model


@formula("1", source="ba-2016", equation="eq. 4")
def layer_norm_parameters(d_model):
    """Parameters of one LayerNorm: a gain and a bias for each component.

    >>> layer_norm_parameters(768)     # GPT-2
    1536
    """
    return 2 * d_model


@formula("1", source="vaswani-2017", equation="eq. 2, without its biases")
def ffn_parameters(d_model, d_ff):
    """Parameters of a feed-forward of two matrices, without biases.

    >>> ffn_parameters(768, 3072)     # GPT-2, whose biases come on top
    4718592
    """
    return 2 * d_model * d_ff


@formula("1", source="shazeer-2020", equation="eq. 6")
def gated_ffn_parameters(d_model, d_ff):
    """Parameters of a gated feed-forward such as SwiGLU: three matrices, without biases.

    >>> gated_ffn_parameters(4096, 14336)     # Llama-3.1-8B
    176160768
    """
    return 3 * d_model * d_ff


@formula("1", source="shazeer-2020", equation="section 2")
def equal_budget_width(d_model):
    """Hidden width at which a gated feed-forward has the parameters of a plain one of width 4d, before rounding.

    A rule about the parameter budget, not a property of the gate; equal parameters are not equal run time.

    >>> equal_budget_width(768)
    2048.0
    """
    return 8 * d_model / 3


@formula(
    "1",
    source="touvron-2023",
    equation="section 2.2, rounded up as its code does",
    validity="8d/3 less than one above a multiple is rounded down by that code",
)
def equal_budget_width_rounded(d_model, width_multiple):
    """The equal-budget hidden width, rounded up to a multiple that suits the hardware.

    >>> equal_budget_width_rounded(4096, 256)     # LLaMA-7B
    11008
    """
    return ceil_div(8 * d_model, 3 * width_multiple) * width_multiple


@formula("1", source="ainslie-2023", equation="section 2.2")
def attention_projection_parameters(d_model, n_heads, n_kv_heads, head_dim):
    """Parameters of the query, output, key and value projections of one layer, without biases.

    MHA has n_kv_heads = n_heads and, where the heads fill the width, 4d²; MQA has n_kv_heads = 1.

    >>> attention_projection_parameters(4096, 32, 8, 128)     # Llama-3.1-8B
    41943040
    """
    return 2 * d_model * n_heads * head_dim + 2 * d_model * n_kv_heads * head_dim


@formula("1", source="press-2017", equation="section 2")
def embedding_parameters(d_model, vocab_size):
    """Parameters of one embedding table, which is also what tying the output matrix to it saves.

    >>> embedding_parameters(768, 50257)     # GPT-2, tied
    38597376
    """
    return vocab_size * d_model


@formula("1", source="kaplan-2020", equation="table 1, for gated layers of grouped heads, with norms and both tables")
def dense_parameters(vocab_size, d_model, n_layers, n_heads, n_kv_heads, head_dim, d_ff):
    """Parameters of a decoder of equal gated layers with RMSNorm, no biases and an output matrix of its own.

    A tied output matrix saves `embedding_parameters`.

    >>> dense_parameters(128256, 4096, 32, 32, 8, 128, 14336)     # Llama-3.1-8B
    8030261248
    """
    attention = attention_projection_parameters(d_model, n_heads, n_kv_heads, head_dim)
    layer = attention + gated_ffn_parameters(d_model, d_ff) + 2 * rms_norm_parameters(d_model)
    return 2 * embedding_parameters(d_model, vocab_size) + n_layers * layer + rms_norm_parameters(d_model)


@formula("1", source="jiang-2024", equation="section 2.1")
def routed_expert_parameters(n_layers, d_model, n_experts, d_ff):
    """Parameters of all routed experts, each a gated feed-forward of width d_ff.

    >>> routed_expert_parameters(32, 4096, 8, 14336)     # Mixtral-8x7B
    45097156608
    """
    return gated_ffn_parameters(d_model, d_ff) * n_layers * n_experts


@formula("1", source="jiang-2024", equation="section 2.1")
def mixture_parameters(vocab_size, d_model, n_layers, n_heads, n_kv_heads, head_dim, n_experts, d_ff):
    """Parameters of a decoder whose layers all route to experts: RMSNorm, no biases, nothing shared, nothing tied.

    >>> mixture_parameters(32000, 4096, 32, 32, 8, 128, 8, 14336)     # Mixtral-8x7B
    46702792704
    """
    attention = attention_projection_parameters(d_model, n_heads, n_kv_heads, head_dim)
    router = d_model * n_experts
    layer = attention + router + 2 * rms_norm_parameters(d_model)
    ends = 2 * embedding_parameters(d_model, vocab_size) + rms_norm_parameters(d_model)
    return ends + n_layers * layer + routed_expert_parameters(n_layers, d_model, n_experts, d_ff)


@formula("1", source="jiang-2024", equation="section 2.1", validity="k chosen among E equal experts in every layer")
def active_parameters(parameters, routed_parameters, n_experts, top_k):
    """Parameters that one token uses: the share k/E of the routed ones, and everything else whole.

    Both embedding tables count as used.

    >>> active_parameters(46702792704, 45097156608, 8, 2)     # Mixtral-8x7B
    12879925248
    """
    return parameters - routed_parameters + exact_div(routed_parameters * top_k, n_experts)
