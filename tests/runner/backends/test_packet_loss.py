"""Links that lose packets end every job, whatever the congestion control: the work grows with the losses."""

from __future__ import annotations

import pytest

from chakrascope.converter import microbenchmark
from chakrascope.runner import NetworkConfig, simulate

STAR = {"topology": ["Switch"], "npus_count": [8], "bandwidth": [10.0], "latency": [500.0]}
# Every packet that waits is marked, so that rates fall as low as they can.
ALL_MARKED = {
    "KMIN_MAP": {85_899_345_920: 1},
    "KMAX_MAP": {85_899_345_920: 2},
    "PMAX_MAP": {85_899_345_920: 1.0},
}


@pytest.mark.parametrize("marks", [{}, ALL_MARKED], ids=["", "marked"])
@pytest.mark.parametrize("loss", [0.01, 0.3, 0.6])
@pytest.mark.parametrize("mode", [12, 1, 3, 7, 8, 10])
def test_every_job_ends_and_costs_what_was_lost(mode, loss, marks):
    part = {"CC_MODE": mode, "ERROR_RATE_PER_LINK": loss, **marks}
    network = NetworkConfig.from_mapping(STAR | {"packet": part}, "here")
    told = simulate(microbenchmark("all-to-all", 8, 1 << 17), "default", network, backend="packet").provenance
    packets = told["packets"]
    assert packets["drops"] > 0
    # A packet is sent, received and answered over two links each way; timers of DCQCN tick beside that.
    assert packets["network_events"] < 40 * (packets["data_packets"] + packets["drops"])


@pytest.mark.parametrize("mode", [12, 1, 3])
def test_a_message_that_begins_anew_ends_too(mode):
    part = {"CC_MODE": mode, "ERROR_RATE_PER_LINK": 0.05, "L2_BACK_TO_ZERO": 1}
    network = NetworkConfig.from_mapping(STAR | {"packet": part}, "here")
    result = simulate(microbenchmark("all-to-all", 8, 1 << 20), "default", network, backend="packet")
    assert result.flows["bytes"].sum() >= 7 * (1 << 20)
