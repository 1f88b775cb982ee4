"""Answers of the reference simulator to experiments that random comparison found."""

from __future__ import annotations

import pytest

import build
from chakrascope.errors import ConfigError

GIGABYTES = 5_000_000_007
BUS = {"model_shared_bus": True, "L": 3, "o": 10, "g": 7, "G": 0.05, "local_mem_bw": 50.0}


def gather(ranks: int, size: int, **settings) -> int:
    """Return when an all-gather ends on all ranks of a ring."""
    chosen = build.config(npus_count=[ranks], **settings)
    times = build.finish([[build.coll(0, size, comm_type="ALL_GATHER")]] * ranks, chosen)
    assert len(set(times)) == 1
    return times[0]


@pytest.mark.parametrize(
    ("ranks", "aware", "expected"),
    [
        (6, False, 7617),
        (6, True, 11341),
        (12, False, 18077),
        (12, True, 34837),
        (20, False, 36988),
        (20, True, 76096),
    ],
)
def test_halving_doubling_gathers_wherever_its_partners_pair_up(ranks, aware, expected):
    algorithm = ["halvingDoubling"]
    assert gather(ranks, 100_003, all_gather_implementation=algorithm, aware=aware) == (expected)


def test_messages_by_rendezvous_keep_32_bits_of_their_size():
    assert gather(4, GIGABYTES, rendezvous=True) == 39_400_267
    # Here nothing positive is left of the size, and the reference aborts.
    assert gather(4, 3_000_000_007, rendezvous=True) > 160_000_000


def test_sizes_on_the_shared_bus_keep_32_bits():
    assert gather(4, GIGABYTES, **BUS) == 506_983_107
    assert gather(4, 1 << 32, **BUS) == 240_001_764


def test_times_beyond_64_bits_are_refused():
    nodes = [build.comp(0, 9 * 10**15), build.comp(1, 9 * 10**15, (0,)), build.comp(2, 9 * 10**15, (1,))]
    with pytest.raises(ConfigError, match=r"2\^64 ns"):
        build.finish([nodes, nodes])


def test_chunks_in_different_orders_are_diagnosed():
    """Trees end at different times, so that ranks start the chunks of the next dimension in other orders."""
    settings = build.config(
        topology=["Ring"] * 3,
        npus_count=[4, 2, 2],
        bandwidth=[1.0] * 3,
        latency=[33.0] * 3,
        all_reduce_implementation=["doubleBinaryTree", "doubleBinaryTree", "ring"],
        preferred_dataset_splits=2,
        endpoint_delay=1000,
        local_mem_bw=50.0,
    )
    programs = [[build.coll(0, 1000)]] * 16
    assert "chunks in another order" in build.run(programs, settings).unfinished[0]["waits_for"]
    settings.active_chunks_per_dimension = 2
    assert min(build.finish(programs, settings)) > 0
