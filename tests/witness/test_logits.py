"""Logits against those of another framework (transformers 5.24, float32, eager), from the weights it made."""

import numpy as np
import pytest

from planner import witness
from tests.witness.builders import fixture, fixture_names


@pytest.mark.parametrize("name", fixture_names())
def test_logits_are_the_fixtures(name):
    model, weights, input_ids, expected, _ = fixture(name)
    logits = witness.logits(model, weights, input_ids)
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)
    np.testing.assert_array_equal(logits.argmax(axis=-1), expected.argmax(axis=-1))


@pytest.mark.parametrize("name", fixture_names())
def test_decoding_gives_the_same_logits(name):
    model, weights, input_ids, expected, _ = fixture(name)
    run, cache = witness.Witness(model, weights), None
    cache = run.cache()
    logits = [run.forward(input_ids[0, :9], cache), *(run.forward(token[None], cache) for token in input_ids[0, 9:])]
    np.testing.assert_allclose(np.concatenate(logits), expected[0], rtol=0, atol=1e-4)


def test_all_fixtures_are_here():
    assert len(fixture_names()) == 51
