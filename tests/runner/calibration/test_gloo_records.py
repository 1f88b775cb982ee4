"""Measurements of gloo's collectives: from a file to a network, and bad files."""

import json

import pytest

from chakrascope.errors import ConfigError
from chakrascope.runner.calibration import (
    are_gloo_records,
    calibrate_records,
    calibrated_network,
    gloo_records,
)
from chakrascope.runner.config import SystemConfig

NS_PER_BYTE, LATENCY_NS = 80.0, 50_000
SIZES = [4096 << 2 * n for n in range(6)]


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
        for size in SIZES:
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
    assert set(found.costs) == {"all_gather"}
    size, cost_ns = found.costs["all_gather"][-1]
    assert cost_ns == pytest.approx(0.5 * size * NS_PER_BYTE, rel=0.1)


@pytest.mark.parametrize("operation", ["broadcast", "reduce", "gather", "scatter"])
def test_collectives_with_a_root_are_simulated_as_they_were_measured(tmp_path, operation):
    calls = measured()
    for repeat in range(5):
        for size in SIZES:
            took = round(1.2 * size * NS_PER_BYTE + LATENCY_NS)
            calls.append(both_directions(operation, size, took, took - 100, repeat % 2))
    found = calibrate_records(gloo_records(write(tmp_path, calls)), SystemConfig.preset("default", 1))
    own = [point for point in found.points if point.operation == operation]
    assert [point.size_bytes for point in own] == SIZES
    assert all(abs(point.error) < 0.05 for point in own)
    assert found.dimensions[0].fit.ns_per_byte.value == pytest.approx(NS_PER_BYTE, rel=0.03)


@pytest.mark.parametrize(("share", "substitutes"), [(1.0, {"reduce_scatter": "all_reduce"}), (0.5, {})])
def test_reduce_scatter_as_slow_as_all_reduce_is_substituted(tmp_path, share, substitutes):
    calls = measured()
    for _ in range(5):
        for size in SIZES:
            calls.append(call("reduce_scatter", size, round(share * (size * NS_PER_BYTE + 2 * LATENCY_NS))))
    found = calibrate_records(gloo_records(write(tmp_path, calls)), SystemConfig.preset("default", 1))
    network = calibrated_network(found)
    assert dict(network.efficiency.substitutes) == substitutes
    assert sum("for reduce_scatter" in said for said in network.assumptions) == len(substitutes)
    assert set(found.costs) == {"all_gather"}


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
        for size in SIZES:
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
    assert found.handshake == calibrated_network(found).efficiency.handshake == handshake
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
    assert found.handshake == "in-order"


def late_ranks(factor):
    """What ranks that come last measure where exchanges take *factor* times a message."""
    calls = [{"last": 1} | one for one in exchanges(factor)]
    for place, one in enumerate(calls):
        if one["operation"] == "all_gather":
            calls[place] = both_directions("all_gather", one["size_bytes"], *2 * one["durations_ns"][:1], 1)
    for repeat in range(5):
        for size in SIZES:
            one = round(size / 2 * NS_PER_BYTE + 2 * LATENCY_NS)
            calls.append(both_directions("all_to_all", size, 2 * one, one, repeat % 2))
    return calls


def test_turns_explain_the_time_of_the_last_rank(tmp_path):
    """An all-gather takes half as long again and an all-to-all twice as long, with no time of their own."""
    found = calibrate_records(
        gloo_records(write(tmp_path, late_ranks(2.0))),
        SystemConfig.preset("default", 1),
        bandwidth_bytes_per_ns=1 / NS_PER_BYTE,
        latency_ns=LATENCY_NS,
    )
    network = calibrated_network(found)
    assert network.efficiency.sends_first == {"all_gather": 2, "all_to_all": 1}
    assert max(abs(point.wire_ns / point.measured_ns - 1) for point in found.points[-6:]) < 0.05
    assert found.costs.get("all_to_all", ((0, 0),))[-1][1] == 0
    assert found.costs.get("all_gather", ((0, 0),))[-1][1] == 0


def test_collectives_keep_their_time_where_messages_take_no_turns(tmp_path):
    found = calibrate_records(
        gloo_records(write(tmp_path, late_ranks(1.0))), SystemConfig.preset("default", 1)
    )
    assert not found.sends_first
    assert "sends-first" not in calibrated_network(found).efficiency.to_dict()
    assert {"all_gather", "all_to_all"} <= set(found.costs)


def test_without_knowing_who_came_last_no_turns_are_assumed(tmp_path):
    calls = [{key: value for key, value in one.items() if key != "last"} for one in late_ranks(2.0)]
    assert not gloo_records(write(tmp_path, calls)).sends_first
