"""Fits recover known bandwidths, latencies and library overheads within their intervals."""

from dataclasses import replace

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from chakrascope.errors import ConfigError
from chakrascope.runner import NetworkConfig, simulate
from chakrascope.runner.calibration import (
    Records,
    calibrate_records,
    calibrated_network,
    calibration_facts,
    calibration_points,
    picture,
)

from .known import OPERATIONS, SIZES, SYSTEM, every_size, measured, network, transfer, workload


def rate(dimension):
    figure = dimension.fit.ns_per_byte
    return 1 / figure.value, 1 / figure.high, 1 / figure.low


def within(value, low, high):
    return low <= value <= high


@settings(max_examples=8)
@given(
    bytes_per_ns=st.floats(0.01, 100),
    latency_ns=st.floats(500, 100_000),
    ranks=st.sampled_from([2, 4]),
    seed=st.integers(0, 100),
)
def test_bandwidth_and_latency_come_back(bytes_per_ns, latency_ns, ranks, seed):
    known = network((bytes_per_ns,), (latency_ns,), (ranks,))
    largest = 1 << 28 if bytes_per_ns * latency_ns > 1 << 18 else 1 << 24
    calls = every_size(("all_reduce", "all_gather"), (64, 4096, 1 << 18, 1 << 22, largest))
    found = calibrate_records(measured(workload(calls, ranks, seed=seed), known), SYSTEM)
    (dimension,) = found.dimensions
    value, low, high = rate(dimension)
    assert value == pytest.approx(bytes_per_ns, rel=0.02)
    assert within(bytes_per_ns, low, high)
    latency = dimension.fit.latency_ns
    assert within(latency_ns, latency.low, latency.high)
    assert latency.value == pytest.approx(latency_ns, rel=0.02)
    assert not found.efficiency.collectives
    assert not found.efficiency.messages
    assert max(abs(point.error) for point in found.points) < 0.02


def test_intervals_hold_the_truth_where_times_scatter():
    hits = []
    for seed in range(20):
        calls = every_size(("all_reduce",))
        records = measured(workload(calls, 2, repeats=7, seed=seed), network(), noise=0.1, seed=seed)
        (dimension,) = calibrate_records(records, SYSTEM).dimensions
        value, low, high = rate(dimension)
        latency = dimension.fit.latency_ns
        assert value == pytest.approx(1.0, rel=0.15)
        hits += [within(1.0, low, high), within(5000.0, latency.low, latency.high)]
    assert np.mean(hits) >= 0.85


def test_outliers_count_little():
    records = measured(workload(every_size(), 2, repeats=9), network(), noise=0.03)
    spoiled = tuple(
        one._replace(transfer_ns=one.transfer_ns * 30) if place % 9 == 0 else one
        for place, one in enumerate(records.transfers)
    )
    (dimension,) = calibrate_records(replace(records, transfers=spoiled), SYSTEM).dimensions
    assert rate(dimension)[0] == pytest.approx(1.0, rel=0.05)


def test_waiting_is_no_transfer():
    made = workload(every_size(), 2, late_ns=50_000_000)
    records = measured(made, network())
    assert max(one.wait_ns for one in records.transfers) > 10_000_000
    (dimension,) = calibrate_records(records, SYSTEM).dimensions
    assert rate(dimension)[0] == pytest.approx(1.0, rel=0.02)


def test_library_overhead_is_fitted_and_reproduces_measurements():
    own = tuple((size, 20_000 + size // 2) for size in SIZES)
    known = network(all_gather=own)
    made = workload(every_size(), 2, repeats=5)
    records = measured(made, known)
    found = calibrate_records(records, SYSTEM)
    (dimension,) = found.dimensions
    assert rate(dimension)[0] == pytest.approx(1.0, rel=0.02)
    assert set(found.efficiency.collectives) == {"all_gather"}
    assert not found.efficiency.messages
    assert [size for size, _ in found.efficiency.collectives["all_gather"]] == list(SIZES)
    fitted_ns, own_ns = (
        [ns for _, ns in curve] for curve in (found.efficiency.collectives["all_gather"], own)
    )
    assert fitted_ns == pytest.approx(own_ns, rel=0.1, abs=500)
    fitted = calibrated_network(found)
    again = simulate(made, SYSTEM, fitted, semantics="trace").makespan_ns
    assert again == pytest.approx(simulate(made, SYSTEM, known, semantics="trace").makespan_ns, rel=0.01)


def test_what_is_not_reached_of_a_known_bandwidth_is_the_librarys():
    records = measured(workload(every_size(("all_reduce",)), 2), network((0.5,)))
    found = calibrate_records(records, SYSTEM, bandwidth_bytes_per_ns=1.0, latency_ns=5000)
    (dimension,) = found.dimensions
    assert dimension.fit.ns_per_byte.known == dimension.fit.latency_ns.known == "given"
    largest = found.points[-1]
    assert largest.efficiency == pytest.approx(0.5, abs=0.01)
    assert found.efficiency.collectives["all_reduce"][-1][1] == pytest.approx(SIZES[-1], rel=0.02)


def test_headers_are_separated_from_bandwidth():
    records = measured(workload(every_size(), 2), network((0.9,)))
    found = calibrate_records(records, SYSTEM, wire=0.9)
    fitted = calibrated_network(found)
    assert fitted.bandwidth_bytes_per_ns[0] == pytest.approx(1.0, rel=0.02)
    assert fitted.efficiency.wire == 0.9


def test_dimensions_by_host_have_separate_figures():
    groups = {1: (0, 1), 2: (2, 3), 3: (0, 2), 4: (1, 3)}
    calls = [call for group in groups for call in every_size(("all_reduce",), group=group)]
    known = network((10.0, 1.0), (1000.0, 20_000.0), (2, 2))
    hosts = {0: "a", 1: "a", 2: "b", 3: "b"}
    found = calibrate_records(measured(workload(calls, 4, groups=groups), known, hosts=hosts), SYSTEM)
    assert [dimension.name for dimension in found.dimensions] == ["same host", "other host"]
    assert [rate(dimension)[0] for dimension in found.dimensions] == pytest.approx([10.0, 1.0], rel=0.03)
    latencies = [dimension.fit.latency_ns.value for dimension in found.dimensions]
    assert latencies == pytest.approx([1000.0, 20_000.0], rel=0.03)
    assert calibrated_network(found).npus_count == (2, 2)
    assert any("leaf" in text for text in found.undetermined)


def test_leaves_are_a_dimension_where_they_are_named():
    groups = {1: (0, 1), 2: (0, 2), 3: (0, 4)}
    calls = [call for group in groups for call in every_size(("all_reduce",), group=group)]
    known = network((10.0, 4.0, 1.0), (1000.0, 2000.0, 4000.0), (2, 2, 2))
    records = measured(workload(calls, 8, groups=groups), known, hosts={r: f"h{r // 2}" for r in range(8)})
    records = replace(records, leaves={rank: f"leaf{rank // 4}" for rank in range(8)})
    found = calibrate_records(records, SYSTEM)
    assert [dimension.name for dimension in found.dimensions] == ["same host", "same leaf", "other leaf"]
    assert [rate(dimension)[0] for dimension in found.dimensions] == pytest.approx([10, 4, 1], rel=0.03)


def test_indistinguishable_dimensions_are_merged_with_a_note():
    records = measured(workload(every_size(), 4), network(counts=(4,)))
    records = replace(records, hosts={0: "a", 1: "a", 2: "b", 3: "b"})
    found = calibrate_records(records, SYSTEM)
    assert [dimension.count for dimension in found.dimensions] == [4]
    assert any("could not be distinguished" in text for text in found.undetermined)


def test_unequal_hosts_are_one_dimension_with_a_note():
    records = measured(workload(every_size(), 3), network(counts=(3,)), hosts={0: "a", 1: "a", 2: "b"})
    found = calibrate_records(records, SYSTEM)
    assert [dimension.count for dimension in found.dimensions] == [3]
    assert any("equal numbers of consecutive ranks" in text for text in found.undetermined)


def test_one_size_does_not_separate_latency_and_bandwidth():
    records = measured(workload([("all_reduce", 1 << 20, 0)], 2, repeats=8), network())
    found = calibrate_records(records, SYSTEM)
    (dimension,) = found.dimensions
    assert dimension.fit.latency_ns.known == "unknown"
    assert any("one size" in text and "latency" in text for text in found.undetermined)
    assert rate(dimension)[0] < 1.0
    told = calibrate_records(records, SYSTEM, latency_ns=5000.0)
    assert rate(told.dimensions[0])[0] == pytest.approx(1.0, rel=0.01)
    assert not any("latency" in text for text in told.undetermined)


def test_sizes_that_are_much_alike_do_not_either():
    calls = [("all_reduce", size, 0) for size in (1 << 20, 3 << 19)]
    found = calibrate_records(measured(workload(calls, 2), network()), SYSTEM)
    assert any("too similar" in text for text in found.undetermined)


def test_small_messages_do_not_determine_the_bandwidth():
    calls = [("all_reduce", size, 0) for size in (64, 256, 1024)]
    records = measured(workload(calls, 2, repeats=5), network((10.0,), (50_000.0,)), noise=0.1)
    with pytest.raises(ConfigError, match="too small, or too few"):
        calibrate_records(records, SYSTEM)
    found = calibrate_records(records, SYSTEM, bandwidth_bytes_per_ns=10.0)
    latency = found.dimensions[0].fit.latency_ns
    assert within(50_000.0, latency.low, latency.high)


def test_no_usable_transfer_is_an_error_with_reasons():
    nothing = Records((), 2, "the capture x", left_out=("3 broadcasts",))
    with pytest.raises(ConfigError, match=r"nothing to fit.*Left out: 3 broadcasts"):
        calibrate_records(nothing, SYSTEM)


def test_a_size_that_was_seen_once_makes_no_curve():
    records = measured(workload(every_size(("all_reduce",)), 2, repeats=5), network())
    odd = transfer("all_gather", 1 << 20, 50_000_000)
    found = calibrate_records(replace(records, transfers=(*records.transfers, odd)), SYSTEM)
    assert not found.efficiency.collectives
    assert not found.efficiency.messages
    assert rate(found.dimensions[0])[0] == pytest.approx(1.0, rel=0.02)


def test_the_file_holds_what_the_figures_rest_on(tmp_path):
    found = calibrate_records(measured(workload(every_size(), 2, repeats=4), network()), SYSTEM)
    path = tmp_path / "network.yml"
    calibrated_network(found, "network", "2026-01-01T00:00:00+00:00").save(path)
    known = yaml.safe_load(path.read_text())["calibration"]
    assert known["when"] == "2026-01-01T00:00:00+00:00"
    assert known["fitted-on"] == "a known network"
    (dimension,) = known["dimensions"]
    bandwidth = dimension["bandwidth-bytes-per-ns"]
    assert within(1.0, bandwidth["low"], bandwidth["high"])
    assert len(known["points"]) == len(SIZES) * len(OPERATIONS)
    again = NetworkConfig.load(path)
    assert any("a known network" in text for text in again.remarks)
    for backend in ("analytical-unaware", "analytical-aware", "flow", "packet"):
        result = simulate(workload([("all_reduce", 4096, 0)], 2), "default", again, backend=backend)
        assert any("a known network" in text for text in result.provenance["assumptions"])


def test_the_same_records_give_the_same_figures():
    records = measured(workload(every_size(), 2, repeats=5), network(), noise=0.2)
    first, second = (calibration_facts(calibrate_records(records, SYSTEM)) for _ in range(2))
    assert first == second


def test_the_picture_has_every_point_and_both_lines():
    found = calibrate_records(measured(workload(every_size(), 2), network()), SYSTEM)
    svg = picture(found)
    assert svg.count("<title>") == len(found.points)
    assert svg.count("<polyline") == 2 * len(OPERATIONS)
    one = calibrate_records(measured(workload([("all_reduce", 4096, 0)], 2, repeats=3), network()), SYSTEM)
    assert "nan" not in picture(one)


def test_the_table_of_no_points_has_its_columns():
    """Consecutive calls, such as those of gradient buckets, are fitted together and have no points."""
    found = calibrate_records(measured(workload(every_size(), 2), network()), SYSTEM)
    assert len(calibration_points(found)) == len(found.points)
    nothing = calibration_points(replace(found, points=()))
    assert nothing.empty
    assert [*nothing] == [*calibration_points(found)]


def test_single_measurements_have_wide_intervals():
    transfers = tuple(transfer("all_reduce", size, 2 * size) for size in (1 << 16, 1 << 20, 1 << 24))
    (dimension,) = calibrate_records(Records(transfers, 2, "three"), SYSTEM).dimensions
    _, low, high = rate(dimension)
    assert high / low > 1.1
    assert within(0.5, low, high)


def test_sizes_that_contradict_each_other_are_no_bandwidth():
    transfers = (transfer("all_reduce", 1 << 20, 50_000_000), transfer("all_reduce", 1 << 24, 1_000_000))
    with pytest.raises(ConfigError, match="too small, or too few"):
        calibrate_records(Records(transfers, 2, "two"), SYSTEM)


def test_bursty_link_has_bandwidth_of_large_messages():
    def taken(size):
        return round(max(40_000, 20_000 + (size - 65_536) * 10))

    transfers = [transfer("all_reduce", size, taken(size) + odd) for size in SIZES for odd in range(5)]
    transfers += [transfer("all_gather", size, taken(size) + odd) for size in SIZES for odd in range(5)]
    found = calibrate_records(Records(tuple(transfers), 2, "a shaped link"), SYSTEM)
    assert rate(found.dimensions[0])[0] == pytest.approx(0.1, rel=0.02)
    assert any("bursts" in text for text in found.undetermined)


def test_uncertain_message_cost_is_not_written():
    records = measured(workload(every_size(), 2), network())
    steady = calibrate_records(replace(records, message_costs_ns=(9_000.0, 10_000.0, 11_000.0)), SYSTEM)
    assert steady.message_cost_ns.value == 10_000
    assert calibrated_network(steady).efficiency.message_cost_ns == 10_000
    loose = calibrate_records(replace(records, message_costs_ns=(0.0, 10_000.0, 900_000.0)), SYSTEM)
    assert loose.message_cost_ns is None
    assert any("cost of a message for its sender" in text for text in loose.undetermined)
