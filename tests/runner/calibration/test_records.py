"""Measurements of networks: transfers, messages to send, and hosts with different links."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest

from chakrascope.converter import EdgeKind, Graph, NodeType, Workload, match_logs, read_logs
from chakrascope.errors import ConfigError
from chakrascope.runner import simulate
from chakrascope.runner.calibration import (
    Records,
    are_gloo_records,
    calibrate_records,
    calibrated_network,
    gloo_records,
    log_records,
    measure_network,
    workload_records,
)
from chakrascope.runner.calibration._probes import probe_records, probes
from chakrascope.runner.config import EfficiencyPart, SystemConfig

from .known import SYSTEM, network, node, transfer

ALL_REDUCE, ALL_GATHER, BROADCAST = 0, 2, 5
CAPTURED = {"measured_step_ns": {}}


def rank_graph(rank, calls):
    """Return a graph whose host issues each of *calls*: (ns before, duration, bytes, type)."""
    nodes, edges, hosts, comms = [], [], [], []
    for before, duration, size, kind in calls:
        nodes.append(node(len(nodes), NodeType.COMP, duration_ns=before))
        hosts.append(len(nodes) - 1)
        more = {"comm_type": kind, "comm_size_bytes": size, "stream": 100, "duration_ns": duration}
        nodes.append(node(len(nodes), NodeType.COMM_COLL, **more))
        comms.append(len(nodes) - 1)
    edges = [(host, comm, int(EdgeKind.COMM_ISSUE)) for host, comm in zip(hosts, comms, strict=True)]
    for chain in (hosts, comms):
        edges += [(a, b, int(EdgeKind.STREAM_ORDER)) for a, b in pairwise(chain)]
    return Graph.build(rank, nodes, edges)


def captured(*ranks, metadata=CAPTURED):
    graphs = tuple(rank_graph(rank, calls) for rank, calls in enumerate(ranks))
    return Workload(graphs, np.arange(len(ranks), dtype=np.int32), {}, dict(metadata))


def summary(records):
    return [(len(one.calls), one.transfer_ns, one.wait_ns) for one in records.transfers]


def test_the_rank_that_came_last_waited_for_nobody():
    early, late = (1000, 9000, 64, ALL_REDUCE), (8000, 2000, 64, ALL_REDUCE)
    assert summary(workload_records(captured([early], [late]), "x")) == [(1, 2000, 7000)]


def test_collectives_requested_meanwhile_are_one_transfer():
    calls = [(1000, 5000, 64, ALL_REDUCE), (100, 3000, 128, ALL_REDUCE), (90_000, 4000, 64, ALL_REDUCE)]
    assert summary(workload_records(captured(calls, calls), "x")) == [(2, 8000, 0), (1, 4000, 0)]


def test_late_rank_begins_a_transfer():
    first = [(1000, 5000, 64, ALL_REDUCE), (100, 9000, 64, ALL_REDUCE)]
    second = [(1000, 5000, 64, ALL_REDUCE), (9000, 2000, 64, ALL_REDUCE)]
    assert summary(workload_records(captured(first, second), "x")) == [(1, 5000, 0), (1, 2000, 7000)]


def test_call_ended_before_its_predecessor_is_merged():
    first = [(1000, 5000, 64, ALL_REDUCE), (100, 1, 64, ALL_REDUCE)]
    second = [(1000, 4000, 64, ALL_REDUCE), (9000, 1, 64, ALL_REDUCE)]
    assert [one[0] for one in summary(workload_records(captured(first, second), "x"))] == [2]


def test_broadcasts_without_clocks_are_left_out_and_said():
    calls = [(1000, 5000, 64, BROADCAST), (9000, 5000, 64, ALL_REDUCE)]
    records = workload_records(captured(calls, calls), "x")
    assert summary(records) == [(1, 5000, 0)]
    assert any("2 records of broadcasts" in text for text in records.left_out)


def clocked(rank, calls, ahead):
    """Return a graph of calls measured by a clock that is *ahead*: (start, duration, bytes, type, name)."""
    nodes = [
        node(place, NodeType.COMM_COLL, measured_start_ns=start + ahead, duration_ns=duration,
             comm_size_bytes=size, comm_type=kind, stream=100 + (kind != ALL_REDUCE), operator=name)
        for place, (start, duration, size, kind, name) in enumerate(calls)
    ]  # fmt: skip
    return Graph.build(rank, nodes, [])


def with_a_root(kind, name, *, jitter=0, ahead=5_000_000, late=7000, took=2000):
    """Return a capture of four all-reduces and one collective whose root leaves before the other comes."""
    reduces = [(100_000 * turn, 4000, 64, ALL_REDUCE, "c10d::allreduce_") for turn in range(1, 5)]
    last = [(s, d + jitter * turn, *rest) for turn, (s, d, *rest) in enumerate(reduces)]
    root, other = (600_000, 500, 4096, kind, name), (600_000 + late, took, 4096, kind, name)
    graphs = (clocked(0, [*reduces, root], 0), clocked(1, [*last, other], ahead))
    return Workload(graphs, np.arange(2, dtype=np.int32), {}, dict(CAPTURED))


@pytest.mark.parametrize("ahead", [0, 5_000_000])
@pytest.mark.parametrize(
    ("kind", "name", "operation"),
    [(BROADCAST, "c10d::broadcast_", "broadcast"), (ALL_GATHER, "c10d::gather_", "gather"),
     (BROADCAST, "c10d::scatter_", "scatter")],
)  # fmt: skip
def test_collectives_with_a_root_last_until_the_last_rank_leaves(kind, name, operation, ahead):
    records = workload_records(with_a_root(kind, name, ahead=ahead), "x")
    (one,) = [one for one in records.transfers if one.calls[0].operation == operation]
    assert (one.transfer_ns, one.wait_ns) == (2000, 7000)
    assert one.calls[0].size_bytes == 4096
    assert {one.calls[0].operation for one in records.transfers} == {"all_reduce", operation}
    assert records.left_out == ()


def test_unclear_rooted_collectives_are_left_out_with_a_note():
    records = workload_records(with_a_root(BROADCAST, "c10d::broadcast_", jitter=3000), "x")
    assert {one.calls[0].operation for one in records.transfers} == {"all_reduce"}
    assert any("1 collective with a root, shorter than 4 times" in text for text in records.left_out)


def test_incomplete_collective_is_left_out_with_a_note():
    both = [(1000, 5000, 64, ALL_REDUCE), (9000, 5000, 64, ALL_REDUCE)]
    records = workload_records(captured(both, both[:1]), "x")
    assert summary(records) == [(1, 5000, 0)]
    assert any("not all ranks" in text for text in records.left_out)


def test_unmeasured_workload_has_no_records():
    calls = [(1000, 5000, 64, ALL_REDUCE)]
    with pytest.raises(ConfigError, match="does not come from a measurement"):
        workload_records(captured(calls, calls, metadata={}), "x")


def test_logs_with_durations_are_records(data_dir):
    records = log_records(match_logs(read_logs([str(data_dir / "converter" / "logs")])))
    assert len(records.transfers) == 12
    assert {one.calls[0].operation for one in records.transfers} == {
        "all_gather", "all_reduce", "reduce_scatter",
    }  # fmt: skip
    assert records.num_ranks == 2


def message_graph(rank, ends, clock_ns):
    """Return a graph of sends and receives: (is a send, time by the common clock, duration, lane, bytes)."""
    nodes = []
    for sends, start, duration, lane, size in ends:
        kind = NodeType.COMM_SEND if sends else NodeType.COMM_RECV
        peer = {"comm_dst": 1 - rank} if sends else {"comm_src": 1 - rank}
        more = {"comm_size_bytes": size, "comm_tag": 0, "stream": lane, "duration_ns": duration}
        nodes.append(node(len(nodes), kind, measured_start_ns=start + clock_ns, **more, **peer))
    return Graph.build(rank, nodes, [])


def messages(there, back, *, lane=500, sent_for=1, clocks=(0, 5_000_000), size=4096):
    """Return a capture of messages with durations *there* and *back*, on clocks with an offset."""
    ranks: tuple[list, list] = ([], [])
    for turn, took in enumerate([*there, *back]):
        source, start = int(turn >= len(there)), 1_000_000 * (turn + 1)
        ranks[source].append((True, start, sent_for, lane, size))
        ranks[1 - source].append((False, start - 500, took + 500, lane, size))
    graphs = tuple(message_graph(rank, ends, clocks[rank]) for rank, ends in enumerate(ranks))
    return Workload(graphs, np.arange(2, dtype=np.int32), {}, dict(CAPTURED))


def test_the_fastest_message_each_way_needs_no_clock():
    records = workload_records(messages([9000, 2000, 3000], [70_000, 4000, 8000]), "x")
    (one,) = records.transfers
    assert one.calls[0] == ("message", 4096)
    assert (one.members, one.transfer_ns) == ((0, 1), (2000 + 4000) // 2)
    assert records.left_out == ()


def test_one_way_messages_without_clock_are_left_out_with_a_note():
    records = workload_records(messages([9000, 2000, 3000, 5000], [70_000]), "x")
    assert records.transfers == ()
    assert any("5 messages of unknown transfer time" in text for text in records.left_out)


def test_last_device_end_did_not_wait():
    records = workload_records(messages([9000], [], lane=1007, sent_for=4000), "x")
    assert [(one.transfer_ns, one.wait_ns) for one in records.transfers] == [(4000, 5500)]


# Hosts with different links: the slowest pair determines the bandwidth, and the output names it.

SIZES = (4096, 65536, 1 << 20)
LATENCY_NS = 10_000
HOSTS = {0: "a", 1: "b", 2: "c"}


def pairs_messages(ns_per_byte):
    """Return records of messages between ranks of hosts; the time per byte is given by pair."""
    found = [
        transfer("message", size, round(2 * LATENCY_NS + size * pace), pair)
        for pair, pace in ns_per_byte.items()
        for size in SIZES
        for _ in range(3)
    ]
    return Records(tuple(found), 3, "messages", HOSTS)


def test_the_slowest_pair_gives_the_bandwidth_and_is_named():
    found = calibrate_records(pairs_messages({(0, 1): 20.0, (1, 2): 80.0}), SYSTEM)
    (dimension,) = found.dimensions
    assert dimension.fit.ns_per_byte.value == pytest.approx(80, rel=0.02)
    (said,) = [text for text in found.undetermined if "its pairs differ" in text]
    assert "rank 1 (b) - rank 2 (c) 12.5 MB/s" in said
    assert "rank 0 (a)" not in said
    assert "50.0 MB/s" in said


def test_pairs_that_are_alike_are_all_fitted():
    found = calibrate_records(pairs_messages({(0, 1): 20.0, (1, 2): 22.0}), SYSTEM)
    (dimension,) = found.dimensions
    assert dimension.fitted_on == 2 * 3 * len(SIZES)
    assert not any("differ" in text for text in found.undetermined)


# Measurements of a network: the messages sent, and the values recovered for a known network.

PROBES_HOSTS = {0: "a", 1: "a", 2: "b", 3: "b"}


def simulated(known, hosts, leaves=None, message_cost_ns=0):
    made = probes(known.num_ranks, hosts, leaves or {}, largest_bytes=1 << 20, repeats=3)
    if message_cost_ns:
        part = EfficiencyPart(message_cost_ns=message_cost_ns)
        known = type(known)(known.topology, known.npus_count, known.bandwidth, known.latency, efficiency=part)
    result = simulate(made.workload, "default", known, semantics="trace")
    return probe_records(made, result, "known", hosts, leaves or {})


def test_a_known_network_comes_back():
    records = simulated(network((2.0,), (3000.0,)), {0: "a", 1: "b"})
    found = calibrate_records(records, SYSTEM)
    (dimension,) = found.dimensions
    assert 1 / dimension.fit.ns_per_byte.value == pytest.approx(2.0, rel=0.02)
    assert dimension.fit.latency_ns.value == pytest.approx(3000.0, rel=0.02)
    assert found.message_cost_ns is None or found.message_cost_ns.value < 100
    assert {point.operation for point in found.points} >= {"message", "all_reduce", "all_to_all"}


def test_message_cost_is_recovered():
    records = simulated(network((2.0,), (3000.0,)), {0: "a", 1: "b"}, message_cost_ns=5000)
    found = calibrate_records(records, SYSTEM)
    assert found.message_cost_ns.value == pytest.approx(5000, rel=0.02)
    (dimension,) = found.dimensions
    assert 1 / dimension.fit.ns_per_byte.value == pytest.approx(2.0, rel=0.03)
    assert dimension.fit.latency_ns.value == pytest.approx(3000.0, rel=0.05)


def test_every_level_is_measured_by_itself():
    records = simulated(network((10.0, 1.0), (1000.0, 20_000.0), (2, 2)), PROBES_HOSTS)
    found = calibrate_records(records, SYSTEM)
    assert [dimension.name for dimension in found.dimensions] == ["same host", "other host"]
    rates = [1 / dimension.fit.ns_per_byte.value for dimension in found.dimensions]
    assert rates == pytest.approx([10.0, 1.0], rel=0.03)


def test_loopback_can_be_measured():
    records = measure_network("loopback", SYSTEM, largest_bytes=1 << 16)
    assert records.num_ranks == 2
    assert all(one.transfer_ns > 0 for one in records.transfers)
    assert len(records.message_costs_ns) > 0


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("namespaces=1", "has only one rank"),
        ("nowhere", "no hosts file"),
        ("loopback,lnk=3", "did you mean 'link'"),
    ],
)
def test_places_that_cannot_be_measured_are_named(place, said):
    with pytest.raises(ConfigError, match=said):
        measure_network(place, SYSTEM)


NS_PER_BYTE, LATENCY_NS = 80.0, 50_000
# Measurements of gloo's collectives: from a file to a network, and bad files.

GLOO_SIZES = [4096 << 2 * n for n in range(6)]


def write(tmp_path, calls, hosts=("a", "b"), **more):
    file = tmp_path / "gloo.json"
    file.write_text(json.dumps({"library": "gloo", "hosts": list(hosts), "calls": calls} | more))
    return file


def call(operation, size, duration, late=0):
    return {"operation": operation, "size_bytes": size, "durations_ns": [duration + late, duration]}


def measured():
    """All-reduces at the wire's rate, all-gathers that take half as long again."""
    calls = []
    for repeat in range(5):
        for size in GLOO_SIZES:
            wire = size * NS_PER_BYTE + 2 * LATENCY_NS
            calls.append(call("all_reduce", size, round(wire), late=1000 * repeat))
            calls.append(call("all_gather", size, round(1.5 * size * NS_PER_BYTE + LATENCY_NS)))
    return calls


def test_the_fastest_collective_gives_the_link_and_others_their_own_cost(tmp_path):
    file = write(tmp_path, measured())
    assert are_gloo_records(file)
    found = calibrate_records(gloo_records(file), SystemConfig.preset("default", 1))
    network = calibrated_network(found)
    assert network.bandwidth[0] == pytest.approx(1e9 / NS_PER_BYTE / 2**30, rel=0.03)
    assert set(found.efficiency.collectives) == {"all_gather"}
    assert not found.efficiency.messages
    size, cost_ns = found.efficiency.collectives["all_gather"][-1]
    assert cost_ns == pytest.approx(0.5 * size * NS_PER_BYTE, rel=0.1)


@pytest.mark.parametrize("operation", ["broadcast", "reduce", "gather", "scatter"])
def test_collectives_with_a_root_are_simulated_as_they_were_measured(tmp_path, operation):
    calls = measured()
    for repeat in range(5):
        for size in GLOO_SIZES:
            took = round(1.2 * size * NS_PER_BYTE + LATENCY_NS)
            calls.append(both_directions(operation, size, took, took - 100, repeat % 2))
    found = calibrate_records(gloo_records(write(tmp_path, calls)), SystemConfig.preset("default", 1))
    own = [point for point in found.points if point.operation == operation]
    assert [point.size_bytes for point in own] == GLOO_SIZES
    assert all(abs(point.error) < 0.05 for point in own)
    assert found.dimensions[0].fit.ns_per_byte.value == pytest.approx(NS_PER_BYTE, rel=0.03)


@pytest.mark.parametrize(("share", "substitutes"), [(1.0, {"reduce_scatter": "all_reduce"}), (0.5, {})])
def test_reduce_scatter_as_slow_as_all_reduce_is_substituted(tmp_path, share, substitutes):
    calls = measured()
    for _ in range(5):
        for size in GLOO_SIZES:
            calls.append(call("reduce_scatter", size, round(share * (size * NS_PER_BYTE + 2 * LATENCY_NS))))
    found = calibrate_records(gloo_records(write(tmp_path, calls)), SystemConfig.preset("default", 1))
    network = calibrated_network(found)
    assert dict(network.efficiency.substitutes) == substitutes
    assert sum("for reduce_scatter" in said for said in network.assumptions) == len(substitutes)
    assert set(found.efficiency.collectives) == {"all_gather"}
    assert not found.efficiency.messages


def test_the_rank_that_came_first_waited(tmp_path):
    transfer = gloo_records(write(tmp_path, [call("all_reduce", 8, 100, late=7)])).transfers[0]
    assert (transfer.transfer_ns, transfer.wait_ns) == (100, 7)


@pytest.mark.parametrize(
    ("calls", "hosts", "said"),
    [
        ([call("all_reduse", 8, 10)], "ab", "did you mean 'all_reduce'"),
        ([call("all_reduce", 0, 10)], "ab", "size above 0"),
        ([call("all_reduce", 8, 0)], "ab", "duration above 0"),
        ([{"operation": "all_reduce", "size_bytes": 8, "durations_ns": []}], "ab", "call 0"),
        ([], "a", "names 1 ranks"),
        ([{"operation": "all_reduce"}], "ab", "cannot be read"),
        ("no list", "ab", "cannot be read"),
    ],
)
def test_files_that_make_no_sense_are_refused(tmp_path, calls, hosts, said):
    with pytest.raises(ConfigError, match="(?i)" + said):
        gloo_records(write(tmp_path, calls, hosts))


def test_a_cut_file_is_refused(tmp_path):
    file = write(tmp_path, measured())
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ConfigError, match="cannot be read"):
        gloo_records(file)


def test_other_json_is_not_taken_for_measurements(tmp_path):
    other = tmp_path / "other.json"
    other.write_text('{"version": "2.5"}')
    assert not are_gloo_records(other)
    assert not are_gloo_records(tmp_path / "none.json")


def both_directions(operation, size, late, early, last):
    durations = [late, early] if last == 0 else [early, late]
    return {
        "operation": operation,
        "size_bytes": size,
        "durations_ns": durations,
        "last": last,
        "members": [0, 1],
    }


def exchanges(factor):
    calls = measured()
    for repeat in range(5):
        for size in GLOO_SIZES:
            one = round(size * NS_PER_BYTE + 2 * LATENCY_NS)
            calls.append(both_directions("message", size, one, one, 0))
            calls.append(both_directions("exchange", size, round(factor * one), one, repeat % 2))
    return calls


def test_last_rank_counts_even_if_another_ends_earlier(tmp_path):
    (one,) = gloo_records(write(tmp_path, [both_directions("all_to_all", 8, 100, 60, 1)])).transfers
    assert (one.transfer_ns, one.wait_ns) == (100, 0)


@pytest.mark.parametrize(("factor", "handshake"), [(2.0, "in-order"), (1.05, "none"), (1.5, "none")])
def test_exchanges_determine_the_handshake(tmp_path, factor, handshake):
    found = calibrate_records(
        gloo_records(write(tmp_path, exchanges(factor))), SystemConfig.preset("default", 1)
    )
    assert calibrated_network(found).efficiency.handshake == handshake
    assert any("close to neither 1 nor 2" in text for text in found.undetermined) == (factor == 1.5)
    assert not {point.operation for point in found.points} & {"exchange"}


@pytest.mark.parametrize(
    ("more", "said"),
    [({"last": 7}, "not a member"), ({"members": [0, 0]}, "two ranks or more"),
     ({"members": [0, 2]}, "two ranks or more")],
)  # fmt: skip
def test_members_that_make_no_sense_are_refused(tmp_path, more, said):
    with pytest.raises(ConfigError, match=said):
        gloo_records(write(tmp_path, [call("all_reduce", 8, 10) | more]))


def test_delayed_messages_do_not_hide_the_handshake(tmp_path):
    calls = exchanges(2.0)
    for place, one in enumerate(calls):
        if one["operation"] == "message" and place % 5 < 3:
            one["durations_ns"] = [2 * ns for ns in one["durations_ns"]]
    found = calibrate_records(gloo_records(write(tmp_path, calls)), SystemConfig.preset("default", 1))
    assert found.efficiency.handshake == "in-order"


def late_ranks(factor):
    """Return the measurements of ranks that arrive last, if exchanges take *factor* times a message."""
    calls = [{"last": 1} | one for one in exchanges(factor)]
    for place, one in enumerate(calls):
        if one["operation"] == "all_gather":
            calls[place] = both_directions("all_gather", one["size_bytes"], *2 * one["durations_ns"][:1], 1)
    for repeat in range(5):
        for size in GLOO_SIZES:
            one = round(size / 2 * NS_PER_BYTE + 2 * LATENCY_NS)
            calls.append(both_directions("all_to_all", size, 2 * one, one, repeat % 2))
    return calls


def test_turns_explain_the_time_of_the_last_rank(tmp_path):
    """An all-gather takes 1.5 times and an all-to-all twice as long, without fixed overheads."""
    found = calibrate_records(
        gloo_records(write(tmp_path, late_ranks(2.0))),
        SystemConfig.preset("default", 1),
        bandwidth_bytes_per_ns=1 / NS_PER_BYTE,
        latency_ns=LATENCY_NS,
    )
    network = calibrated_network(found)
    assert network.efficiency.sends_first == {"all_gather": 2, "all_to_all": 1}
    assert max(abs(point.wire_ns / point.measured_ns - 1) for point in found.points[-6:]) < 0.05
    assert found.efficiency.collectives.get("all_to_all", ((0, 0),))[-1][1] == 0
    assert found.efficiency.collectives.get("all_gather", ((0, 0),))[-1][1] == 0


def test_collectives_keep_their_time_where_messages_take_no_turns(tmp_path):
    found = calibrate_records(
        gloo_records(write(tmp_path, late_ranks(1.0))), SystemConfig.preset("default", 1)
    )
    assert not found.efficiency.sends_first
    assert "sends-first" not in calibrated_network(found).efficiency.to_dict()
    assert {"all_gather", "all_to_all"} <= set(found.efficiency.collectives)


def test_without_knowing_who_came_last_no_turns_are_assumed(tmp_path):
    calls = [{key: value for key, value in one.items() if key != "last"} for one in late_ranks(2.0)]
    assert not gloo_records(write(tmp_path, calls)).sends_first
