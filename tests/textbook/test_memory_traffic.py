"""Traffic counted by walking through the algorithms, and the numbers of known models."""

import pytest

from planner.textbook.memory_traffic import (
    decode_attention_intensity,
    decode_step_traffic,
    logits_bytes,
    naive_attention_traffic,
    score_bytes,
    tiled_attention_traffic,
    weight_bytes,
)


def naive(n, d):
    """Elements that algorithm 0 of FlashAttention moves for one head."""
    query = key = value = output = n * d
    scores = probabilities = n * n
    return (query + key + scores) + (scores + probabilities) + (probabilities + value + output)


def tiled(n, d, on_chip):
    """Elements that algorithm 1 moves for one head, block by block."""
    columns = -(-on_chip // (4 * d))
    rows = min(columns, d)
    moved = 0
    for start in range(0, n, columns):
        moved += 2 * min(columns, n - start) * d  # a block of keys and values
        for above in range(0, n, rows):
            height = min(rows, n - above)
            moved += height * d + 2 * (height * d + 2 * height)  # queries; output and statistics, there and back
    return moved


@pytest.mark.parametrize("n", [1, 64, 1000, 1024])
@pytest.mark.parametrize("d", [32, 64])
def test_traffic_is_what_the_algorithms_move(n, d):
    assert naive_attention_traffic(2, 3, n, d, 2) == 2 * 3 * 2 * naive(n, d)
    for on_chip in (d, 1000, 24_576, 49_152, n * d):
        assert tiled_attention_traffic(2, 3, n, d, 2 * on_chip, 2) == 2 * 3 * 2 * tiled(n, d, on_chip)


def test_tiling_saves_where_the_heads_are_narrow_and_the_chip_is_wide():
    naive_bytes = naive_attention_traffic(1, 1, 8192, 64, 2)
    assert naive_bytes > 7 * tiled_attention_traffic(1, 1, 8192, 64, 192 * 1024, 2)


def test_temporary_memory():
    assert score_bytes(1, 32, 8192, 2) == 4 * 2**30
    assert logits_bytes(3, 5, 7, 4) == 420


def test_one_step_reads_all_weights_and_all_caches():
    weights = weight_bytes(8_030_261_248, 2)
    assert decode_step_traffic(weights, 16, 8192, 131_072) == weights + 16 * 2**30


def test_grouping_raises_the_intensity_of_decoding():
    assert decode_attention_intensity(32, 32, 2) == 1
    assert decode_attention_intensity(32, 1, 2) == 32
