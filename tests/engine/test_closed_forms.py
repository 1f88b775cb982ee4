"""Collectives against their closed forms, on a network without contention."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build

DELAY, LATENCY, BANDWIDTH, MEMORY = 10, 500.0, 50.0, 50.0


def message(size: int, hops: int = 1) -> int:
    return int(hops * LATENCY + size / (BANDWIDTH * 1073741824 / 1e9))


def reduction(size: int) -> int:
    return 3 * int(size / (MEMORY * 1e9) * 1e9)


def simulated(kind: str, algorithm: str, ranks: int, size: int, topology: str) -> int:
    name = kind.lower() + "_implementation"
    settings = build.config(
        topology=[topology],
        npus_count=[ranks],
        local_mem_bw=MEMORY,
        endpoint_delay=DELAY,
        **{name: [algorithm]},
    )
    times = build.finish([[build.coll(0, size, comm_type=kind)]] * ranks, settings)
    assert len(set(times)) == 1
    return times[0]


@given(st.integers(2, 9), st.integers(1, 10**7))
def test_ring(ranks, size):
    size = max(size, ranks)
    part = size // ranks
    turns = ranks * (ranks - 1) // 2
    forms = {
        "ALL_REDUCE": (2 * ranks - 1) * DELAY + (ranks - 1) * (2 * message(part) + reduction(part)),
        "REDUCE_SCATTER": ranks * DELAY + (ranks - 1) * (message(part) + reduction(part)),
        "ALL_GATHER": ranks * DELAY + (ranks - 1) * message(size),
        "ALL_TO_ALL": (turns + 1) * DELAY + turns * message(part),
    }
    for kind, expected in forms.items():
        assert simulated(kind, "ring", ranks, size, "Ring") == expected


@given(st.integers(2, 9), st.integers(1, 10**7))
def test_direct(ranks, size):
    size = max(size, ranks)
    part = size // ranks
    forms = {
        "ALL_REDUCE": 3 * DELAY + 2 * message(part, 2) + reduction(part),
        "REDUCE_SCATTER": 2 * DELAY + message(part, 2) + reduction(part),
        "ALL_GATHER": 2 * DELAY + message(size, 2),
        "ALL_TO_ALL": 2 * DELAY + message(part, 2),
    }
    for kind, expected in forms.items():
        assert simulated(kind, "direct", ranks, size, "Switch") == expected


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
@given(size=st.integers(16, 10**7))
def test_halving_doubling(ranks, size):
    rounds = int(math.log2(ranks))
    sizes = [size >> (i + 1) for i in range(rounds)]
    way_back = [2 * (sizes[-1] // 2) << i for i in range(rounds)] if rounds else []
    scatter = (rounds + 1) * DELAY + sum(map(message, sizes)) + sum(map(reduction, sizes[1:]))
    both = (2 * rounds + 1) * DELAY + sum(map(message, sizes + way_back)) + sum(map(reduction, sizes[1:]))
    assert simulated("REDUCE_SCATTER", "halvingDoubling", ranks, size, "FullyConnected") == scatter
    assert simulated("ALL_REDUCE", "halvingDoubling", ranks, size, "FullyConnected") == both
