"""The backend that asks the flow model first, and packets where that may be too far off."""

from __future__ import annotations

import pytest
from packets import star
from workloads import coll, workload

from chakrascope.converter import CollectiveType
from chakrascope.errors import ConfigError
from chakrascope.runner import simulate

MODEL = workload(*[[coll(0, 1 << 20, comm_type=CollectiveType.ALL_TO_ALL)] for _ in range(4)])


def answer(fabric, backend):
    return simulate(MODEL, "default", fabric, backend=backend)


def test_what_no_flag_speaks_against_is_answered_with_flows():
    result, flow = answer(star(4), "auto"), answer(star(4), "flow")
    assert result.makespan_ns == flow.makespan_ns
    told = result.provenance["auto"]
    assert told["answered"] == "flow"
    assert told["flags"] == []
    assert 0 < told["expected"] <= told["asked"] == 0.02
    assert told["cases"] > 100
    assert any("answered with 'flow'" in line for line in result.provenance["assumptions"])


def test_a_flag_asks_for_packets():
    fabric = star(4, ERROR_RATE_PER_LINK=1e-9)
    result, packet = answer(fabric, "auto"), answer(fabric, "packet")
    assert result.makespan_ns == packet.makespan_ns
    told = result.provenance["auto"]
    assert told["answered"] == "packet"
    assert told["flags"] == ["loss"]
    assert told["flow_makespan_ns"] == answer(fabric, "flow").makespan_ns
    assert any("because of loss" in line for line in result.provenance["assumptions"])


def test_an_error_that_flows_are_not_known_for_asks_for_packets():
    result = answer(star(4), "auto:0.0001%")
    assert result.provenance["auto"]["answered"] == "packet"
    assert result.provenance["auto"]["asked"] == 1e-6
    assert answer(star(4), "auto:0.5").provenance["auto"]["answered"] == "flow"


@pytest.mark.parametrize("name", ["auto:", "auto:much", "auto:-1%", "auto:0", "auto:101%", "auto:nan"])
def test_what_is_no_error_is_refused(name):
    with pytest.raises(ConfigError, match="how far off"):
        answer(star(4), name)
