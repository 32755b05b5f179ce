"""What a part of a contract checks by itself: numbers when it is made, columns row by row, symbols not at all."""

import math
from typing import Literal

import numpy as np
import pytest

from planner.arithmetic import word
from planner.components.dense_attention import DenseAttention
from planner.components.mixture import Mixture
from planner.components.norm import LayerNorm, Norm, RMSNorm
from planner.components.position import Rope
from planner.errors import ContractError
from planner.spec import (
    LARGEST,
    Count,
    Extent,
    Scale,
    Shown,
    ShownRow,
    check_of,
    leaf,
    leaves,
    literal,
    parts_of,
    shown,
    values,
    violations,
)


def attention(**fields):
    return DenseAttention(**{"n_heads": 8, "n_kv_heads": 2, "head_dim": 64, **fields})


ODD = [None, True, "1", [], {}, 1j, -1, 0, 1, 1.5, math.nan, math.inf, -math.inf, LARGEST + 1]


@pytest.mark.parametrize(
    ("hint", "words", "takes", "more"),
    [
        (Count, "a whole number from 1 to 10^15", [1], [LARGEST]),
        (Extent, "a whole number from 0 to 10^15", [0, 1], [LARGEST]),
        (Scale, "a positive, finite number", [1, 1.5], [LARGEST]),
        (float, "a finite number", [-1, 0, 1, 1.5, LARGEST + 1], []),
        (int, "a whole number", [-1, 0, 1, LARGEST + 1], []),
        (bool, "true or false", [True], [False]),
        (str, "a text", ["1"], [""]),
        (Literal["pre", "post"], "one of pre, post", [], ["pre"]),
        (Count | None, "a whole number from 1 to 10^15 or left out", [None, 1], []),
        (tuple[str, ...], "a list of a text", [], [(), ("a",)]),
        (dict[str, str], "tables of a text", [{}], [{"a": "b"}]),
        (Norm, "a norm", [], [RMSNorm(eps=1e-6)]),
    ],
    ids=str,
)
def test_each_type_takes_its_values_and_no_others(hint, words, takes, more):
    check, said = check_of(hint)
    assert said == words
    assert [value for value in ODD if check(value) is not False] == [
        value for value in ODD if any(type(value) is type(taken) and value == taken for taken in takes)
    ]
    assert all(check(value) is not False for value in more)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: attention(n_heads=7), "n_kv_heads = 2 does not divide n_heads = 7"),
        (lambda: attention(n_heads=0), "n_heads = 0 is not a whole number from 1 to 10^15"),
        (lambda: attention(window=0), "window = 0 is not a whole number from 1 to 10^15 or left out"),
        (lambda: attention(qk_norm=3), "qk_norm = 3 is not a norm or left out"),
        (lambda: attention(position=Rope(base=1e4, width=66)), "position.width exceeds head_dim = 64"),
        (lambda: attention(head_dim=5, position=Rope(base=1e4)), None),
        (lambda: RMSNorm(eps=0), "eps = 0 is not a positive, finite number"),
        (lambda: Mixture(n_experts=4, top_k=5, d_ff=8), "top_k = 5 exceeds n_experts = 4"),
        (
            lambda: Mixture(n_experts=4, top_k=2, d_ff=8, n_groups=3),
            "n_groups = 3 does not divide n_experts = 4",
        ),
        (
            lambda: Mixture(n_experts=4, top_k=2, d_ff=8, shared_gate=True),
            "shared_gate needs a shared expert; d_ff_shared = 0",
        ),
    ],
)
def test_a_broken_rule_is_said_in_one_sentence(make, sentence):
    with pytest.raises(ContractError) as error:
        make()
    assert sentence is None or str(error.value) == sentence


def test_a_column_is_checked_row_by_row():
    part = attention(n_kv_heads=np.array([2.0, 3.0, 0.0, 2.5, math.nan, 1e16]))
    checks = [check for check in violations(part, "p") if isinstance(check[0], np.ndarray)]
    found = [(held.tolist(), path, sentence.format_map(ShownRow(part, 1))) for held, path, sentence, _ in checks]
    assert found[0] == (
        [True, True, False, False, False, False],
        "p",
        "n_kv_heads = 3 is not a whole number from 1 to 10^15",
    )
    assert found[1] == (
        [True, False, False, False, False, False],
        "p",
        "n_kv_heads = 3 does not divide n_heads = 8",
    )


def test_columns_deep_inside_are_found():
    part = attention(position=Rope(base=np.array([1e4, -1.0])))
    held, path, sentence, where = next(iter(violations(part)))
    assert (held.tolist(), path, where) == ([True, False], "position", part.position)
    assert sentence == "base = {base} is not a positive, finite number"


def test_symbols_are_left_to_the_numbers_that_replace_them():
    part = attention(n_heads=word("n_heads"), n_kv_heads=word("n_kv_heads"))
    assert part.bill(word("d_model")).tensors


def test_parts_are_frozen_and_compare_by_value():
    assert attention() == attention()
    assert attention() != attention(head_dim=32)
    assert hash(attention()) == hash(attention())
    with pytest.raises(AttributeError):
        attention().n_heads = 3


def test_leaves_by_kind():
    assert leaves(Norm) == {"rms": RMSNorm, "layer": LayerNorm}
    assert leaf(Norm, "rms") is RMSNorm
    for kind, sentence in [
        (None, "kind is missing; it is one of layer, rms"),
        ("rmss", "kind = 'rmss' is none of layer, rms; did you mean 'rms'?"),
        ([], "kind = [] is none of layer, rms"),
    ]:
        with pytest.raises(ContractError) as error:
            leaf(Norm, kind)
        assert str(error.value) == sentence


def test_values_and_parts_in_the_order_of_the_fields():
    norm = RMSNorm(eps=1e-6)
    assert list(values(norm)) == [1e-6, True, "float32", False]
    assert list(parts_of((norm, 3, norm), "layers")) == [(norm, "layers[0]"), (norm, "layers[2]")]
    assert list(parts_of(norm, "norm")) == [(norm, "norm")]


def test_how_a_sentence_shows_values():
    assert "{n_heads} {window}".format_map(Shown(attention())) == "8 None"
    assert literal("{x}").format() == "{x}"
    assert shown("x" * 1000) == "'" + "x" * 56 + "..."
    nested = []
    for _ in range(100_000):
        nested = [nested]
    assert shown(nested) == "deeply nested tables"
    assert shown(RMSNorm(eps=1e-6)) == "a rmsnorm"
