"""Mamba, Mamba-2 and Falcon-Mamba: decoders of state spaces alone, and the keys that hybrids share with them."""

from __future__ import annotations

from typing import Any

from planner.components.norm import Norm, RMSNorm
from planner.components.state_space import Mamba, Mamba2
from planner.contract import Architecture, Layer
from planner.sources.config_json import Config, family
from planner.sources.families import common as read

# How step widths start and are bounded, how kernels cut the scan: nothing of it changes a shape or a count.
WITHOUT_INFLUENCE = """
    time_step_min time_step_max time_step_floor time_step_limit time_step_scale time_step_init_scheme chunk_size
    mamba_chunk_size mamba_dt_min mamba_dt_max mamba_dt_limit mamba_dt_init_floor residual_in_fp32 num_logits_to_keep
    use_mamba_kernels use_mambapy use_falcon_mambapy use_associative_scan use_mem_eff_path
    """.split()


@family("mamba", "falcon_mamba")
def mamba(c: Config) -> Architecture:
    """Mamba; Falcon-Mamba norms step width, B and C without weights."""
    norm, width = _norm(c), read.d_model(c)
    inner = c.count("intermediate_size", "d_inner", default=c.count("expand", default=2) * width)
    mixer = Mamba(
        d_inner=inner,
        d_state=read.size(c, "state_size", "d_state", default=16),
        conv_kernel=read.size(c, "conv_kernel", "d_conv", default=4),
        dt_rank=step_rank(c, "time_step_rank", width),
        conv_bias=c.flag("use_conv_bias", default=True),
        bias=c.flag("use_bias"),
        inner_norm=_inner_norm(c),
    )
    c.fixed("hidden_act", to="silu")
    c.ignore("expand", "fused_add_norm", "pad_vocab_size_multiple", "rms_norm", "ssm_cfg", *WITHOUT_INFLUENCE)
    return read.decoder(c, read.each(c, Layer(count=1, mixer=mixer, norm=norm)), norm, tied=True)


def _norm(c: Config) -> RMSNorm:
    return RMSNorm(eps=c.positive("layer_norm_epsilon", "norm_epsilon", "rms_norm_eps", default=1e-5))


def _inner_norm(c: Config) -> Norm | None:
    if c.model_type != "falcon_mamba":
        return None
    return RMSNorm(eps=c.positive("mixer_rms_eps", default=1e-6), weight=False)


def step_rank(c: Config, name: str, width: int) -> int:
    """The rank of the step width's matrix: stated, or ``auto``, a sixteenth of the model's width, rounded up."""
    if c.raw(name, default="auto") == "auto":
        return -(-width // 16)
    rank: int = c.count(name)
    return rank


@family("mamba2")
def mamba2(c: Config) -> Architecture:
    """Mamba-2: the norm stands on the gated output of each group's heads."""
    norm = _norm(c)
    mixer = mamba2_mixer(
        c,
        norm=norm if c.flag("rms_norm", default=True) else None,
        norm_by_group=True,
        n_heads=read.size(c, "num_heads", default=128),
        head_dim=read.size(c, "head_dim", default=64),
        d_state=read.size(c, "state_size", default=128),
        n_groups=read.size(c, "n_groups", default=8),
        conv_kernel=read.size(c, "conv_kernel", default=4),
        conv_bias=c.flag("use_conv_bias", default=True),
        bias=c.flag("use_bias"),
        d_inner=c.count("intermediate_size", default=c.count("expand", default=2) * read.d_model(c)),
    )
    c.fixed("hidden_act", to="silu")
    return read.decoder(c, read.each(c, Layer(count=1, mixer=mixer, norm=norm)), norm)


def mamba2_mixer(c: Config, *, d_inner: int | None = None, **fields: Any) -> Mamba2:
    """Mamba-2 whose heads together have the width that the file states."""
    c.ignore("norm_before_gate", "time_step_rank", *WITHOUT_INFLUENCE)
    heads, width = fields["n_heads"], fields["head_dim"]
    if d_inner is not None and heads * width != d_inner:
        raise c.refuse(f"{heads} heads of {width} are not the inner width {d_inner} of the state space")
    return Mamba2(**fields)


def hybrid_mamba2(c: Config, *, norm: Norm | None, **fields: Any) -> Mamba2:
    """Mamba-2 by the keys that begin with ``mamba_``: Bamba, Falcon-H1, Granite 4."""
    heads = read.size(c, "mamba_n_heads", default=128)
    inner = c.count("mamba_d_ssm", default=None) or c.count("mamba_expand", default=2) * read.d_model(c)
    c.ignore("mamba_expand")
    width = None if c.raw("mamba_d_head", default="auto") == "auto" else c.count("mamba_d_head")
    if width is None and inner % heads:
        raise c.refuse(f"mamba_n_heads = {heads} does not divide the inner width {inner} of the state space")
    return mamba2_mixer(
        c,
        norm=norm,
        n_heads=heads,
        head_dim=width or inner // heads,
        d_state=read.size(c, "mamba_d_state", default=256),
        n_groups=read.size(c, "mamba_n_groups", default=1),
        conv_kernel=read.size(c, "mamba_d_conv", default=4),
        conv_bias=c.flag("mamba_conv_bias", default=True),
        bias=c.flag("mamba_proj_bias"),
        d_inner=inner,
        **fields,
    )
