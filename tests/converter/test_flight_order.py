"""Which flight record belongs to which operator: clocks differ, the order does not."""

import pytest
from gloo_thread import Thread, write_trace_set

from chakrascope.converter import NodeType, convert

STARTS_US = [1_100, 1_160, 1_900, 1_960, 3_000, 3_060, 4_000]


def groups_of(folder, *, ahead_us, lost=0):
    """Return the groups of collectives of two groups by turns, as converted and as they were.

    The recorder's clock is ahead of the profiler's, and it *lost* the first ones.
    """
    thread = Thread(0)
    for number, start in enumerate(STARTS_US):
        thread.all_reduce(start, start + 10, 5 + number, closes=start + 40, entered=start + 5 + ahead_us)
        thread.flights[-1]["process_group"] = [str(number % 2), ""]
    thread.flights = thread.flights[lost:]
    peer = Thread(1)
    peer.op("aten::add", 1_010, 1_020, 3)
    ranks = [rank.write(folder, ((1_000, 5_000),)) for rank in (thread, peer)]
    for rank in ranks:
        rank["process_groups"] = [{"name": "0", "ranks": [0, 1]}, {"name": "1", "ranks": [rank["rank"]]}]
    write_trace_set(folder, ranks)
    workload = convert(folder, step=0)
    nodes = workload.graphs[0].nodes
    groups = nodes.loc[nodes["type"] == NodeType.COMM_COLL, "group"].tolist()
    found = [workload.groups.get(group, (0, 1)) for group in groups]
    return found, [(0, 1) if number % 2 == 0 else (0,) for number in range(len(STARTS_US))]


@pytest.mark.parametrize("ahead_us", [-250, -80, -30, 0, 30, 80, 250])
def test_the_order_tells_the_group_where_clocks_differ(tmp_path, ahead_us):
    found, expected = groups_of(tmp_path, ahead_us=ahead_us)
    assert found == expected


def test_the_times_tell_where_a_record_was_lost(tmp_path):
    found, expected = groups_of(tmp_path, ahead_us=0, lost=1)
    assert found[1:] == expected[1:]
