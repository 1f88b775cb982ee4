"""An ASTRA-sim Service as a backend: its requests, its answers, and the queue of clients."""

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import pytest
from fake_service import NETWORK, experiment, four_ranks, run
from processes import wait_for
from workloads import coll, comp, recv, send, workload

from chakrascope.converter import CollectiveType
from chakrascope.errors import Cancelled, ConfigError
from chakrascope.runner import (
    JobStore,
    MemoryConfig,
    NetworkConfig,
    Study,
    SystemConfig,
    get_backend,
    prepare,
    simulate,
)
from chakrascope.runner.backends import write_network
from chakrascope.runner.backends.service import _backend, _client
from chakrascope.runner.backends.service._request import configuration, message
from chakrascope.runner.config import PacketPart

pytestmark = pytest.mark.usefixtures("no_settings")
RUNNING = 1
IN_PAIRS = workload(
    *[[comp(0, 2000 * (rank + 1)), coll(1, 1 << 16, (0,), group=1 + rank // 2)] for rank in range(4)]
)
FABRIC = PacketPart.from_mapping({"fabric": {"hosts_per_leaf": 2}})
LINKED = NetworkConfig(("Switch",), (4,), (50.0,), (500.0,), packet=FABRIC)
HPCC = NetworkConfig(("Switch",), (4,), (46.57,), (500.0,), packet=PacketPart.from_mapping({"CC_MODE": 3}))
TIMES = ["rank", "node_id", "start_ns", "end_ns"]
# The requests of version 1.2.1 of the service's SDK for one configuration, start, stop and a file.
SENT = {
    "SetConfigRequest": (
        "0ad0020aa3020a0f666f6c6465722f776f726b6c6f61641290010a044c49464f120472696e671210646f75626c6542696e617279"
        "547265651a0472696e671a0664697265637422076f6e6552696e672a066469726563742a066469726563744a08626173656c696e"
        "6550015802650000c03f6d0000004075000040407d0000803e80010088010190010499010000000000887340a101000000000000"
        "9940a80101b00101b80100c001001a070a01311202000322230a195045525f4e4f44455f4d454d4f52595f455850414e53494f4e"
        "100a1864200228022a370a190a07636f6e736f6c65120e7374646f75745f73696e6b5f6d74121a0a08776f726b6c6f6164120763"
        "6f6e736f6c651a0564656275673216080311000000000000f03f19000000000000e03f20011228080112240a220801120e080110"
        "021d00004842250000fa43120e080210021dae473a42250000a041"
    ),
    "start": "0a06080112020802",
    "stop": "0a020802",
    "GetResultRequest": "0a120802120e73696d756c6174696f6e2e6c6f67",
}


# Requests to the service.


def test_requests_are_the_bytes_the_services_own_sdk_sends():
    system = SystemConfig(
        scheduling_policy="LIFO",
        all_reduce_implementation=("ring", "doubleBinaryTree"),
        reduce_scatter_implementation=("ring", "direct"),
        all_gather_implementation=("oneRing",),
        all_to_all_implementation=("direct", "direct"),
        collective_optimization="baseline",
        local_reduction_delay=1,
        active_chunks_per_dimension=2,
        L=1.5,
        o=2.0,
        g=3.0,
        G=0.25,
        endpoint_delay=0,
        model_shared_bus=1,
        preferred_dataset_splits=4,
        peak_perf=312.5,
        local_mem_bw=1600.0,
        roofline_enabled=True,
    )
    ready = experiment(
        network=NetworkConfig(("Ring", "FullyConnected"), (2, 2), (50.0, 46.57), (500.0, 20.0)),
        system=system,
        memory=MemoryConfig("PER_NODE_MEMORY_EXPANSION", 10, 100, 2, 2),
        groups={1: (0, 3)},
        num_queues_per_dim=3,
        injection_scale=0.5,
        rendezvous=True,
    )
    request, warnings = configuration(ready, "analytical-aware", "folder", trace=True)
    assert warnings == []
    assert request == read("SetConfigRequest", SENT["SetConfigRequest"])
    start = {"control": {"choice": 1, "start": {"backend": 2}}}
    assert message("SetControlActionRequest", start) == read("SetControlActionRequest", SENT["start"])
    assert (
        message("SetControlActionRequest", {"control": {"choice": 2}}).SerializeToString().hex()
        == SENT["stop"]
    )
    asked = message("GetResultRequest", {"result": {"choice": 2, "filename": "simulation.log"}})
    assert asked.SerializeToString().hex() == SENT["GetResultRequest"]


def read(name, hexadecimal):
    made = message(name)
    made.ParseFromString(bytes.fromhex(hexadecimal))
    return made


def test_absent_keys_have_astra_sims_defaults_not_the_services():
    bare = SystemConfig(
        **dict.fromkeys(("all_reduce_implementation", "all_gather_implementation"), ("ring", "ring"))
    )
    request, warnings = configuration(
        experiment(system=bare, injection_scale=0.5), "analytical-aware", "folder", trace=False
    )
    common = request.config.common_config
    assert common.system.endpoint_delay == 10
    assert common.cmd_parameters.injection_scale == 1.0
    assert common.system.HasField("local_mem_bw")
    assert common.system.local_reduction_delay == 1
    assert not common.HasField("logging")
    assert [text.split("'")[1] for text in warnings] == [
        "reduce-scatter-implementation",
        "all-to-all-implementation",
    ]


def test_a_bandwidth_that_the_service_rounds_is_named():
    network = NetworkConfig(("Ring",), (4,), (100 / 3,), (500.0,))
    _, warnings = configuration(experiment(network=network), "analytical-aware", "folder", trace=False)
    assert warnings == [
        "The service stores 32 bits of the network's bandwidth: 33.333332 for 33.333333333333336."
    ]


def test_packet_networks_are_sent_as_in_astra_sims_files(tmp_path):
    part = {
        "CC_MODE": 10,
        "PAUSE_TIME": 9,
        "RP_TIMER": 900.5,
        "EWMA_GAIN": 0.1,
        "fabric": {"hosts_per_leaf": 2},
    }
    network = NetworkConfig(("Switch",), (4,), (46.57,), (500.0,), packet=PacketPart.from_mapping(part))
    request, warnings = configuration(experiment("ns3", network=network), "ns3", "folder", trace=True)
    write_network(network, "ns3", tmp_path)
    sent = request.config.network_backend.ns3
    told = {field.name.upper(): value for field, value in sent.network.ListFields()}
    written = dict(line.split(" ", 1) for line in (tmp_path / "config.txt").read_text().splitlines())
    assert set(written) - set(told) == {"PAUSE_TIME"}
    for key, value in told.items():
        if isinstance(value, (int, float)):
            assert value == pytest.approx(float(written[key]), rel=1e-3)
        else:
            assert (value if isinstance(value, str) else " ".join(map(str, value))) == written[key]
    topology = sent.topology.nc_topology
    rows = [[value for _, value in link.ListFields()] for link in topology.connections]
    heads = [[topology.total_nodes, topology.total_switches, topology.total_links], list(topology.switch_ids)]
    # A number that is 0 is also sent, because the service decides the meaning of a missing field.
    assert [" ".join(map(str, row)) for row in heads + rows] == (
        tmp_path / "topology.txt"
    ).read_text().splitlines()
    assert list(sent.logical_topology.logical_dimensions) == [4]
    assert [text.split(":")[0] for text in warnings] == [
        "The service stores whole numbers of RP_TIMER",
        "'PAUSE_TIME' has no effect",
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"system": SystemConfig(all_reduce_implementation=("halvingDoubling",) * 2)}, "'halvingDoubling'"),
        ({"system": SystemConfig(all_gather_implementation=("doubleBinaryTree",) * 2)}, "'doubleBinaryTree'"),
        (
            {"system": SystemConfig(all_reduce_implementation_custom=("mine",))},
            "ignores all other algorithms",
        ),
        ({"system": SystemConfig(per_node_custom_implementation="a.yml")}, "per-node-custom"),
        ({"memory": MemoryConfig("MEMORY_POOL", remote_mem_latency=1 << 31)}, "stores 32 bits"),
        ({"network": LINKED, "kind": "analytical-aware"}, "graph of links"),
        ({"network": HPCC, "kind": "ns3"}, "its warnings hang a service"),
    ],
)
def test_unsupported_settings_fail_before_upload(service, options, words):
    with pytest.raises(ConfigError, match=words):
        run(service, **options)
    assert service.calls == []


def test_links_are_left_out_where_they_have_no_effect_anyway(service):
    assert run(service, network=LINKED).makespan_ns == run_native(network=LINKED).makespan_ns


def test_more_ranks_than_the_service_has_lines_for_are_refused(service, monkeypatch):
    monkeypatch.setattr(_backend, "_MAX_LINES", 20)
    with pytest.raises(ConfigError, match="4 ranks are too many"):
        run(service)
    assert service.calls == []


def test_times_of_nodes_are_asked_for_only_if_they_fit(service, monkeypatch):
    monkeypatch.setattr(_backend, "_MAX_LINES", 60)
    result = run(service)
    assert result.nodes.empty
    assert any("Node times were not requested" in text for text in result.provenance["warnings"])
    assert result.ranks["finish_ns"].tolist() == run_native().ranks["finish_ns"].tolist()


def run_native(kind="analytical-unaware", **options):
    ready = experiment(kind, **options)
    return get_backend(kind).run(ready)


# Answers of the service.


@pytest.mark.parametrize("kind", ["analytical-unaware", "analytical-aware"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"groups": {1: (0, 1), 2: (2, 3)}, "model": IN_PAIRS},
        {"rendezvous": True, "num_queues_per_dim": 2},
        {"system": SystemConfig.load, "injection_scale": 3.0},
    ],
)
def test_a_service_gives_what_our_engine_gives(service, kind, options, tmp_path):
    if "system" in options:
        path = tmp_path / "system.json"
        keys = {f"{name}-implementation": ["direct", "ring"] for name in ("all-reduce", "all-gather")}
        path.write_text(json.dumps(keys | {"endpoint-delay": 7, "preferred-dataset-splits": 2}))
        options = options | {"system": options["system"](path)}
    ours, theirs = run_native(kind, **options), run(service, kind=kind, **options)
    columns = list(ours.ranks.columns)
    assert theirs.ranks[columns].to_numpy().tolist() == ours.ranks.to_numpy().tolist()
    assert theirs.nodes[TIMES].to_numpy().tolist() == ours.nodes[TIMES].to_numpy().tolist()
    assert theirs.provenance["versions"] == {"astra-sim-service": "1.2.1"}


def test_the_service_gives_the_messages_of_its_ns3(service):
    service.files["fct.txt"] = b"0b000001 0b000101 10000 100 32768 1010 2750 2724\n"
    service.files["pfc.txt"] = b""
    result = run(service, kind="ns3", network=NetworkConfig(("Switch",), (4,), (50.0,), (500.0,)))
    assert result.flows.to_numpy().tolist() == [[0, 1, 32768, 1010, 3760]]
    assert result.provenance["packets"]["flow_completion_ns"]["count"] == 1
    assert len(result.nodes) == 16


def test_policies_of_ours_are_named_as_lost(service):
    system = SystemConfig.preset("default", 2)
    ours = replace(system, inter_dimension_policy="greedy", intra_dimension_policy="FIFO")
    warnings = run(service, system=ours).provenance["warnings"]
    assert "'inter-dimension-policy' has no effect: ASTRA-sim knows only 'ascending'." in warnings
    assert not any("intra" in text for text in warnings)


def test_a_large_workload_travels_in_pieces(service):
    seen = []
    upload = service.upload
    service.instead["streamUploadConfig"] = lambda chunks, context: upload(
        (seen.append(len(chunk)) or chunk for chunk in chunks), context
    )
    rank = [comp(0, 1000, name=os.urandom(3 << 20).hex())]
    run(service, model=workload(*[rank] * 4))
    assert len(seen) > 10
    assert max(seen) < 4 << 20


def test_progress_is_told_while_the_service_simulates(service, monkeypatch):
    monkeypatch.setattr(_backend, "_LOOK_S", 0.2)
    service.runs_s = 200.0

    def end_when_looked_at(*request):
        service.ends_at = 0.0
        return service.result(*request)

    service.instead["GetResult"] = end_when_looked_at
    seen = []
    result = run(service, lambda now, done: seen.append((now, done)) is None)
    assert seen[0] == (0, 0)
    assert seen[-1][0] > 0
    assert seen[-1][1] == 4
    assert all(before <= after for before, after in pairwise(seen))
    assert result.makespan_ns >= seen[-1][0]


@pytest.fixture
def study(tmp_path):
    made = Study.create(tmp_path / "study")
    made.add_workload(four_ranks(), "job")
    return made


def at(service, study):
    backend = f"service://127.0.0.1:{service.port}"
    return prepare(study.workload_prefix("job"), "default", NETWORK, backend=backend)


def wait_until_running(service):
    wait_for(lambda: service.now() == RUNNING)


# Taking turns.


def test_clients_of_one_machine_take_turns(service):
    service.runs_s = 0.2
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda _: run(service, model=four_ranks()), range(3)))
    assert len({result.makespan_ns for result in results}) == 1
    order = [
        name for name in service.calls if name in ("streamUploadConfig", "SetControlAction", "GetResult")
    ]
    assert order == ["streamUploadConfig", "SetControlAction", "GetResult"] * 3


def test_waiting_for_a_turn_can_be_cancelled(service, monkeypatch):
    service.runs_s = 200.0
    waiting = threading.Event()
    try_lock = _client._try_lock
    monkeypatch.setattr(_client, "_try_lock", lambda file: try_lock(file) or waiting.set())
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(run, service)
        wait_until_running(service)
        with pytest.raises(Cancelled):
            run(service, lambda *_: not waiting.is_set())
        assert not first.done()
        service.ends_at = 0.0
        assert first.result().makespan_ns > 0


def test_what_a_killed_process_left_running_is_stopped_by_the_next(service, study):
    service.runs_s = 100.0
    store = JobStore(study)
    job = store.submit(at(service, study), workload="job")
    wait_until_running(service)
    os.kill(store.job(job.id).pid, signal.SIGKILL)
    assert service.now() == RUNNING
    service.runs_s = 0.0
    store.wait(job.id, 200)
    assert store.job(job.id).state == "done"
    assert "GetConfig" in service.calls


def test_a_foreign_simulation_is_never_stopped(service, tmp_path):
    note = tmp_path / "cache" / "chakrascope" / "service" / f"127.0.0.1-{service.port}"
    note.parent.mkdir(parents=True)
    note.write_text("chakrascope-0123")
    service.status, service.ends_at = RUNNING, time.monotonic() + 0.5
    assert run(service).makespan_ns > 0
    assert service.calls.count("SetControlAction") == 1
    assert note.read_text() == ""


# Other commands and pages use it by its name.


@pytest.mark.skipif(
    not os.environ.get("ASTRA_SIM_SERVICE_TEST"),
    reason="ASTRA_SIM_SERVICE_TEST names no service to test against",
)
@pytest.mark.parametrize("kind", ["analytical-unaware", "analytical-aware"])
def test_the_real_service_gives_what_our_engine_gives(kind):
    model = workload(
        *[
            [
                comp(0, 2_000_000 * (rank + 1)),
                coll(1, 1 << 20, after=(0,), comm_type=CollectiveType.ALL_GATHER),
                *([(send, recv)[rank](2, 0, 1, 1 << 20, (1,))] if rank < 2 else []),
            ]
            for rank in range(4)
        ]
    )
    network = NetworkConfig(("Ring",), (4,), (50.0,), (500.0,))
    place = os.environ["ASTRA_SIM_SERVICE_TEST"]
    theirs = simulate(model, "default", network, backend=f"service://{place}/{kind}")
    ours = simulate(model, "default", network, backend=kind)
    assert theirs.ranks["finish_ns"].tolist() == ours.ranks["finish_ns"].tolist()
    assert theirs.nodes[TIMES].to_numpy().tolist() == ours.nodes[TIMES].to_numpy().tolist()
