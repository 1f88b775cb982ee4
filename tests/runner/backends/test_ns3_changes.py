"""ns-3's TCP over links that fail, slow down or come back in the middle of a simulation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chakrascope.converter import microbenchmark
from chakrascope.errors import BackendError
from chakrascope.runner import NetworkConfig, simulate
from chakrascope.runner.backends.ns3 import TcpDriver
from chakrascope.runner.config import TcpPart, fabric_of, read_failures

# Two ranks under each of two leaves (4, 5), two spines (6, 7).
LINKS = [[rank, 4 + rank // 2, 1.0, 1000] for rank in range(4)]
LINKS += [[leaf, spine, 1.0, 2000] for leaf in (4, 5) for spine in (6, 7)]
GRAPH = {"topology": ["Switch"], "npus_count": [4], "bandwidth": [1.0], "latency": [100.0], "links": LINKS}
MIB = 1 << 20


def run(*failures, size=4 * MIB):
    network = NetworkConfig.from_mapping(GRAPH | {"failures": list(failures)}, "here")
    return simulate(microbenchmark("all-reduce", 4, size), "default", network, backend="ns3")


def told(result, words):
    return [text for text in result.provenance["assumptions"] if words in text]


@pytest.mark.parametrize("share", [0.5, 0.1])
def test_the_rest_of_a_message_takes_as_long_as_the_slow_link_says(tcp, share):
    part = TcpPart.from_mapping({"buffer": "8MiB"})
    star = NetworkConfig(("Switch",), (2,), (1.0,), (1000.0,), tcp=part)

    def arrival(*failures):
        network = replace(star, failures=read_failures(list(failures), (), "here"))
        with TcpDriver(tcp, fabric_of(network), part) as driver:
            return dict(driver.advance([(0, 0, 1, 32 * MIB, 0)], -1))[0]

    whole, middle = arrival(), 10_000_000
    slow = arrival({"link": [0, 2], "rate": share, "at": middle})
    # What is under way at that moment (a window at most) passes the link that is not slow any more.
    assert slow == pytest.approx(middle + (whole - middle) / share, rel=2e-3)
    back = arrival({"link": [0, 2], "rate": share, "at": middle, "until": 2 * middle})
    assert back == pytest.approx(whole + middle * (1 - share), rel=2e-3)


def test_a_failure_from_nought_on_is_one_from_the_start(tcp):
    slow = {"link": [0, 4], "rate": 0.25}
    timed = run(slow | {"at": 0, "until": "60s"})
    assert timed.makespan_ns == run(slow).makespan_ns
    assert told(timed, "The job was done before links changed at 60000000000 ns.")


def test_connections_go_round_a_switch_that_fails(tcp):
    whole, failed = run(), run({"device": 6, "at": "1ms"})
    assert whole.makespan_ns < failed.makespan_ns < 1.1 * whole.makespan_ns
    assert failed.provenance["packets"]["retransmissions"] > 0
    assert failed.provenance["packets"]["timeouts"] == 0
    through = failed.link_use[(failed.link_use["src"] == 6) | (failed.link_use["dst"] == 6)]
    assert not through.empty
    # Nothing goes through it once what waited for it is sent and lost.
    assert through["start_ns"].max() < 2_000_000
    assert failed.flows["bytes"].sum() == whole.flows["bytes"].sum()


def test_what_was_lost_with_the_only_way_waits_for_the_timeout(tcp):
    failed = run({"link": [0, 4], "at": "1ms", "until": "2ms"})
    assert failed.makespan_ns > 200_000_000
    assert failed.provenance["packets"]["timeouts"] > 0
    assert told(failed, "A link that goes down loses what is on it")


def test_ranks_that_are_cut_off_for_good_are_an_error(tcp):
    with pytest.raises(BackendError, match="gave up: its segments are lost again and again"):
        run({"link": [0, 4], "at": "1ms"})


def test_a_change_after_the_job_changes_nothing(tcp):
    whole, later = run(), run({"device": 6, "at": "10s"})
    assert later.makespan_ns == whole.makespan_ns
    assert told(later, "The job was done before links changed at 10000000000 ns.")
    assert not told(later, "A link that goes down")
