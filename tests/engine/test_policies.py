"""Policies of ours: the order of dimensions a chunk takes, and the order of chunks in a queue."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import build

INTRA = ["FIFO", "smallest-first", "less-remaining-phase-first", "reduce-first"]
INTER = ["ascending", "round-robin", "greedy"]
KINDS = ["ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL"]


def network(counts, **more):
    dimensions = len(counts)
    defaults = {
        "topology": ["Switch"] * dimensions,
        "npus_count": counts,
        "bandwidth": [50.0] * dimensions,
        "latency": [100.0] * dimensions,
        "all_reduce_implementation": ["ring"] * dimensions,
        "all_gather_implementation": ["ring"] * dimensions,
        "reduce_scatter_implementation": ["ring"] * dimensions,
        "all_to_all_implementation": ["ring"] * dimensions,
        "preferred_dataset_splits": 16,
        "active_chunks_per_dimension": 1,
    }
    return build.config(**(defaults | more))


def makespan(counts, kind="ALL_REDUCE", size=1 << 26, **more):
    ranks = 1
    for count in counts:
        ranks *= count
    return max(build.finish([[build.coll(0, size, comm_type=kind)]] * ranks, network(counts, **more)))


@pytest.mark.parametrize("kind", ["ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER"])
def test_greedy_uses_dimensions_that_would_idle(kind):
    """With equal links, going upwards keeps the first dimension busy and the second one idle."""
    assert makespan([4, 4], kind, inter_dimension_policy="greedy") < 0.85 * makespan([4, 4], kind)


def test_one_dimension_has_one_order():
    """Without another dimension, only the split of an all-reduce into its two halves remains."""
    for kind in ("ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL"):
        times = {makespan([4], kind, inter_dimension_policy=policy) for policy in INTER}
        assert len(times) == 1


@given(
    st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=3),
    st.sampled_from(KINDS),
    st.sampled_from(INTRA),
    st.sampled_from(INTER),
    st.tuples(st.integers(1, 1 << 22), st.integers(1, 6), st.integers(1, 8)),
)
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
def test_every_policy_ends_or_says_who_waits(counts, kind, intra, inter, amounts):
    """With fewer active chunks than chunks, ranks may take them in different orders, and stall."""
    size, splits, active = amounts
    chosen = network(
        counts,
        intra_dimension_policy=intra,
        inter_dimension_policy=inter,
        preferred_dataset_splits=splits,
        active_chunks_per_dimension=active,
    )
    ranks = math.prod(counts)
    programs = [[build.coll(0, size, comm_type=kind)]] * ranks
    folded = build.run(programs, chosen)
    chosen.fold = False
    plain = build.run(programs, chosen)
    assert plain.rank_finish_ns.tolist() == folded.rank_finish_ns.tolist()
    stuck = [rank for rank, time in enumerate(plain.rank_finish_ns.tolist()) if time < 0]
    assert [item["rank"] for item in plain.unfinished] == stuck
    chunks = max(splits, math.ceil(size / max(1, size // splits)))
    if active >= chunks or (intra, inter) == ("FIFO", "ascending"):  # nothing waits for its turn
        assert stuck == []
