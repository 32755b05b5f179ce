"""Pipelines: what follows one another through stages that work at the same time."""

from planner.formula import formula


@formula(
    "s",
    source="li-2021",
    equation="section 3.3, Sum t_i + (K - 1) max t_i; of equal chunks (n + K - 1) t, whose bubble is that of GPipe",
    validity="chunks take equally long, and as soon as one has left a stage the next one enters it",
)
def pipelined_s(chunks, through_s, slowest_s):
    """Time of all chunks of a prompt: the first goes through all stages, and each further one leaves the slowest later.

    >>> pipelined_s(8, 4 * 0.1, 0.1)     # 8 chunks, 4 equal stages: 8 + 4 - 1 times
    1.1
    """
    return through_s + (chunks - 1) * slowest_s
