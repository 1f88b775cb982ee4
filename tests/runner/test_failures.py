"""Failed or slow links: the remaining network, and the failures that no backend may ignore."""

import re
from dataclasses import replace

import command_line
import pytest
import yaml
from studies import run_in

from chakrascope.converter import microbenchmark
from chakrascope.errors import BackendUnavailable, ChakrascopeError, ConfigError
from chakrascope.runner import (
    NetworkConfig,
    Study,
    SystemConfig,
    communication_of,
    simulate,
)
from chakrascope.runner.analysis import check_setup
from chakrascope.runner.config import fabric_of, read_failures
from chakrascope.runner.study import run_table

# Two ranks under each of two leaves (4, 5), two spines (6, 7); leaves and spines have two links each.
LINKS = [[rank, 4 + rank // 2, 10.0, 100] for rank in range(4)]
LINKS += [[leaf, spine, 5.0, 200] for leaf in (4, 5) for spine in (6, 7) for _ in range(2)]
NAMES = ["r0", "r1", "r2", "r3", "leaf0", "leaf1", "spine0", "spine1"]
GRAPH = {
    "topology": ["Switch"],
    "npus_count": [4],
    "bandwidth": [10.0],
    "latency": [100.0],
    "links": LINKS,
    "devices": NAMES,
}


def network(*failures, **more):
    return NetworkConfig.from_mapping(GRAPH | {"failures": list(failures)} | more, "here")


def pairs(config):
    return [(a, b, rate_bps / 8 / 2**30) for a, b, rate_bps, *_ in fabric_of(config).links]


def makespan(config, backend="analytical-aware", size=1 << 20):
    return simulate(microbenchmark("all-reduce", config.num_ranks, size), "default", config, backend=backend)


def test_links_that_are_down_are_gone():
    whole = pairs(network())
    assert pairs(network({"link": ["leaf0", "spine0"]})) == [link for link in whole if link[:2] != (4, 6)]
    assert pairs(network({"link": [6, 4], "count": 1})).count((4, 6, 5.0)) == 1
    assert pairs(network({"device": "spine1"})) == [link for link in whole if link[1] != 7]


def test_slow_links_keep_their_share():
    slow = pairs(network({"link": ["r0", "leaf0"], "rate": 0.25}, {"device": "spine0", "rate": 0.5}))
    assert slow[0] == (0, 4, 2.5)
    assert [bandwidth for _, b, bandwidth in slow if b == 6] == [2.5] * 4
    assert [bandwidth for _, b, bandwidth in slow if b == 7] == [5.0] * 4


def test_messages_go_round_what_is_down():
    whole = makespan(network())
    # The path through the lowest switch has failed, and the other one is as good.
    assert makespan(network({"device": "spine0"})).makespan_ns == whole.makespan_ns
    slow = makespan(network({"link": ["leaf0", "spine0"], "rate": 0.25}))
    assert slow.makespan_ns > 1.5 * whole.makespan_ns
    assert (
        "Failure: link leaf0 - spine0 is at 25.0 % of its bandwidth from the start."
        in (slow.provenance["assumptions"])
    )
    assert slow.provenance["experiment_hash"] != whole.provenance["experiment_hash"]


@pytest.mark.parametrize("backend", ["analytical-aware", "flow", "packet", "ns3"])
def test_ranks_that_are_cut_off_are_an_error(backend):
    config = network({"link": ["r0", "leaf0"]})
    with pytest.raises(ChakrascopeError) as caught:
        makespan(config, backend)
    if caught.type is BackendUnavailable:
        pytest.skip(caught.value.message)
    assert re.search(r"no (?:way leads|path) from (device|host) \d to (rank|host) \d", caught.value.message)


@pytest.mark.parametrize("backend", ["flow", "packet", "ns3"])
def test_every_link_model_routes_around_failures(backend):
    try:
        whole = makespan(network(), backend)
    except BackendUnavailable as error:
        pytest.skip(str(error))
    down = makespan(network({"device": "spine0"}), backend)
    # The other spine keeps its number.
    assert set(down.links["src"]) == {0, 1, 2, 3, 4, 5, 7}
    assert down.flows["bytes"].sum() == whole.flows["bytes"].sum()
    slow = makespan(network({"link": ["leaf0", "spine0"], "rate": 0.1}), backend)
    assert slow.makespan_ns > whole.makespan_ns


def test_dimensions_and_fabrics_fail_by_the_numbers_of_their_links():
    clos = NetworkConfig.preset("clos-2tier-64")
    failed = replace(clos, failures=read_failures([{"link": [64, 72]}], (), "here"))
    whole, left = fabric_of(clos).links, fabric_of(failed).links
    gone = [link for link in whole if link not in left]
    assert [(link.a, link.b) for link in gone] == [(64, 72)]
    two = NetworkConfig(("Switch", "Switch"), (4, 2), (8.0, 4.0), (100.0, 100.0))
    failed = replace(two, failures=read_failures([{"link": [5, 9], "rate": 0.5}], (), "here"))
    slow = [link for link in fabric_of(failed).links if link not in fabric_of(two).links]
    # Rank 5 has the router 8 + 5; switches 8 to 13 of the dimensions follow the routers.
    assert [(link.a, link.b) for link in slow] == [(13, 17)]
    assert any("a router for each rank" in text for text in failed.remarks)
    assert makespan(failed).makespan_ns > 0


def test_files_keep_failures(tmp_path):
    config = network({"link": ["leaf0", "spine0"], "rate": 0.5, "count": 1}, {"device": 7, "at": "0 ns"})
    config.save(tmp_path / "network.yml")
    again = NetworkConfig.load(tmp_path / "network.yml")
    assert again == replace(config, name="network")
    assert again.failures[0].devices == (4, 6)


def test_a_topology_of_packets_can_fail(tmp_path):
    part = {"nodes": 4, "switches": [1], "links": [[0, 1, "10Gbps", "1us"], [2, 1, "10Gbps", "1us"]] * 2}
    part["links"] += [[3, 1, "10Gbps", "1us"]]
    data = {"topology": ["Switch"], "npus_count": [3], "bandwidth": [1.0], "latency": [1.0], "packet": part}
    config = NetworkConfig.from_mapping(data | {"failures": [{"link": [1, 3], "count": 1}]}, "here")
    # Devices are counted hosts first, so that 1 is node 2 and 3 the switch.
    assert [(link.a, link.b) for link in fabric_of(config).links] == [(0, 1), (0, 1), (2, 1), (3, 1)]


def test_null_stands_for_an_absent_key():
    given = {"link": ["leaf0", "spine0"], "count": None, "until": None}
    assert fabric_of(network(given)).links == fabric_of(network({"link": given["link"]})).links


WRONG = [
    ({"link": ["leaf0", "spine9"]}, r"no device 'spine9' - did you mean 'spine"),
    ({"link": [4]}, r"'link' must be its two devices"),
    ({"link": [4, 4]}, r"'link' must be its two devices"),
    ({"link": [4, "leaf0"]}, r"are the same device"),
    ({"link": [4, -1]}, r"a device is its number"),
    ({"device": [4]}, r"a device is its number"),
    ({}, r"give one of them"),
    ({"link": [4, 6], "device": 4}, r"give one of them"),
    ({"link": [4, 6], "rate": 1}, r"'rate' must be the remaining share"),
    ({"link": [4, 6], "rate": "10%"}, r"'rate' must be the remaining share"),
    ({"link": [4, 6], "count": 0}, r"'count' must be a whole number from 1"),
    ({"link": [4, 6], "at": "soon"}, r"'at': 'soon' is not a duration"),
    ({"link": [4, 6], "at": "5us", "until": "5us"}, r"'until' must be later"),
    ({"link": [4, 6], "rat": 0.5}, r"no key 'rat' - did you mean 'rate'"),
    (7, r"failures\[0\] must be a mapping"),
]


@pytest.mark.parametrize(("failure", "words"), WRONG)
def test_wrong_failures_are_refused(failure, words):
    with pytest.raises(ConfigError, match=words):
        network(failure)


def test_a_link_fails_once():
    with pytest.raises(ConfigError, match="two entries of the same link"):
        network({"link": [4, 6]}, {"link": ["spine0", "leaf0"], "rate": 0.5})
    with pytest.raises(ConfigError, match="'failures' must be a list"):
        NetworkConfig.from_mapping(GRAPH | {"failures": {"link": [4, 6]}}, "here")


@pytest.mark.parametrize("backend", ["analytical-aware", "packet", "ns3"])
@pytest.mark.parametrize(
    ("failure", "words"),
    [
        ({"link": [0, 7]}, r"has no link between 0 and 7\. Switches"),
        ({"link": [4, 6], "count": 3}, r"has 2 links between 4 and 6, and a failure is of 3"),
    ],
)
def test_what_cannot_be_simulated_is_refused(failure, words, backend):
    with pytest.raises(ConfigError, match=words):
        makespan(network(failure), backend)


@pytest.mark.parametrize("backend", ["analytical-aware", "flow"])
def test_network_with_all_links_down_carries_no_message(backend):
    with pytest.raises(ChakrascopeError, match=r"no (?:path|way) from|never arrive"):
        makespan(network({"device": 4}, {"device": 5}), backend)


@pytest.mark.parametrize("backend", ["analytical-unaware", "astra-sim:analytical-unaware", "gpu"])
def test_check_reports_failures_on_backends_without_links(backend):
    work = communication_of(microbenchmark("all-reduce", 4, 8))
    found = check_setup(network({"link": [4, 6]}), SystemConfig.preset("default", 1), work, [backend])
    assert found[0].severity == "error"
    assert "does not model links; use 'analytical-aware', 'auto', 'flow', 'packet' or 'ns3'" in found[0].text
    found = check_setup(network({"link": [4, 6]}), SystemConfig.preset("default", 1), work, ["packet"])
    assert "error" not in {finding.severity for finding in found}


def test_failures_are_an_option(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "graph.yml").write_text(yaml.safe_dump(GRAPH), encoding="utf-8")

    def run(*options):
        return command_line.run(
            *["run", "--workload", "w", "--network", "graph.yml", "--backend", "analytical-aware"], *options
        ), capsys.readouterr()

    microbenchmark("all-reduce", 4, 1 << 20).save(tmp_path / "w")
    code, said = run("--fail", "leaf0,spine0=0.25", "--fail", "7")
    assert not code
    assert "link leaf0 - spine0 is at 25.0 %" in " ".join(said.err.split() + said.out.split())
    code, said = run("--fail", "leaf0,spine0=0.25@10us..1ms", "--fail", "7@0.5us")
    assert not code
    words = " ".join(said.err.split() + said.out.split())
    assert "link leaf0 - spine0 is at 25.0 % of its bandwidth from 10000 ns until 1000000 ns" in words
    assert "every link of spine1 is down from 500 ns" in words
    for wrong in ("a,b,c", "leaf0,", "leaf0,spine0=half", "7@", "7@soon", "7@1us..", "7@1us..x"):
        code, said = run("--fail", wrong)
        assert code == 2
        assert "--fail" in said.err
    code, said = run("--fail", "7@2us..1us")
    assert code == ConfigError.exit_code
    assert "--fail 7@2us..1us: 'until' must be later than 'at'" in " ".join(said.err.split())


def test_runs_are_called_after_what_fails():
    assert network().title == "network"
    assert network({"link": ["leaf0", "spine0"], "rate": 0.25}).title == "network (leaf0-spine0 at 25.0 %)"
    timed = {"device": 7, "at": "5ms", "until": "8ms"}
    assert network(timed).title == "network (spine1 down from 5.00 ms to 8.00 ms)"
    several = network({"link": [4, 6], "count": 1}, {"link": [0, 4], "rate": 0.5}, timed)
    assert several.title == "network (leaf0-spine0 (1 of it) down, r0-leaf0 at 50.0 % and 1 more)"


def test_the_study_tells_runs_with_failures_from_others(tmp_path):
    study = Study.create(tmp_path / "study")
    for config in (network(), network({"device": 7})):
        run_in(study, microbenchmark("all-reduce", 4, 1 << 10), config, backend="analytical-aware")
    labels = sorted(run_table(study.runs())["label"])
    assert labels == ["analytical-aware on network", "analytical-aware on network (spine1 down)"]
