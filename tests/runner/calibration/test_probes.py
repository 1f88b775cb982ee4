"""Measuring a network: what is sent, and what comes back of a network that is known."""

from __future__ import annotations

import pytest

from chakrascope.errors import ConfigError
from chakrascope.runner import simulate
from chakrascope.runner.calibration import calibrate_records, measure_network
from chakrascope.runner.calibration._probes import probe_records, probes
from chakrascope.runner.config import EfficiencyPart

from .known import SYSTEM, network

HOSTS = {0: "a", 1: "a", 2: "b", 3: "b"}


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


def test_what_a_message_costs_its_sender_comes_back():
    records = simulated(network((2.0,), (3000.0,)), {0: "a", 1: "b"}, message_cost_ns=5000)
    found = calibrate_records(records, SYSTEM)
    assert found.message_cost_ns.value == pytest.approx(5000, rel=0.02)
    (dimension,) = found.dimensions
    assert 1 / dimension.fit.ns_per_byte.value == pytest.approx(2.0, rel=0.03)
    assert dimension.fit.latency_ns.value == pytest.approx(3000.0, rel=0.05)


def test_every_level_is_measured_by_itself():
    records = simulated(network((10.0, 1.0), (1000.0, 20_000.0), (2, 2)), HOSTS)
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
        ("namespaces=1", "has one rank"),
        ("nowhere", "no hosts file"),
        ("loopback,lnk=3", "did you mean 'link'"),
    ],
)
def test_places_that_cannot_be_measured_are_named(place, said):
    with pytest.raises(ConfigError, match=said):
        measure_network(place, SYSTEM)
