"""Flows on links that fail, slow down or come back in the middle of a simulation."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given, settings
from packets import star
from test_flow import carry
from test_link_changes import PAYLOAD, US, clos, failing, failures_for_a_time, run, tandem_ps, told

from chakrascope.converter import microbenchmark
from chakrascope.runner import simulate


@pytest.mark.parametrize("hop", [0, 1])
@pytest.mark.parametrize(("at_us", "times"), [(1, 2), (7, 4), (15, 2)])
def test_flows_take_the_rate_that_links_have_at_the_time(hop, at_us, times):
    failure = {"link": [hop, 2], "rate": 1 / times, "at": f"{at_us}us"}
    network = failing(star(2, HAS_WIN=0), failure)
    result = carry(network, [(0, 1, 1000 * PAYLOAD)])
    assert result.flows["end_ns"].max() * 1000 == pytest.approx(
        tandem_ps(1000, hop, at_us * US, times), rel=5e-3
    )
    assert told(result, f"Links changed at {at_us * 1000} ns: 0 packets lost, 0 messages took another way.")


@pytest.mark.parametrize(
    "failures",
    [
        [{"link": [0, 4], "rate": 0.3, "at": "30us"}],
        [{"link": [5, 6], "rate": 0.5, "at": "30us", "until": "80us"}],
        [{"link": [4, 6], "at": "30us"}],
        [{"link": [4, 6], "at": "30us", "until": "60us"}],
        [{"link": [0, 4], "at": "10us", "until": "2ms"}],
    ],
)
def test_flows_on_links_that_change_are_near_packets(failures):
    flow, packet = (run(clos(*failures), backend, "all-to-all") for backend in ("flow", "packet"))
    assert flow.makespan_ns == pytest.approx(packet.makespan_ns, rel=0.03)
    assert flow.flows["bytes"].sum() == packet.flows["bytes"].sum()
    counts = [[text.split(": ")[0] for text in told(result, "Links changed at")] for result in (flow, packet)]
    assert counts[0] == counts[1]
    cut = any("rate" not in failure for failure in failures)
    assert ("loss" in flow.provenance["flow"]["flags"]) == cut
    if cut:  # and packets were sent again
        return
    carried = (flow.links.groupby("src")["bytes"].sum(), packet.links.groupby("src")["bytes"].sum())
    pd.testing.assert_series_equal(*carried, rtol=0.05)


@settings(max_examples=25, deadline=None)
@given(failures_for_a_time())
def test_whatever_fails_for_a_time_every_flow_arrives(failures):
    result = run(clos(*failures), "flow", "all-to-all")
    assert result.flows["bytes"].sum() == run(clos(), "flow", "all-to-all").flows["bytes"].sum()
    assert run(clos(*failures), "flow", "all-to-all").makespan_ns == result.makespan_ns
    ends = result.flows["end_ns"] - result.flows["start_ns"]
    assert (ends > 0).all()


@pytest.mark.parametrize("failure", [{"link": [4, 6]}, {"link": [0, 4], "rate": 0.5}])
@pytest.mark.parametrize("size", [1 << 18, 4 << 20])
def test_a_failure_from_0_ns_on_is_one_from_the_start(failure, size):
    model = microbenchmark("all-to-all", 4, size)
    lasting, timed = (
        simulate(model, "default", clos(given), backend="flow")
        for given in (failure, failure | {"at": "0us"})
    )
    assert timed.flows.equals(lasting.flows)
    assert timed.provenance["flow"] == lasting.provenance["flow"]
