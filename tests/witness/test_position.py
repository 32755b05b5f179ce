"""Rotary embedding with its scaling rules, and ALiBi, against figures from the papers and from other people's code."""

import math

import numpy as np
import pytest

from planner.components import position
from planner.components.position import Alibi, Rope

PAIRS = np.arange(4) / 4
PLAIN = 10_000.0**-PAIRS


def frequencies(scaling, length):
    """What each of four pairs turns by from one position to the next, and how long cosine and sine are."""
    rope = Rope(base=1e4, scaling=scaling)
    heads = np.repeat(np.array([1.0, 0.0]), 4)[None, None]  # every pair is (1, 0)
    heads = np.concatenate([heads, np.zeros_like(heads)])
    heads[1] = heads[0]
    at = np.array([0, 1]) if length <= 2 else np.array([length - 2, length - 1])
    a, b = rope.turned(heads, at, length).reshape(2, 2, 4).swapaxes(0, 1)
    angles = np.arctan2(b, a)
    return (angles[1] - angles[0]) % (2 * np.pi), np.hypot(a, b)[0]


def test_plain_pairs_turn_by_powers_of_the_base():
    found, size = frequencies(None, 2)
    np.testing.assert_allclose(found, PLAIN)
    np.testing.assert_allclose(size, 1)


def test_linear_scaling_divides_positions():
    np.testing.assert_allclose(frequencies(position.Linear(factor=4.0), 2)[0], PLAIN / 4)


def test_dynamic_scaling_begins_beyond_the_original_length():
    scaling = position.Dynamic(factor=2.0, original_positions=16)
    np.testing.assert_allclose(frequencies(scaling, 16)[0], PLAIN)
    grown = 1e4 * (2.0 * 24 / 16 - 1) ** (8 / 6)
    np.testing.assert_allclose(frequencies(scaling, 24)[0], grown**-PAIRS)


def test_longrope_takes_the_short_list_then_the_long_one():
    short, long = (1.0, 1.5, 2.0, 2.5), (3.0, 4.0, 5.0, 6.0)
    scaling = position.LongRope(factor=4.0, original_positions=16, short_factors=short, long_factors=long)
    size = math.sqrt(1 + math.log(4) / math.log(16))
    for length, factors in ((16, short), (17, long)):
        found, lengths = frequencies(scaling, length)
        np.testing.assert_allclose(found, PLAIN / factors)
        np.testing.assert_allclose(lengths, size)


def test_yarn_keeps_fast_pairs_and_slows_slow_ones():
    scaling = position.Yarn(factor=4.0, original_positions=4096)
    found, size = frequencies(scaling, 2)
    np.testing.assert_allclose(found[0], PLAIN[0])  # turns 652 times in the original length
    np.testing.assert_allclose(found[3], PLAIN[3] / 4)  # less than once
    np.testing.assert_allclose(size, 0.1 * math.log(4) + 1)


def test_yarn_with_its_weights_as_deepseek_states_them():
    equal = position.Yarn(factor=40.0, original_positions=4096, mscale=1.0, mscale_all_dim=1.0)
    np.testing.assert_allclose(frequencies(equal, 2)[1], 1)
    assert equal.score_scale == pytest.approx((0.1 * math.log(40) + 1) ** 2)
    assert position.Yarn(factor=40.0, original_positions=4096).score_scale == 1


def test_llama3_blends_between_two_wavelengths():
    scaling = position.Llama3(factor=8.0, original_positions=64, low_freq_factor=1.0, high_freq_factor=4.0)
    found, _ = frequencies(scaling, 2)
    share = (64 * PLAIN[1] / (2 * math.pi) - 1) / 3  # the second pair turns 1.02 times in the original length
    expected = [PLAIN[0], (1 - share) * PLAIN[1] / 8 + share * PLAIN[1], PLAIN[2] / 8, PLAIN[3] / 8]
    np.testing.assert_allclose(found, expected)


def test_only_the_stated_width_turns():
    heads = np.random.default_rng(0).standard_normal((3, 2, 10))
    turned = Rope(base=1e4, width=4).turned(heads, np.array([0, 5, 9]), 10)
    np.testing.assert_array_equal(turned[..., 4:], heads[..., 4:])
    assert np.abs(turned[1:, :, :4] - heads[1:, :, :4]).min() > 0


def test_the_two_layouts_are_a_permutation_of_each_other():
    heads = np.random.default_rng(0).standard_normal((3, 1, 8))
    order = [0, 2, 4, 6, 1, 3, 5, 7]  # first elements of all pairs, then the second ones
    at = np.array([1, 4, 7])
    neighbours = Rope(base=1e4, interleaved=True).turned(heads, at, 8)
    halves = Rope(base=1e4).turned(heads[..., order], at, 8)
    np.testing.assert_allclose(neighbours[..., order], halves)


def test_proportional_rope_leaves_the_slow_pairs_alone():
    found, _ = frequencies(position.Proportional(factor=1.0, pairs=2), 2)
    np.testing.assert_allclose(found, [*PLAIN[:2], 0, 0])


def test_slopes_are_those_of_the_paper():
    """Press et al. 2022, section 3: 8 heads from 1/2 to 1/256; beyond that, every other slope of the doubled set."""
    np.testing.assert_allclose(Alibi().slopes(8), [2.0**-i for i in range(1, 9)])
    np.testing.assert_allclose(Alibi().slopes(12)[8:], [2.0**-0.5, 2.0**-1.5, 2.0**-2.5, 2.0**-3.5])


def test_rounded_slopes_are_bf16_numbers():
    bias = Alibi(precision="bf16").bias(12, np.arange(3), np.arange(3))
    assert bias.shape == (12, 3, 3)
    bits = bias.astype(np.float32).view(np.uint32)
    assert not (bits & 0xFFFF).any()
    assert bias[8, 2, 1] == 0.70703125  # the bf16 number nearest to 2 ** -0.5


def test_temperature_grows_in_steps():
    queries = position.Temperature(slope=0.1, interval=4).stretched(np.ones((6, 1, 1)), np.arange(6))
    np.testing.assert_allclose(queries.ravel(), [1, 1, 1, 1, *[1 + 0.1 * math.log(2)] * 2])
