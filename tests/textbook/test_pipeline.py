"""A pipeline walked through, chunk by chunk and stage by stage."""

import pytest

from planner.textbook.pipeline import pipelined_s


def walked(chunks, stages):
    done = [0.0] * len(stages)
    for _ in range(chunks):
        at = 0.0
        for place, seconds in enumerate(stages):
            at = done[place] = max(at, done[place]) + seconds
    return done[-1]


@pytest.mark.parametrize("chunks", [1, 2, 7, 100])
@pytest.mark.parametrize("stages", [[2.0], [1.0, 1.0, 1.0, 1.0], [1.0, 3.0, 2.0], [5.0, 1.0]])
def test_chunks_take_what_the_schedule_takes(chunks, stages):
    assert pipelined_s(chunks, sum(stages), max(stages)) == pytest.approx(walked(chunks, stages))


def test_idle_time_is_the_bubble_of_gpipe():
    micro_batches, stages = 8, 4  # its share is (K - 1) / (M + K - 1): Huang et al. 2019, section 2.3
    total = pipelined_s(micro_batches, stages * 1.0, 1.0)
    assert 1 - micro_batches / total == pytest.approx((stages - 1) / (micro_batches + stages - 1))
