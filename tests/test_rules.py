"""Every rule against brute force: masks written out position by position, counted one by one."""

import random

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from planner.arithmetic import evaluate, word
from planner.rules import CAUSAL, BlockTopK, Causal, Chunk, Constant, Packed, Prefix, Strided, StridedTopK, TopK, Window

SIZES = st.integers(0, 40)
WIDTHS = st.integers(1, 12)


def seen(rule: Causal, query: int, total: int) -> int:
    """Keys that a query at this position (from 0) reads, of `total` positions, straight from the definition."""
    keys = range(query + 1)
    match rule:
        case Window(width):
            return sum(query - key < width for key in keys)
        case Chunk(width):
            return sum(key // width == query // width for key in keys)
        case TopK(k):
            return min(k, len(keys))
        case BlockTopK(block, k):
            blocks = {key // block for key in keys}
            return sum(key // block in {query // block, *sorted(blocks)[: k - 1]} for key in keys)
        case StridedTopK(block, stride, k):
            return min(k, seen(Strided(block, stride), query, total))
        case Strided(block, stride):
            return sum(start + block <= query + 1 for start in range(0, query + 1, stride))
        case Prefix(length):
            return sum(key <= query or (query < length and key < length) for key in range(total))
        case Packed(documents, inner):
            starts = [sum(documents[:i]) for i in range(len(documents))]
            start = max(s for s, n in zip(starts, documents, strict=True) if s <= query)
            return seen(inner, query - start, total)
        case _:
            return len(keys)


RULES = st.one_of(
    st.just(CAUSAL),
    st.builds(Window, WIDTHS),
    st.builds(Chunk, WIDTHS),
    st.builds(TopK, WIDTHS),
    st.builds(BlockTopK, block=st.integers(1, 8), k=st.integers(1, 5)),
    st.builds(Strided, block=st.integers(1, 12), stride=st.integers(1, 12)),
    st.builds(StridedTopK, block=st.integers(1, 12), stride=st.integers(1, 12), k=st.integers(1, 5)),
)


@given(RULES, SIZES, SIZES)
def test_pairs_of_a_pass_are_those_that_brute_force_counts(rule, past, new):
    assert rule.pairs(past, new) == sum(seen(rule, query, past + new) for query in range(past, past + new))


def test_pairs_on_thousands_of_random_cases():
    rng = random.Random(7)
    for _ in range(3000):
        width, stride, past, new = (rng.randint(1, 90), rng.randint(1, 20), rng.randint(0, 200), rng.randint(0, 60))
        for rule in (CAUSAL, Window(width), Chunk(width), TopK(width), Strided(width, stride)):
            expected = sum(seen(rule, query, past + new) for query in range(past, past + new))
            assert rule.pairs(past, new) == expected, (rule, past, new)


@given(st.integers(0, 20), SIZES)
def test_a_prefix_adds_its_pairs_in_the_pass_that_processes_it(length, new):
    total = max(length, new)
    assert Prefix(length).pairs(0, total) == sum(seen(Prefix(length), query, total) for query in range(total))
    assert Prefix(length).pairs(0, total) - CAUSAL.pairs(0, total) == length * (length - 1) // 2


@given(st.lists(st.integers(1, 12), min_size=1, max_size=5), RULES)
def test_packed_documents_do_not_see_each_other(documents, inner):
    rule = Packed(tuple(documents), inner)
    total = sum(documents)
    assert rule.pairs(0, total) == sum(seen(rule, query, total) for query in range(total))
    if inner == CAUSAL:
        assert rule.pairs(0, total) == sum(n * (n + 1) // 2 for n in documents)


def reads(rule: Causal, query: int, key: int) -> bool:
    """Whether a query reads one key, straight from the definition."""
    match rule:
        case Window(width):
            return query - width < key <= query
        case Chunk(width):
            return key <= query and key // width == query // width
        case Strided(block, stride):
            return key * stride + block <= query + 1
        case Prefix(length):
            return key <= query or max(query, key) < length
        case Packed(documents, inner):
            owners = [i for i, n in enumerate(documents) for _ in range(n)]
            start = owners.index(owners[query])
            return owners[key] == owners[query] and reads(inner, query - start, key - start)
        case _:
            return key <= query


MASKS = st.one_of(
    st.just(CAUSAL),
    st.builds(Window, WIDTHS),
    st.builds(Chunk, WIDTHS),
    st.builds(Strided, block=st.integers(1, 12), stride=st.integers(1, 12)),
    st.builds(Prefix, st.integers(0, 20)),
)


@given(MASKS, st.lists(st.integers(1, 12), min_size=1, max_size=4), st.booleans())
def test_a_mask_shows_a_query_the_keys_of_the_definition(inner, documents, packed):
    total = range(sum(documents))
    rule = Packed(tuple(documents), inner) if packed and type(inner) in (Causal, Window, Chunk) else inner
    mask = rule.sees(np.array(total)[:, None], np.array(total))
    assert mask.tolist() == [[reads(rule, query, key) for key in total] for query in total]


@given(RULES, SIZES, st.lists(st.integers(0, 15), max_size=6))
def test_chunks_of_a_pass_have_the_pairs_of_the_whole(rule, past, chunks):
    total, at = 0, past
    for chunk in chunks:
        total += rule.pairs(at, chunk)
        at += chunk
    assert total == rule.pairs(past, sum(chunks))


@given(st.one_of(st.builds(Window, WIDTHS), st.builds(Chunk, WIDTHS)), SIZES, st.integers(0, 12))
def test_square_is_what_a_dense_kernel_computes_with_the_keys_that_are_kept(rule, past, new):
    kept = min(past, rule.width - 1)
    assert rule.square(past, new) == new * (kept + new)
    assert rule.square(past, new) >= rule.pairs(past, new) if isinstance(rule, Window) else True


@pytest.mark.parametrize(
    ("rule", "length", "during", "between"),
    [
        (CAUSAL, 100, 100, 100),
        (Window(16), 100, 16, 15),
        (Window(16), 10, 10, 10),
        (Chunk(16), 100, 16, 15),
        (TopK(16), 100, 100, 100),
        (BlockTopK(8, 2), 100, 100, 100),
        (Strided(32, 16), 100, 5, 5),
        (Constant(), 100, 1, 1),
        (Constant(), 0, 1, 1),
        (Packed((60, 40), Window(16)), 100, 16, 15),
    ],
)
def test_positions_that_a_cache_keeps(rule, length, during, between):
    assert rule.kept(length) == during
    assert rule.held(length) == between


@pytest.mark.parametrize("rule", [CAUSAL, Window(7), Chunk(7), TopK(7), BlockTopK(4, 3), Strided(6, 4)])
def test_the_readings_agree(rule):
    """Ints, columns, recorded words and SymPy symbols give the same pairs."""
    past, new = np.arange(0, 40.0), np.arange(40.0, 0, -1)
    exact = [rule.pairs(int(p), int(n)) for p, n in zip(past, new, strict=True)]
    assert rule.pairs(past, new).tolist() == exact
    recorded = rule.pairs(word("past"), word("new"))
    assert [evaluate(recorded, {"past": int(p), "new": int(n)}) for p, n in zip(past, new, strict=True)] == exact
    p, n = sympy.symbols("p n", positive=True, integer=True)
    symbolic = rule.pairs(p, n)
    assert [symbolic.subs({p: int(a), n: int(b)}) for a, b in zip(past, new, strict=True)] == exact


def test_plain_causal_keeps_the_form_that_does_not_cancel():
    """f(past + new) - f(past) of floats would lose the last digits of a long context."""
    past, new = 2**40, 3
    assert Causal().pairs(float(past), float(new)) == Causal().pairs(past, new)
