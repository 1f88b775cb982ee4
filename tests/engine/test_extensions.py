"""Where the reference simulator aborts, hangs or loops: an obvious answer, or a diagnosis."""

from __future__ import annotations

import pytest

import build
from chakrascope.errors import Cancelled, ConfigError


def test_a_group_before_all_ranks_does_not_hang():
    member = [build.coll(0, pg_name="1"), build.coll(1, after=(0,))]
    other = [build.coll(1)]
    times = build.finish([member, member, other, other], build.config(groups={1: [0, 1]}))
    assert min(times) > 0


def test_events_at_time_zero_are_fine():
    assert min(build.finish([[build.coll(0)]] * 4, build.config(endpoint_delay=0))) > 0


def test_a_congested_ring_of_two_works():
    both = [[build.coll(0)]] * 2
    assert build.finish(both, aware=True) == build.finish(both)


def test_metadata_takes_no_time_and_frees_its_children():
    nodes = [{"id": 0, "type": "METADATA"}, build.comp(1, 2, after=(0,))]
    assert build.finish([nodes, nodes]) == [2000, 2000]


def test_invalid_nodes_do_not_strand_their_children():
    nodes = [
        {"id": 0, "type": "INVALID"},
        {"id": 1, "type": "INVALID", "data_deps": [0]},
        build.comp(2, 2, (1,)),
    ]
    assert build.finish([nodes, nodes]) == [2000, 2000]


@pytest.mark.parametrize("size", [0, 1, 3])
@pytest.mark.parametrize("comm_type", ["ALL_GATHER", "ALL_REDUCE", "ALL_TO_ALL", "REDUCE_SCATTER"])
def test_sizes_below_the_number_of_chunks(comm_type, size):
    times = build.finish(
        [[build.coll(0, size, comm_type=comm_type)]] * 4, build.config(preferred_dataset_splits=4)
    )
    assert min(times) >= 0


def test_a_group_of_one_is_done_at_once():
    nodes = [build.coll(0, pg_name="1"), build.comp(1, 3, after=(0,))]
    assert build.finish([nodes, [build.comp(0)]], build.config(npus_count=[2], groups={1: [0]}))[0] == 3000


def test_a_barrier_waits_for_the_last_rank():
    ranks = [[build.comp(0, 1 + 9 * rank), build.coll(1, 0, (0,), "BARRIER")] for rank in range(4)]
    assert min(build.finish(ranks)) > 28_000


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"all_reduce_implementation": ["halvingDoubling"], "npus_count": [6]}, "power of two"),
        ({"all_reduce_implementation": ["doubleBinaryTree"], "npus_count": [6]}, "power of two"),
        ({"all_reduce_implementation": ["spiral"]}, "spiral"),
        ({"all_reduce_implementation": ["direct0"]}, "window"),
        ({"all_reduce_implementation": ["ring", "ring"]}, "2 entries"),
        ({"all_reduce_implementation": []}, "all-reduce-implementation"),
        ({"all_reduce_implementation_custom": ["nowhere"]}, r"nowhere\.0\.et"),
        ({"topology": ["Torus"]}, "Torus"),
        ({"npus_count": [0]}, "npus_count"),
        ({"bandwidth": [0.0]}, "bandwidth"),
        ({"latency": [float("nan")]}, "latency"),
        ({"bandwidth": []}, "equally long"),
        ({"preferred_dataset_splits": 0}, "preferred-dataset-splits"),
        ({"groups": {0: [0]}}, "group 0"),
        ({"groups": {1: [0, 0]}}, "twice"),
        ({"groups": {1: [9]}}, "rank 9"),
        ({"aware": True, "links": [(0, 1, 1, 1)]}, "no way from device"),
        ({"aware": True, "links": [(0, 0, 1, 1)]}, "two different nodes"),
        ({"aware": True, "links": [(0, 1, 0, 1)]}, "rate above 0"),
    ],
)
def test_impossible_configurations_are_refused(settings, message):
    chosen = build.config(**settings)
    ranks = 1
    for count in chosen.npus_count:
        ranks *= count
    with pytest.raises(ConfigError, match=message):
        build.run([[build.coll(0)]] * ranks, chosen)


def test_wrong_number_of_ranks_is_refused():
    with pytest.raises(ConfigError, match="3 ranks, but the network has 4"):
        build.run([[build.comp(0)]] * 3, build.config())


def simulate_for_seconds(progress):
    settings = build.config(npus_count=[512], preferred_dataset_splits=256, fold=False)
    return build.engine.simulate(settings, [build.et.program([build.coll(0, 1 << 30)])], [0] * 512, progress)


def test_progress_cancels():
    with pytest.raises(Cancelled):
        simulate_for_seconds(lambda now, finished: False)


def test_an_error_in_the_progress_callback_comes_through():
    def fail(now, finished):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        simulate_for_seconds(fail)


def test_equal_simulations_are_equal():
    ranks = [[build.comp(0, rank + 1), build.coll(1, 1 << 22, (0,))] for rank in range(8)]
    first, second = build.run(ranks), build.run(ranks)
    ends = [output.nodes(0, 8)["end_ns"].tolist() for output in (first, second)]
    assert ends[0] == ends[1]
    assert first.events == second.events
