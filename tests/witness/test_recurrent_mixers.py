"""Mixers with a state against their papers' closed sums: no state is carried, every pair of positions is weighed.

The forwards, and `planner.witness.reference_states`, carry a state from one position to the next. Here each output is
one sum over all earlier inputs, in float64.
"""

import numpy as np
import pytest

from planner.components.gated_recurrence import GatedRecurrence
from planner.components.linear_attention import GatedDeltaNet, KimiDeltaAttention, LightningAttention
from planner.components.norm import RMSNorm
from planner.components.short_convolution import ShortConvolution
from planner.components.side_by_side import SideBySide
from planner.components.state_space import Mamba, Mamba2
from planner.witness import Witness, random_weights
from tests.witness.builders import NORM, attention, decoder, layer, tokens

LENGTH, D_MODEL = 11, 16


def mamba(**fields):
    return Mamba(d_inner=12, d_state=3, conv_kernel=4, dt_rank=2, **fields)


def mamba2(**fields):
    return Mamba2(n_heads=6, head_dim=4, d_state=5, n_groups=2, conv_kernel=3, **fields)


def delta_net(**fields):
    sizes = {"n_key_heads": 2, "n_value_heads": 6, "key_head_dim": 4, "value_head_dim": 3, "conv_kernel": 4}
    return GatedDeltaNet(**sizes, norm=NORM, **fields)


def kimi_delta():
    return KimiDeltaAttention(n_heads=3, head_dim=4, conv_kernel=4, norm=NORM)


def lightning():
    return LightningAttention(n_heads=4, head_dim=5, norm=NORM)


def gated_recurrence():
    return GatedRecurrence(width=12, n_heads=3, conv_kernel=4)


MIXERS = {
    "mamba": mamba(),
    "mamba with biases": mamba(bias=True, conv_bias=False),
    "mamba with norms": mamba(inner_norm=NORM),
    "mamba with plain norms": mamba(inner_norm=RMSNorm(eps=1e-6, weight=False)),
    "mamba2": mamba2(),
    "mamba2 with norm": mamba2(norm=NORM),
    "mamba2 with norm by group": mamba2(norm=NORM, norm_by_group=True, bias=True),
    "mamba2 with norm before gate": mamba2(norm=NORM, norm_by_group=True, norm_before_gate=True),
    "mamba2 with scales": mamba2(scales=(0.5, 0.7, 1.3, 2.0, 1.1)),
    "delta net": delta_net(),
    "kimi delta attention": kimi_delta(),
    "lightning attention": lightning(),
    "gated recurrence": gated_recurrence(),
    "short convolution": ShortConvolution(conv_kernel=3),
    "short convolution with biases": ShortConvolution(conv_kernel=3, bias=True),
}


def silu(x):
    return x / (1 + np.exp(-x))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.log1p(np.exp(x))


def rms(x, eps=1e-6):
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)


class Weights(dict):
    def linear(self, id, x):
        return x @ self[f"{id}.weight"].T + self.get(f"{id}.bias", 0)

    def convolved(self, x, id="conv"):
        """NumPy's own convolution, channel by channel."""
        filters = self[f"{id}.weight"][:, 0, ::-1]
        columns = [np.convolve(column, taps)[: len(x)] for column, taps in zip(x.T, filters, strict=True)]
        return np.stack(columns, axis=1) + self.get(f"{id}.bias", 0)


def products_between(a):
    """[S, ...] -> [S, S, ...]: entry (t, s) is a[s + 1] ... a[t], 1 on the diagonal, 0 above it."""
    out = np.zeros((len(a), *a.shape))
    for t in range(len(a)):
        for s in range(t + 1):
            out[t, s] = np.prod(a[s + 1 : t + 1], axis=0)
    return out


def of_mamba(m, x, w):
    """Gu and Dao 2023, eq. 2a and 2b, unrolled: y_t = sum_s C_t (prod_r exp(step_r A)) step_s B_s u_s + D u_t."""
    u, z = np.split(w.linear("in", x), 2, axis=-1)
    u = silu(w.convolved(u))
    low, b, c = np.split(w.linear("x", u), [m.dt_rank, m.dt_rank + m.d_state], axis=-1)
    if m.inner_norm is not None:
        low, b, c = (
            rms(part) * w.get(f"{id}.weight", 1) for id, part in (("dt_norm", low), ("b_norm", b), ("c_norm", c))
        )
    step = softplus(w.linear("dt", low))
    between = products_between(np.exp(-step[..., None] * np.exp(w["a_log"])))
    y = np.einsum("tn,tscn,sc,sn->tc", c, between, step * u, b) + w["d"] * u
    return w.linear("out", y * silu(z))


def of_mamba2(m, x, w):
    """Dao and Gu 2024, eq. 3: Y = M X, M_ts = C_t^T A_t ... A_(s+1) B_s, one matrix for each head."""
    inner, shared = m.n_heads * m.head_dim, m.n_groups * m.d_state
    parts = np.split(w.linear("in", x), np.cumsum([inner, inner, shared, shared]), axis=-1)
    z, u, b, c, step = (part * scale for part, scale in zip(parts, m.scales or (1,) * 5, strict=True))
    mixed = silu(w.convolved(np.concatenate([u, b, c], axis=-1)))
    u, b, c = np.split(mixed, [inner, inner + shared], axis=-1)
    u, step = u.reshape(len(x), m.n_heads, m.head_dim), softplus(step + w["dt_bias"])
    between = products_between(np.exp(-np.exp(w["a_log"]) * step))
    y = np.zeros_like(u)
    for head in range(m.n_heads):
        group = slice(head * m.n_groups // m.n_heads * m.d_state, (head * m.n_groups // m.n_heads + 1) * m.d_state)
        matrix = between[..., head] * (c[:, group] @ b[:, group].T)
        y[:, head] = matrix @ (step[:, head, None] * u[:, head]) + w["d"][head] * u[:, head]
    y, gate = y.reshape(len(x), inner), silu(z)
    if m.norm is None:
        return w.linear("out", y * gate)
    groups = m.n_groups if m.norm_by_group else 1
    y = y if m.norm_before_gate else y * gate
    y = rms(y.reshape(len(x), groups, -1)).reshape(y.shape) * w["norm.weight"]
    return w.linear("out", y * gate if m.norm_before_gate else y)


def of_delta_net(m, x, w):
    """Yang, Kautz and Hatamizadeh 2025, eq. 10, unrolled, as Qwen3-Next builds it.

    S_t = S_(t-1) (alpha_t (I - beta_t k_t k_t^T)) + beta_t v_t k_t^T, so that S_t is the sum over s of
    beta_s v_s k_s^T times the brackets of s + 1 ... t.
    """
    keys = m.n_key_heads * m.key_head_dim
    q, k, v = np.split(silu(w.convolved(w.linear("qkv", x))), [keys, 2 * keys], axis=-1)
    q, k, v = (part.reshape(len(x), count, -1) for part, count in ((q, 2), (k, 2), (v, 6)))
    q, k = (part / np.sqrt((part**2).sum(axis=-1, keepdims=True) + 1e-6) for part in (q, k))
    beta = sigmoid(w.linear("b", x))
    alpha = np.exp(-np.exp(w["a_log"]) * softplus(w.linear("a", x) + w["dt_bias"]))
    out = np.zeros_like(v)
    for t in range(len(x)):
        for head in range(6):
            g, state = head // 3, np.zeros((m.value_head_dim, m.key_head_dim))
            for s in range(t + 1):
                term = beta[s, head] * np.outer(v[s, head], k[s, g])
                for r in range(s + 1, t + 1):
                    erased = np.eye(m.key_head_dim) - beta[r, head] * np.outer(k[r, g], k[r, g])
                    term = alpha[r, head] * term @ erased
                state += term
            out[t, head] = state @ q[t, g] / np.sqrt(m.key_head_dim)
    out = rms(out) * w["norm.weight"]
    return w.linear("out", out.reshape(len(x), -1) * silu(w.linear("z", x)))


def of_kimi_delta(m, x, w):
    """Kimi Team 2025, Kimi Linear, eq. 1, unrolled, with what section 4 puts around it.

    S_t = (I - beta_t k_t k_t^T) Diag(alpha_t) S_(t-1) + beta_t k_t v_t^T, so that S_t is the sum over s of
    beta_s k_s v_s^T behind the factors of s + 1 ... t, the latest in front.
    """

    def heads(id):
        return silu(w.convolved(w.linear(id, x), f"{id}.conv")).reshape(len(x), m.n_heads, m.head_dim)

    def unit(part):
        return part / np.sqrt((part**2).sum(axis=-1, keepdims=True) + 1e-6)

    q, k, v = unit(heads("q")), unit(heads("k")), heads("v")
    beta = sigmoid(w.linear("b", x))
    step = softplus(w.linear("decay_b", w.linear("decay_a", x)) + w["dt_bias"]).reshape(v.shape)
    alpha = np.exp(-np.exp(w["a_log"])[:, None] * step)
    out = np.zeros_like(v)
    for t in range(len(x)):
        for head in range(m.n_heads):
            state = np.zeros((m.head_dim, m.head_dim))
            for s in range(t + 1):
                term = beta[s, head] * np.outer(k[s, head], v[s, head])
                for r in range(s + 1, t + 1):
                    erased = np.eye(m.head_dim) - beta[r, head] * np.outer(k[r, head], k[r, head])
                    term = erased @ np.diag(alpha[r, head]) @ term
                state += term
            out[t, head] = state.T @ q[t, head] / np.sqrt(m.head_dim)
    out = (rms(out) * w["norm.weight"]).reshape(len(x), -1)
    return w.linear("o", out * sigmoid(w.linear("gate_b", w.linear("gate_a", x))))


def of_lightning(m, x, w):
    """Qin et al. 2024, TransNormerLLM: (Q K^T * M) V, M_ts = exp(-rate (t - s)) up to the diagonal.

    The rates are those of a single layer in MiniMax-01: 2 ** (-8 h / H), h from 1.
    """
    q, k, v = np.split(silu(w.linear("qkv", x)).reshape(len(x), m.n_heads, -1), 3, axis=-1)
    apart = np.arange(len(x))[:, None] - np.arange(len(x))
    out = np.zeros_like(v)
    for head in range(m.n_heads):
        rate = 2 ** (-8 * (head + 1) / m.n_heads) * 1.00001
        out[:, head] = np.where(apart >= 0, np.exp(-rate * apart), 0) * (q[:, head] @ k[:, head].T) @ v[:, head]
    return w.linear("o", sigmoid(w.linear("output_gate", x)) * rms(out.reshape(len(x), -1)) * w["norm.weight"])


def of_gated_recurrence(m, x, w):
    """De et al. 2024, eq. 1 to 4, unrolled: h_t = sum_s a_(s+1) ... a_t sqrt(1 - a_s^2) (i_s u_s).

    a = sigmoid(L) there; stored is -L. The first position enters whole (`modeling_recurrent_gemma.py`).
    """
    u = w.convolved(w.linear("x", x))

    def gate(id):
        blocks = [b @ m for b, m in zip(np.split(u, m.n_heads, axis=-1), w[f"{id}.weight"], strict=True)]
        return sigmoid(np.concatenate(blocks, axis=-1) + w[f"{id}.bias"].reshape(-1))

    a = sigmoid(-w["a_param"]) ** (8 * gate("recurrent_gate"))
    size = np.sqrt(1 - a**2)
    size[0] = 1
    h = np.einsum("tsc,sc->tc", products_between(a), size * gate("input_gate") * u)
    y = w.linear("y", x)
    gelu = 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
    return w.linear("out", h * gelu)


def of_short_convolution(_, x, w):
    """Liquid AI 2025, LFM2: y = (C * conv(B * h)) W."""
    b, c, h = np.split(w.linear("in", x), 3, axis=-1)
    return w.linear("out", c * w.convolved(b * h))


PLAIN = {
    Mamba: of_mamba,
    Mamba2: of_mamba2,
    GatedDeltaNet: of_delta_net,
    KimiDeltaAttention: of_kimi_delta,
    LightningAttention: of_lightning,
    GatedRecurrence: of_gated_recurrence,
    ShortConvolution: of_short_convolution,
}


def run_of(mixer, **fields):
    """A witness of one layer, its mixer's weights by their ids, and an input."""
    model = decoder(layer(mixer, count=1), **fields)
    runner = Witness(model, random_weights(model, seed=3), np.float64)
    prefix = "layers.0.mixer."
    weights = {id.removeprefix(prefix): a for id, a in runner.weights.items() if id.startswith(prefix)}
    return runner, Weights(weights), 2 * np.random.default_rng(5).standard_normal((LENGTH, D_MODEL))


def mixed(runner, x, cache, **options):
    run = runner.run(np.zeros(len(x), int), cache, **options)
    out = runner.model.layers[0].mixer.forward(x, run.layer(0, 0, None).part("mixer"))
    cache.length += len(x)
    return out


@pytest.mark.parametrize("name", MIXERS)
def test_a_mixer_is_its_papers_sum(name):
    mixer = MIXERS[name]
    runner, weights, x = run_of(mixer)
    out = mixed(runner, x, runner.cache())
    np.testing.assert_allclose(out, PLAIN[type(mixer)](mixer, x, weights), rtol=0, atol=1e-12)


def test_mixers_side_by_side_add_what_they_give():
    """Falcon-H1: each reads and gives by scales of its own."""
    pair = SideBySide(mixers=(mamba2(), mamba()), input_scales=(0.5, 2.0), output_scales=(3.0, 0.25))
    runner, weights, x = run_of(pair)
    own = [
        Weights({id.partition(".")[2]: a for id, a in weights.items() if id.startswith(f"mixers[{i}]")}) for i in (0, 1)
    ]
    expected = 3.0 * of_mamba2(pair.mixers[0], 0.5 * x, own[0]) + 0.25 * of_mamba(pair.mixers[1], 2 * x, own[1])
    np.testing.assert_allclose(mixed(runner, x, runner.cache()), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", MIXERS)
def test_documents_begin_anew_wherever_a_pass_is_cut(name):
    """Also where the cut falls just behind a document's first position, whose state still holds the last one's."""
    mixer = MIXERS[name]
    runner, weights, x = run_of(mixer)
    documents, alone = (5, 6), PLAIN[type(mixer)]
    expected = np.concatenate([alone(mixer, part, weights) for part in (x[:5], x[5:])])
    for cuts in ([], [5], [6], [2, 6, 7]):
        cache = runner.cache()
        found = [mixed(runner, part, cache, documents=documents) for part in np.split(x, cuts)]
        np.testing.assert_allclose(np.concatenate(found), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("mixer", "elements"),
    [
        (mamba(), {"conv_state": 12 * 4, "state": 12 * 3}),
        (mamba2(), {"conv_state": (6 * 4 + 2 * 2 * 5) * 3, "state": 6 * 4 * 5}),
        (delta_net(), {"conv_state": (2 * 2 * 4 + 6 * 3) * 4, "state": 6 * 4 * 3}),
        (kimi_delta(), {"conv_state": 3 * 4 * 4, "state": 3 * 4 * 4}),
        (lightning(), {"state": 4 * 5 * 5}),
        (gated_recurrence(), {"conv_state": 12 * 3, "state": 12}),
        (ShortConvolution(conv_kernel=3), {"conv_state": 16 * 3}),
    ],
)
def test_a_state_has_one_size_at_every_length(mixer, elements):
    runner, _, x = run_of(mixer)
    for length in (1, 2, LENGTH):
        cache = runner.cache()
        mixed(runner, x[:length], cache)
        found = {key.rpartition(".")[2]: store.rows.size for key, store in cache.stores.items()}
        assert found == elements


@pytest.mark.parametrize(
    "name", ["lightning attention", "mamba", "mamba2", "delta net", "kimi delta attention", "gated recurrence"]
)
def test_float32_stays_float32(name):
    model = decoder(layer(MIXERS[name]), layer(attention()))
    assert Witness(model, random_weights(model)).forward(tokens(4)).dtype == np.float32


def test_rates_of_lightning_attention():
    """As MiniMax-Text-01 has them: 80 layers of 64 heads, whose last layer hardly forgets."""
    mixer = LightningAttention(n_heads=64, head_dim=128, norm=NORM)
    np.testing.assert_allclose(mixer.rates(0, 80)[[0, 7, 63]], [0.9170133, 0.5000050, 0.00390629], rtol=1e-5)
    np.testing.assert_allclose(mixer.rates(40, 80)[7], 0.5 * (39 / 79 + 1e-5), rtol=1e-5)
    np.testing.assert_allclose(mixer.rates(79, 80)[7], 0.5 * 1.0127e-5, rtol=1e-3)
