"""The lists of a bill, and the passes that there cannot be."""

import pytest

from planner.bill import Pass, linear
from planner.errors import UsageError


def test_a_linear_map_is_a_matrix_a_bias_and_a_product():
    made = linear("up", 3, 5, "ffn_dense", bias=True)
    assert [(t.id, t.shape, t.role, t.component) for t in made.tensors] == [
        ("up.weight", (5, 3), "ffn_dense", "ffn_dense"),
        ("up.bias", (5,), "biases", "ffn_dense"),
    ]
    assert [(p.id, p.macs, p.domain, p.reads) for p in made.products] == [("up", 15, "new", ("up.weight",))]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"attention": "dense"}, "attention = 'dense' is none of causal, square"),
        ({"mla": "auto"}, "mla = 'auto' is none of expanded, absorbed, reexpanded"),
        ({"new": -1}, "new = -1 is not a number of positions, 0 or more"),
        ({"past": float("nan")}, "past = nan is not a number of positions, 0 or more"),
        ({"new": True}, "new = True is not a number of positions, 0 or more"),
        ({"prefix": 2, "documents": (1, 2)}, "a pass has either a bidirectional prefix or packed documents, not both"),
    ],
)
def test_a_pass_that_cannot_be_is_refused(fields, sentence):
    with pytest.raises(UsageError) as caught:
        Pass(**fields)
    assert str(caught.value) == sentence
