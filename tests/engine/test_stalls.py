"""A simulation that cannot go on says who waits for whom."""

from __future__ import annotations

import build


def stalls(ranks, **settings):
    return {item["rank"]: item for item in build.run(ranks, build.config(**settings)).unfinished}


def test_a_receive_of_another_size():
    found = stalls([[build.send(0, 0, 1, 100)], [build.recv(0, 0, 1, 200)]], npus_count=[2])
    assert list(found) == [1]
    assert "send of 200 bytes with tag 1 by rank 0 (already finished)" in found[1]["waits_for"]


def test_a_collective_that_one_rank_never_issues():
    blocked = [build.recv(0, 0, 3), build.coll(1, after=(0,))]
    found = stalls([[build.coll(1)]] * 3 + [blocked])
    assert sorted(found) == [0, 1, 2, 3]
    assert "rank 3 (blocked in recv (node 0)) to issue it" in found[0]["waits_for"]
    assert found[3]["operation"] == "recv"


def test_members_that_disagree():
    found = stalls([[build.coll(0, 1024)], [build.coll(0, 4096)]], npus_count=[2])
    assert "rank 1, which is in all_reduce (node 0) of 4096 bytes instead" in found[0]["waits_for"]


def test_a_rendezvous_without_a_receiver():
    found = stalls([[build.send(0, 0, 1)], [build.comp(0)]], npus_count=[2], rendezvous=True)
    assert "recv of 1024 bytes" in found[0]["waits_for"]


def test_nodes_in_a_cycle_are_counted_as_not_executed():
    output = build.run([[build.comp(0), build.comp(1, after=(2,)), build.comp(2, after=(1,))]] * 2)
    assert (output.nodes_total, output.nodes_executed) == (6, 2)
    assert output.unfinished == []
