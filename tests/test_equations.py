"""Block equations of every preset, as text and as LaTeX, and the contract as a document."""

import re

import pytest

import planner
from planner.branch_equations import branch, norm_line, space
from planner.components.feed_forward import FeedForward
from planner.components.norm import LayerNorm, RMSNorm
from planner.components.state_space import Mamba2
from planner.contract import Layer
from planner.editing import flatten
from planner.equations import Equation, contract_document, equations
from planner.notation import plain
from planner.sources import presets

NORM = RMSNorm(eps=1e-6)


def texts(name, place):
    return [line.text for line in equations(planner.load(name)) if line.label == place]


def test_a_decoder_from_token_to_logits():
    assert list(map(str, equations(planner.load("llama-3.1-8b")))) == [
        "embedding: x = E_t,  E ∈ R^(128,256 × 4,096)",
        "layers[0]: in 32 of 32 layers",
        "layers[0]: x ← x + A(N(x))",
        "layers[0]: x ← x + F(N(x))",
        "layers[0].norm: N(x) = x / √(mean(x^2) + 1 · 10^-5) ⊙ γ",
        "layers[0].mixer: q = n W_Q,  W_Q ∈ R^(4,096 × 32 · 128)",
        "layers[0].mixer: k = n W_K,  W_K ∈ R^(4,096 × 8 · 128)",
        "layers[0].mixer: v = n W_V,  W_V ∈ R^(4,096 × 8 · 128)",
        "layers[0].mixer: q, k ← rope_i(q, k),  θ_r = 500,000^(-2 r / 128)  (in pairs of halves)",
        "layers[0].mixer: θ ← llama3(factor = 8, original_positions = 8,192, "
        "low_freq_factor = 1, high_freq_factor = 4)",
        "layers[0].mixer: z_(h,i,j) = (q_(h,i) · k_(g,j)) / √128,  g = ⌊h / 4⌋,  j ≤ i",
        "layers[0].mixer: A(n) = concat_h (Σ_j softmax_j(z_(h,i,j)) v_(g,j)) W_O,  W_O ∈ R^(32 · 128 × 4,096)",
        "layers[0].feed_forward: F(n) = (silu(n W_G) ⊙ (n W_U)) W_D,  "
        "W_G, W_U ∈ R^(4,096 × 14,336),  W_D ∈ R^(14,336 × 4,096)",
        "final_norm: N(x) = x / √(mean(x^2) + 1 · 10^-5) ⊙ γ",
        "output: logits = N(x) W,  W ∈ R^(4,096 × 128,256)",
    ]


def test_latent_attention():
    assert texts("deepseek-v3", "layers[1].mixer") == [
        "c^Q = N(n W_DQ),  W_DQ ∈ R^(7,168 × 1,536)",
        "[q^C; q^R] = c^Q W_UQ,  W_UQ ∈ R^(1,536 × 128 · (128 + 64))",
        "[c; k^R] = n W_DKV,  W_DKV ∈ R^(7,168 × (512 + 64))",
        "c ← N(c)  (c and rotated k^R are cached)",
        "[k^C; v] = c W_UKV,  W_UKV ∈ R^(512 × 128 · (128 + 128))",
        "q^R, k^R ← rope_i(q^R, k^R),  θ_r = 10,000^(-2 r / 64)  (in pairs of neighbours)",
        "θ ← yarn(factor = 40, original_positions = 4,096, beta_fast = 32, beta_slow = 1, "
        "mscale = 1, mscale_all_dim = 1, truncate = true)",
        "z_(h,i,j) = 0.13523377886088 (q^C_(h,i) · k^C_(h,j) + q^R_(h,i) · k^R_j),  j ≤ i",
        "A(n) = concat_h (Σ_j softmax_j(z_(h,i,j)) v_(h,j)) W_O,  W_O ∈ R^(128 · 128 × 7,168)",
    ]


def test_mixture_of_experts():
    assert texts("deepseek-v3", "layers[1].feed_forward")[:3] == [
        "s = sigmoid(n W_R),  W_R ∈ R^(7,168 × 256)",
        "T = top_8(s + b)  in the best 4 of 8 groups",
        "F(n) = 2.5 Σ_(e ∈ T) s_e / (Σ_(f ∈ T) s_f) F_e(n) + F_s(n)",
    ]
    assert texts("gpt-oss-20b", "layers[0].feed_forward")[:3] == [
        "s = n W_R + b_R,  W_R ∈ R^(2,880 × 32)",
        "T = top_4(s)",
        "F(n) = Σ_(e ∈ T) softmax_T(s)_e F_e(n)",
    ]


@pytest.mark.parametrize(
    ("name", "place", "line"),
    [
        ("gemma-2-9b", "layers", "in the order local, global, again and again"),
        ("gemma-2-9b", "layers[0]", "in 21 of 42 layers, local"),
        ("gemma-2-9b", "layers[0]", "x ← x + N(A(N(x)))"),
        ("gemma-2-9b", "layers[0].norm", "N(x) = x / √(mean(x^2) + 1 · 10^-6) ⊙ (1 + γ)"),
        (
            "gemma-2-9b",
            "layers[0].mixer",
            "z_(h,i,j) = 50 tanh((0.0625 q_(h,i) · k_(g,j)) / 50),  g = ⌊h / 2⌋,  i - 4,096 < j ≤ i",
        ),
        ("gemma-2-9b", "output", "logits = 30 tanh((N(x) E^T) / 30)"),
        ("gpt2", "embedding", "x = E_t + P_i,  E ∈ R^(50,257 × 768),  P ∈ R^(1,024 × 768)"),
        ("opt-350m", "layers[0]", "x ← N(x + A(x))"),
        ("opt-350m", "output", "logits = x W_out E^T,  W_out ∈ R^(1,024 × 512)"),
        ("olmo-2-7b", "layers[0]", "x ← x + N(A(x))"),
        ("olmo-2-7b", "layers[0].mixer", "q, k ← N(q), N(k)  over all heads at once"),
        ("command-r", "layers[0]", "x ← x + A(n) + F(n)"),
        ("command-r", "output", "logits = 0.0625 N(x) E^T"),
        ("falcon-40b", "layers[0]", "n = N(x)  (each with its own N)"),
        ("falcon-7b", "layers[0].mixer", "z_(h,i,j) = (q_(h,i) · k_(g,j)) / √64,  g = 0,  j ≤ i"),
        ("bloom-176b", "layers[0].mixer", "z_(h,i,j) = (q_(h,i) · k_(g,j)) / √128 - m_h (i - j),  g = h,  j ≤ i"),
        ("bloom-176b", "layers[0].feed_forward", None),
        ("gpt-oss-20b", "layers[0].mixer", "softmax with one more logit s_h that has no value"),
        ("gpt-oss-20b", "layers[0].feed_forward", "with clip = 7"),
        ("glm-4.5", "layers[0].mixer", None),
    ],
)
def test_what_is_particular(name, place, line):
    assert line is None or line in texts(name, place)
    assert texts(name, place)


@pytest.mark.parametrize("name", presets.names())
def test_every_preset(name):
    model = planner.load(name)
    lines = equations(model)
    assert [line.label for line in lines].count("output") == 1
    assert {f"layers[{index}]" for index in range(len(model.layers))} <= {line.label for line in lines}
    for line in lines:
        assert line.latex.count("{") == line.latex.count("}")
        assert len(re.findall(r"\\left(?!arrow)", line.latex)) == len(re.findall(r"\\right", line.latex))
        assert not re.search(r"[\\{}\t]|   |None|\s$", line.text), line.text
        assert not re.search(r"(?<!\\)_", "".join(re.findall(r"\\text\{([^{}]*)\}", line.latex)))


def test_a_component_without_a_writer_shows_its_matrices():
    part = Mamba2(n_heads=8, head_dim=16, d_state=32, conv_kernel=4)
    lines = [plain(line) for line in branch(part, "A", 64)]
    tensors = part.bill(64).tensors
    assert lines[0] == "A(n) = mamba2(n)"
    assert len([line for line in lines if " ∈ R^" in line]) == len(tensors)
    assert "with d_state = 32" in lines


def test_a_field_that_no_equation_shows_is_named():
    part = FeedForward(d_ff=8, gate_scale=2.0)
    assert [plain(line) for line in branch(part, "F", 4)][1:] == ["with gate_scale = 2"]


@pytest.mark.parametrize(
    ("norm", "line"),
    [
        (RMSNorm(eps=1e-6, weight=False), "N(x) = x / √(mean(x^2) + 1 · 10^-6)"),
        (LayerNorm(eps=0.5, bias=False), "N(x) = (x - mean(x)) / √(var(x) + 0.5) ⊙ γ"),
    ],
)
def test_norms(norm, line):
    assert plain(norm_line(norm)) == line


@pytest.mark.parametrize(
    ("residual", "lines"),
    [
        ("pre", ["x ← 0.5 x + 2 F(N(x))"]),
        ("post", ["x ← N(0.5 x + 2 F(x))"]),
        ("reordered", ["x ← 0.5 x + 2 N(F(x))"]),
        ("sandwich", ["x ← 0.5 x + 2 N(F(N(x)))"]),
        ("normed", ["x ← N(x)", "x ← 0.5 x + 2 F(x)"]),
    ],
)
def test_residual_orders(residual, lines):
    feed_forward = FeedForward(d_ff=8)
    layer = Layer(
        count=2, feed_forward=feed_forward, norm=NORM, residual=residual, residual_scale=2.0, stream_scale=0.5
    )
    model = planner.Architecture(name="toy", vocab_size=10, d_model=4, layers=(layer,))
    assert [line.text for line in equations(model) if line.label == "layers[0]"][1:] == lines


def test_plain_text():
    assert plain(r"\frac{a + b}{\sqrt{c}} \le \operatorname{f}(\alpha_{12})^{2}") == "(a + b) / √c ≤ f(α_12)^2"
    assert space(4096, (32, 128)) == r"\mathbb{R}^{4{,}096 \times 32 \cdot 128}"
    assert str(Equation("here", r"\gamma \odot x")) == "here: γ ⊙ x"


def test_the_contract_as_a_document():
    document = contract_document(planner.load("llama-3.1-8b"))
    assert document.startswith(
        "# Llama 3.1 8B\n\n32 layers, 8,030,261,248 parameters, of which a token uses 8,030,261,248.\n\n## The whole\n"
    )
    for row in (
        "| vocab_size | 128,256 |",
        "| layers[0].mixer.n_kv_heads | 8 |",
        "| layers[0].mixer.window | – |",
        "| layers[0].mixer.position.scaling.kind | llama3 |",
        "| output.tied | false |",
        "| final_norm.eps | 1e-05 |",
    ):
        assert row in document.splitlines()
    assert "z_(h,i,j) = (q_(h,i) · k_(g,j)) / √128" in document
    assert r"\frac{q_{h,i} \cdot k_{g,j}}{\sqrt{128}}" in document


@pytest.mark.parametrize("name", presets.names())
def test_every_field_is_in_the_document(name):
    model = planner.load(name)
    rows = re.findall(r"^\| (\S+) \| .* \|$", contract_document(model), re.MULTILINE)
    assert sorted(path for path in rows if path != "field") == sorted(path for path, _ in flatten(model))


def test_what_a_user_wrote_breaks_no_latex():
    label = r"a_b {c} \d $ %"
    model = planner.edit(planner.load("mha"), {"layers[0].label": label})
    line = next(line for line in equations(model) if line.label == "layers[0]")
    assert line.latex == r"\text{in 32 of 32 layers, a\_b \{c\} \\d \$ \%}"
    assert line.text == f"in 32 of 32 layers, {label}"


def test_what_a_user_wrote_breaks_no_table():
    model = planner.edit(planner.load("mha"), title="a | b\n# c")
    assert "| title | a \\| b # c |" in contract_document(model).splitlines()
