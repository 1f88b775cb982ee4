"""The backend: a measured result in the format of simulated ones, on loopback, namespaces and hosts."""

import subprocess

import pytest
from jobs import CAPTURED, agent, engine_job, free_port, simulated_messages, steps, unmatched
from workloads import comp, recv, send, workload

from chakrascope.converter import Graph, NodeType, encode_graph, microbenchmark
from chakrascope.errors import BackendTimeout, ConfigError, SimulationStalled
from chakrascope.runner import (
    NetworkConfig,
    Study,
    backend_names,
    critical_path,
    get_backend,
    prepare,
)
from chakrascope.runner.emulation import Setup, Stalled, emulate

MS = 1_000_000


def measured(job, place="loopback", **more):
    backend = f"emulation:{place}"
    return get_backend(backend).run(prepare(job, "default", None, backend=backend, **more))


@pytest.fixture(scope="module")
def result():
    return measured(steps(ranks=3), "loopback,repeat=3")


def test_its_messages_are_those_of_a_simulation(result):
    flows = result.flows
    found = sorted(zip(flows["src"], flows["dst"], flows["bytes"], strict=True))
    assert [tuple(map(int, each)) for each in found] == simulated_messages(steps(ranks=3))


def test_every_message_has_times_and_path(result):
    flows = result.flows
    for before, after in (("start_ns", "begun_ns"), ("begun_ns", "sent_ns"), ("begun_ns", "arriving_ns")):
        assert (flows[before] <= flows[after]).all()
    assert (flows["arriving_ns"] <= flows["end_ns"]).all()
    assert flows["end_ns"].is_monotonic_increasing
    interfaces = result.provenance["emulation"]["interfaces"]
    assert [interfaces[nic]["rank"] for nic in flows["src_nic"]] == flows["src"].tolist()
    assert [interfaces[nic]["rank"] for nic in flows["dst_nic"]] == flows["dst"].tolist()
    assert {interface["address"] for interface in interfaces} == {"127.0.0.1"}


def test_links_add_up_the_messages(result):
    of_pair = result.flows.groupby(["src", "dst"])["bytes"].agg(["sum", "count"]).reset_index()
    assert (
        result.links[["src", "dst", "bytes", "messages"]].to_numpy().tolist() == of_pair.to_numpy().tolist()
    )
    assert (result.links["busy_ns"] > 0).all()
    assert (result.links["busy_ns"] <= result.makespan_ns).all()


def test_compute_is_waited_out(result):
    compute = result.nodes[result.nodes["node_id"] % 2 == 0]
    assert ((compute["end_ns"] - compute["start_ns"]) >= MS).all()
    assert result.provenance["emulation"]["compute_late_ns"]["count"] == 9
    assert result.makespan_ns == result.ranks["finish_ns"].max() == result.nodes["end_ns"].max()


def test_the_median_of_the_repetitions_is_the_result(result):
    facts = result.provenance["emulation"]["repetitions"]
    makespans = facts["makespans_ns"]
    assert len(makespans) == 3
    assert makespans[facts["chosen"]] == facts["median_ns"] == sorted(makespans)[1]
    assert facts["spread"] == (max(makespans) - min(makespans)) / sorted(makespans)[1]
    assert result.makespan_ns == makespans[facts["chosen"]]


def test_one_clock_is_stated_as_one(result):
    (host,) = result.provenance["emulation"]["hosts"]
    assert host["ranks"] == [0, 1, 2]
    assert host["clock_shared"] is True
    assert host["clock_offset_ns"] == host["clock_error_ns"] == 0


def test_the_critical_path_adds_up(result, tmp_path):
    study = Study.create(tmp_path / "study")
    experiment = prepare(study.add_workload(steps(ranks=3), "job"), "default", None, backend=result.backend)
    run = study.add_run(experiment, result)
    kept = study.result(run)
    path = critical_path(kept, experiment.workload.model)
    assert int((path.segments["end_ns"] - path.segments["start_ns"]).sum()) == kept.makespan_ns
    assert kept.flows.columns.tolist() == result.flows.columns.tolist()
    assert len(kept.collectives) == 9


def test_two_measurements_are_two_runs(result, tmp_path):
    study = Study.create(tmp_path / "study")
    prefix = study.add_workload(steps(ranks=3), "job")
    runs = {study.add_run(prepare(prefix, "default", None, backend=result.backend), result) for _ in range(2)}
    assert len(runs) == len(study.runs()) == 2
    for run in runs:  # an experiment that was saved and loaded is equal
        assert study.experiment(run).content_hash == run


def test_a_shaped_link_takes_its_time(root):
    result = measured(steps(size_bytes=4_000_000, count=1), "namespaces,link=200Mbit,slow.1=100Mbit")
    hosts = result.provenance["emulation"]["hosts"]
    assert [host["host"] for host in hosts] == ["host0", "host1"]
    # Half of it goes in each direction twice: 4 MB at 100 Mb/s.
    assert result.makespan_ns > 0.9 * 4_000_000 * 8 / 100e6 * 1e9


def test_ranks_share_hosts_and_have_several_interfaces(root):
    job = steps(ranks=4, size_bytes=400_000, count=2)
    result = measured(job, "namespaces=2,nics=2")
    hosts = result.provenance["emulation"]["hosts"]
    assert [host["ranks"] for host in hosts] == [[0, 1], [2, 3]]
    interfaces = result.provenance["emulation"]["interfaces"]
    assert [each["address"] for each in interfaces[:2]] == ["10.77.0.1", "10.77.1.1"]
    assert set(result.flows["src_nic"]) == set(range(8))


def test_without_a_network_one_stands_for_it():
    known = prepare(steps(), "default", None, backend="emulation:namespaces,link=800Mbit").network
    assert (known.topology, known.npus_count) == (("Switch",), (2,))
    assert known.bandwidth[0] * (1 << 30) == pytest.approx(1e8)
    unknown = prepare(steps(), "default", None, backend="emulation:loopback").network
    assert "unknown" in unknown.assumptions[0]


def test_deadlocked_job_is_not_started(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("something was started"))
    with pytest.raises(SimulationStalled, match="rank 0 is in recv"):
        measured(unmatched())


def test_deadlocked_emulation_is_an_error():
    with pytest.raises(Stalled) as caught:
        emulate(engine_job(unmatched()), Setup(), limit_s=300)
    ((rank, operation),) = caught.value.operations
    assert (rank, operation["operation"], operation["node_id"]) == (0, "recv", 0)


def test_job_over_its_time_limit_is_ended():
    with pytest.raises(BackendTimeout, match=r"did not finish within 0.5 s"):
        measured(steps(compute_ns=60_000 * MS), "loopback,limit=0.5s")


def test_a_job_is_cancelled():
    job = steps(compute_ns=60_000 * MS)
    with pytest.raises(Exception, match="cancelled"):
        get_backend("emulation:loopback").run(
            prepare(job, "default", None, backend="emulation:loopback"), lambda *_: False
        )


def test_it_is_a_backend_of_its_own_family():
    assert not any(name.startswith("emulation:") for name in backend_names())
    with pytest.raises(ConfigError, match="no hosts file 'nowhere'"):
        prepare(steps(), "default", None, backend="emulation:nowhere")


def test_agents_of_hosts_join_from_where_they_are(tmp_path):
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    hosts = tmp_path / "hosts.yml"
    port = free_port()
    hosts.write_text(
        f"listen: 127.0.0.1:{port}\ntoken_file: token\njoin: 300s\nhosts:\n"
        "  - {name: one, address: 127.0.0.1, ranks: [0], location: leaf 1}\n"
        "  - {name: two, nics: [127.0.0.2, 127.0.0.3], ranks: [1, 2], location: leaf 2}\n"
    )
    agents = [agent(f"127.0.0.1:{port}", name, token) for name in ("one", "two")]
    result = measured(steps(ranks=3), str(hosts))
    facts = result.provenance["emulation"]
    assert [(host["host"], host["ranks"], host["location"]) for host in facts["hosts"]] == [
        ("one", [0], "leaf 1"),
        ("two", [1, 2], "leaf 2"),
    ]
    assert [each["address"] for each in facts["interfaces"][1:3]] == ["127.0.0.2", "127.0.0.3"]
    for each, name in zip(agents, ("one", "two"), strict=True):
        assert each.communicate(timeout=300)[0] == f"{name} served the emulation at 127.0.0.1:{port}.\n"
        assert each.returncode == 0


def test_custom_algorithms_travel_to_the_ranks(tmp_path):
    for rank in range(2):
        there = {"comm_src": rank, "comm_dst": 1 - rank, "comm_tag": 0, "comm_size_bytes": 4321}
        back = there | {"comm_src": 1 - rank, "comm_dst": rank}
        nodes = [
            {"node_id": 0, "name": "send", "type": NodeType.COMM_SEND, **there},
            {"node_id": 1, "name": "recv", "type": NodeType.COMM_RECV, **back},
        ]
        (tmp_path / f"mine.{rank}.et").write_bytes(encode_graph(Graph.build(rank, nodes, [])))
    (tmp_path / "system.json").write_text('{"all-reduce-implementation-custom": ["mine"]}')
    backend = "emulation:loopback"
    asked = prepare(steps(count=2), tmp_path / "system.json", None, backend=backend)
    flows = get_backend(backend).run(asked).flows
    found = sorted(flows[["src", "dst", "bytes"]].itertuples(index=False, name=None))
    assert found == [(0, 1, 4321)] * 2 + [(1, 0, 4321)] * 2


def test_substitutes_travel_to_the_ranks():
    job = microbenchmark("reduce-scatter", 2, 100_000)
    network = {"topology": ["Switch"], "npus_count": [2], "bandwidth": [1.0], "latency": [1.0]}
    network["efficiency"] = {"substitutes": {"reduce_scatter": "all_reduce"}}
    experiment = prepare(
        job, "default", NetworkConfig.from_mapping(network, "here"), backend="emulation:loopback"
    )
    result = get_backend("emulation:loopback").run(experiment)
    assert (
        result.flows["bytes"].sum() == 2 * 100_000
    )  # half of it in the scatter, half in the gather, on each


def _exchange(late_ns):
    """Return a job of two ranks that send a message of 500 kB each, then receive; one is *late_ns* late."""
    ranks = [
        [
            comp(0, 1 + rank * late_ns),
            send(1, rank, 1 - rank, 500_000, (0,)),
            recv(2, 1 - rank, rank, 500_000, (0,), stream=1),
        ]
        for rank in range(2)
    ]
    return workload(*ranks, metadata=CAPTURED)


def _exchanged(handshake, late_ns):
    """Return the makespan of the exchange at 10 Mbit/s, 400 ms a message."""
    backend = "emulation:namespaces=2,link=10Mbit"
    network = {"topology": ["Switch"], "npus_count": [2], "bandwidth": [0.00116], "latency": [30000.0]}
    network["efficiency"] = {"handshake": handshake}
    given = NetworkConfig.from_mapping(network, "here")
    result = get_backend(backend).run(prepare(_exchange(late_ns), "default", given, backend=backend))
    assert result.flows[["src", "bytes"]].sort_values("src").to_numpy().tolist() == [
        [0, 500_000],
        [1, 500_000],
    ]
    return result.makespan_ns


def test_a_message_waits_for_its_receivers_request(root):
    late_ns = 100_000_000
    free, in_turn = _exchanged("none", late_ns), _exchanged("in-order", late_ns)
    # Without requests, both directions are used at once; a request behind a message makes them alternate.
    assert in_turn > free + 200_000_000


def test_ranks_that_come_together_use_both_directions(root):
    assert _exchanged("in-order", 0) < 650_000_000
