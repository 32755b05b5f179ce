"""Parallel streams: their mixing against the equations of DeepSeek-V4, section 2.2, and where the outcome is known."""

import numpy as np

import planner
from planner.witness import Witness, random_weights, reference_blocks
from tests.witness.builders import compressed, decoder, feed_forward, layer, streams, tokens


def witness_of(model):
    return Witness(model, random_weights(model), np.float64)


class Doubled:
    """A layer of two branches, each a function of what it reads."""

    names = ("mixer", "feed_forward")

    def branch(self, name, x):
        return x, np.tanh(x) if name == "mixer" else np.square(x)


def test_streams_are_mixed_as_the_paper_says():
    witness = witness_of(decoder(layer(compressed()), streams=streams()))
    model, run = witness.model, witness.run(tokens(5), witness.cache())
    h = np.random.default_rng(3).standard_normal((5, 3, model.d_model))
    measured = model.streams.layer(h, Doubled(), run.layer(1, 0, None).part("streams"))
    weights = {name.removeprefix("layers.1.streams."): array for name, array in witness.weights.items()}
    expected = [reference_blocks.layer(model.streams, row, [np.tanh, np.square], weights.get) for row in h]
    np.testing.assert_allclose(measured, expected, atol=1e-12)
    end = [reference_blocks.joined(model.streams, row, lambda id: witness.weights.get(f"streams.{id}")) for row in h]
    np.testing.assert_allclose(model.streams.joined(h, run.part("streams")), end, atol=1e-12)
    assert planner.verify(model).passed


def test_the_residual_mixing_is_doubly_stochastic():
    mixing = streams(sinkhorn_steps=50)
    witness = witness_of(decoder(layer(compressed()), streams=mixing))
    run = witness.run(tokens(5), witness.cache()).layer(0, 0, None).part("streams").under("branches[0]")
    *_, shares = mixing._weights(np.random.default_rng(3).standard_normal((5, 3, witness.model.d_model)), run)
    for axis in (1, 2):
        np.testing.assert_allclose(shares.sum(axis=axis), 1, atol=1e-5)
    assert (shares > 0).all()


def test_one_stream_with_weights_of_one_is_the_plain_residual():
    body = layer(compressed(), feed_forward())
    one = decoder(body, streams=streams(n_streams=1, eps=1e-12))
    weights = random_weights(one)
    for name in weights:
        if name.endswith("streams.scale") or ".scale" in name:
            weights[name][:] = 0
        elif name.endswith("].base"):  # sigmoid(40) is 1, and twice sigmoid(0) too; one share of one is 1
            weights[name][:] = [40, 0, 0]
        elif name == "streams.base":
            weights[name][:] = 40
    plain = {name: array for name, array in weights.items() if "streams" not in name}
    measured = Witness(one, weights, np.float64).forward(tokens(11))
    np.testing.assert_allclose(measured, Witness(decoder(body), plain, np.float64).forward(tokens(11)), atol=1e-9)
