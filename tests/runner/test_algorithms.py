"""Execution of collectives and messages: custom algorithms, late receivers, and stalls."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import yaml
from processes import wait_for
from workloads import coll, comp, makespan, workload

from chakrascope.converter import CollectiveType, EdgeKind, Graph, NodeType, Workload, encode_graph
from chakrascope.errors import ConfigError, SimulationStalled
from chakrascope.runner import (
    JobStore,
    NetworkConfig,
    Study,
    SystemConfig,
    critical_path,
    get_backend,
    prepare,
    run_sweep,
    simulate,
    slack,
)
from chakrascope.runner.config import GIB, EfficiencyPart

SIZE = 1 << 20


def write_algorithm(prefix, repeats=1):
    """Write an exchange of two ranks, which send all their data to each other a number of times."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    for position in range(2):
        nodes, edges = [], []
        for turn in range(repeats):
            peer = 1 - position
            sends = {"comm_src": position, "comm_dst": peer, "comm_tag": turn, "comm_size_bytes": SIZE}
            gets = sends | {"comm_src": peer, "comm_dst": position}
            nodes.append({"node_id": 2 * turn, "name": "send", "type": NodeType.COMM_SEND, **sends})
            nodes.append({"node_id": 2 * turn + 1, "name": "recv", "type": NodeType.COMM_RECV, **gets})
            if turn:
                edges += [(2 * turn - 1, 2 * turn, 0), (2 * turn - 1, 2 * turn + 1, 0)]
        file = prefix.with_name(f"{prefix.name}.{position}.et")
        file.write_bytes(encode_graph(Graph.build(position, nodes, edges)))


def system_in(folder, name="mine", repeats=1):
    write_algorithm(folder / name, repeats)
    (folder / "system.json").write_text(json.dumps({"all-reduce-implementation-custom": [name]}))
    return folder / "system.json"


@pytest.fixture
def study(tmp_path):
    study = Study.create(tmp_path / "study")
    study.add_workload(workload(*[[comp(0, 500), coll(1, SIZE, (0,)), coll(2, SIZE, (1,))]] * 2), "job")
    return study


def experiment(study, system):
    return prepare(study.workload_prefix(), system, "ring-2")


def test_experiment_hash_depends_on_content_of_algorithms(study, tmp_path):
    one = experiment(study, system_in(tmp_path / "a"))
    same = experiment(study, system_in(tmp_path / "b", "other/name"))
    more = experiment(study, system_in(tmp_path / "c", repeats=3))
    assert one.content_hash == same.content_hash != more.content_hash
    assert one.content_hash != experiment(study, "default").content_hash
    assert makespan(one) == makespan(same) < makespan(more)


def test_a_job_simulates_a_system_with_custom_algorithms(study, tmp_path):
    asked = experiment(study, system_in(tmp_path / "mine", repeats=2))
    expected = makespan(asked)
    store = JobStore(study, launch=lambda *_: 0)
    store.submit(asked)
    shutil.rmtree(tmp_path / "mine")
    moved = study.path.rename(tmp_path / "moved")
    store = JobStore(Study.open(moved))
    store.resume()
    wait_for(lambda: not store.jobs()[0].is_active)
    (job,) = store.jobs()
    assert (job.state, job.message) == ("done", "")
    assert store.study.result(job.experiment).makespan_ns == expected


def test_a_run_keeps_its_algorithms_and_can_be_repeated(study, tmp_path):
    asked = experiment(study, system_in(tmp_path / "mine"))
    run = study.add_run(asked, get_backend(asked.backend).run(asked))
    shutil.rmtree(tmp_path / "mine")
    again = study.experiment(run)
    assert again.content_hash == run
    assert makespan(again) == study.result(run).makespan_ns
    texts = [file.read_text() for file in (study.path / "runs" / run).glob("*.json")]
    assert not any(str(tmp_path) in text for text in texts)


def test_algorithms_of_single_nodes_travel_too(study, tmp_path):
    write_algorithm(tmp_path / "slow", repeats=4)
    (tmp_path / "nodes.yml").write_text(yaml.safe_dump({2: str(tmp_path / "slow")}))
    (tmp_path / "system.json").write_text(
        json.dumps({"per-node-custom-implementation": "nodes.yml", "all-reduce-implementation": ["ring"]})
    )
    asked = experiment(study, tmp_path / "system.json")
    run = study.add_run(asked, get_backend(asked.backend).run(asked))
    shutil.rmtree(tmp_path / "slow", ignore_errors=True)
    assert (study.experiment(run).content_hash, makespan(study.experiment(run))) == (run, makespan(asked))
    assert makespan(asked) > makespan(experiment(study, "default"))


def test_a_sweep_over_systems_with_custom_algorithms(study, tmp_path):
    systems = [str(system_in(tmp_path / name, repeats=repeats)) for name, repeats in (("a", 1), ("b", 3))]
    found = run_sweep(study, {"system": systems}, network="ring-2", workers=1, keep=1)
    assert found.points["system"].tolist() == systems
    assert study.experiment(found.kept[0]).content_hash == found.kept[0]


def test_algorithms_are_looked_for_from_the_working_directory_first(study, tmp_path, monkeypatch):
    """As in ASTRA-sim, whose examples name algorithms relative to the working directory."""
    write_algorithm(tmp_path / "here" / "examples" / "mine", repeats=3)
    beside = system_in(tmp_path / "there", "examples/mine")
    monkeypatch.chdir(tmp_path / "here")
    asked = experiment(study, beside)
    run = study.add_run(asked, get_backend(asked.backend).run(asked))
    monkeypatch.chdir(tmp_path)
    other = experiment(study, beside)
    assert makespan(asked) == makespan(study.experiment(run)) > makespan(other)
    assert study.experiment(run).content_hash == run != other.content_hash


def test_algorithms_without_files_are_named(study, tmp_path):
    asked = replace(
        experiment(study, "default"), system=SystemConfig(all_gather_implementation_custom=("mine",))
    )
    with pytest.raises(ConfigError, match="'mine' has no files"):
        JobStore(study).submit(asked)


def test_algorithm_may_end_with_a_completed_receive(study, tmp_path):
    """If bytes are matched by arrival, as in ASTRA-sim's packet networks, it completes at once."""
    for position in range(2):
        to = {"comm_src": position, "comm_dst": 1 - position, "comm_tag": 0, "comm_size_bytes": SIZE}
        back = to | {"comm_src": 1 - position, "comm_dst": position}
        nodes = [
            {"node_id": 0, "name": "send", "type": NodeType.COMM_SEND, **to},
            {"node_id": 1, "name": "reduce", "type": NodeType.COMP, "duration_ns": 10**9},
            {"node_id": 2, "name": "recv", "type": NodeType.COMM_RECV, **back},
        ]
        graph = Graph.build(position, nodes, [(0, 1, 0), (1, 2, 0)])
        (tmp_path / f"late.{position}.et").write_bytes(encode_graph(graph))
    (tmp_path / "system.json").write_text(json.dumps({"all-reduce-implementation-custom": ["late"]}))
    asked = prepare(
        study.workload_prefix(), tmp_path / "system.json", "ring-2", backend="flow", semantics="astra-sim"
    )
    assert 2 * 10**9 < makespan(asked) < 2 * 10**9 + 10**6


# Messages that wait for their receivers' requests, which queue behind the receivers' own messages.

HANDSHAKE_SIZE, NS_PER_BYTE, LATENCY_NS = 1_000_000, 10, 1000
HOP_NS = 2 * LATENCY_NS
REQUEST_NS = HOP_NS + 64 * NS_PER_BYTE
DATA_NS = HOP_NS + HANDSHAKE_SIZE * NS_PER_BYTE


def network(**efficiency):
    plain = {"topology": ["Switch"], "npus_count": [2], "latency": [LATENCY_NS]}
    bandwidth = [1e9 / GIB / NS_PER_BYTE]
    more = {"efficiency": efficiency} if efficiency else {}
    return NetworkConfig.from_mapping(plain | {"bandwidth": bandwidth} | more, "here")


def rank(number, late_ns, kinds):
    """Return a graph that computes for *late_ns* and then posts *kinds* directly after each other."""
    nodes = [{"node_id": 0, "name": "compute", "type": NodeType.COMP, "duration_ns": late_ns}]
    for kind in kinds:
        peer = {"comm_dst": 1 - number} if kind is NodeType.COMM_SEND else {"comm_src": 1 - number}
        place = len(nodes)
        nodes.append({"node_id": place, "name": kind.name, "type": kind, "comm_size_bytes": HANDSHAKE_SIZE,
                      "comm_tag": 0, "stream": 500 + place} | peer)  # fmt: skip
    edges = [(0, place, int(EdgeKind.DATA)) for place in range(1, len(nodes))]
    return Graph.build(number, nodes, edges)


def ends(*graphs, **efficiency):
    made = Workload(tuple(graphs), np.arange(2, dtype=np.int32), {}, {})
    result = simulate(made, "default", network(**efficiency), semantics="trace")
    nodes = result.nodes[result.nodes["node_id"] > 0]
    return {(row.rank, row.node_id): row.end_ns for row in nodes.itertuples()}


BOTH = (NodeType.COMM_SEND, NodeType.COMM_RECV)
IN_ORDER = {"handshake": "in-order"}


def test_a_message_waits_for_its_receiver():
    send, receive = rank(0, 1, BOTH[:1]), rank(1, 50_000, BOTH[1:])
    assert ends(send, receive)[1, 1] == pytest.approx(DATA_NS, abs=2)
    assert ends(send, receive, **IN_ORDER)[1, 1] == pytest.approx(50_000 + REQUEST_NS + DATA_NS, abs=2)


def test_previously_requested_message_leaves_immediately():
    send, receive = rank(0, 50_000, BOTH[:1]), rank(1, 1, BOTH[1:])
    assert ends(send, receive, **IN_ORDER)[1, 1] == pytest.approx(50_000 + DATA_NS, abs=2)


def test_last_rank_sends_first_in_both_directions():
    early, late = rank(0, 1, BOTH), rank(1, 50_000, BOTH)
    free = ends(early, late)
    assert free[0, 2] == pytest.approx(50_000 + DATA_NS, abs=2)
    assert free[1, 2] == pytest.approx(DATA_NS, abs=2)
    found = ends(early, late, **IN_ORDER)
    assert found[0, 2] == pytest.approx(50_000 + DATA_NS, abs=2)
    assert found[1, 2] == pytest.approx(50_000 + 2 * DATA_NS, abs=2)


@pytest.mark.parametrize("late_ns", [0, HOP_NS // 2, HOP_NS])
def test_ranks_within_a_latency_use_both_directions(late_ns):
    """Each rank requests the other's message before it sends its own, which waits for the other's request."""
    found = ends(rank(0, 1, BOTH), rank(1, 1 + late_ns, BOTH), **IN_ORDER)
    assert found[0, 2] == pytest.approx(REQUEST_NS + DATA_NS, abs=2)
    assert found[1, 2] == pytest.approx(late_ns + REQUEST_NS + DATA_NS, abs=2)


def test_rank_later_than_a_latency_takes_turns():
    late_ns = REQUEST_NS + 10
    found = ends(rank(0, 1, BOTH), rank(1, 1 + late_ns, BOTH), **IN_ORDER)
    assert found[0, 2] == pytest.approx(late_ns + DATA_NS, abs=2)
    assert found[1, 2] == pytest.approx(late_ns + 2 * DATA_NS, abs=2)


def test_request_before_send_shares_the_path():
    early, late = rank(0, 1, BOTH), rank(1, 50_000, BOTH[::-1])
    found = ends(early, late, **IN_ORDER)
    assert found[1, 1] == pytest.approx(50_000 + REQUEST_NS + DATA_NS, abs=2)
    assert found[0, 2] == pytest.approx(50_000 + DATA_NS, abs=2)


def test_messages_have_a_cost_of_their_own():
    send, receive = rank(0, 1, BOTH[:1]), rank(1, 1, BOTH[1:])
    curve = [[1, "0us"], [HANDSHAKE_SIZE, "70us"]]
    assert ends(send, receive, messages=curve)[1, 1] == pytest.approx(DATA_NS + 70_000, abs=2)


GATHER, EXCHANGE_ALL = CollectiveType.ALL_GATHER, CollectiveType.ALL_TO_ALL


def collective_ends(
    kind, late_ns, *, ranks=2, backend="analytical-unaware", semantics="astra-sim", **efficiency
):
    """Return the end of *kind* on each rank if the last rank is this late."""
    compute = {"node_id": 0, "name": "compute", "type": NodeType.COMP}
    node = {"node_id": 1, "name": kind.name, "type": NodeType.COMM_COLL, "comm_type": int(kind),
            "comm_size_bytes": HANDSHAKE_SIZE, "stream": 100}  # fmt: skip
    edges = [(0, 1, int(EdgeKind.DATA))]
    graphs = tuple(Graph.build(n, [compute | {"duration_ns": duration}, node], edges)
                   for n, duration in enumerate((1, 1 + late_ns)))  # fmt: skip
    programs = np.zeros(ranks, dtype=np.int32)
    programs[-1] = 1
    plain = {"topology": ["Switch"], "npus_count": [ranks], "latency": [LATENCY_NS],
             "bandwidth": [1e9 / GIB / NS_PER_BYTE], "efficiency": efficiency}  # fmt: skip
    made = Workload(graphs, programs, {}, {})
    found = simulate(
        made, "default", NetworkConfig.from_mapping(plain, "here"), backend=backend, semantics=semantics
    )
    return found.nodes[found.nodes["node_id"] == 1].sort_values("rank")["end_ns"].tolist()


@pytest.mark.parametrize("semantics", ["astra-sim", "trace"])
@pytest.mark.parametrize(
    ("kind", "pieces", "share", "turns"), [(GATHER, 2, 1.0, 1.5), (EXCHANGE_ALL, 1, 0.5, 2)]
)
def test_sends_first_takes_turns_with_a_late_rank(kind, pieces, share, turns, semantics):
    """The second half of the late rank's all-gather overlaps with the first half of the other rank's."""
    efficiency = IN_ORDER | {"sends-first": {kind.name.lower(): pieces}}
    moved_ns, late_ns = share * HANDSHAKE_SIZE * NS_PER_BYTE, 5_000_000
    early, late = collective_ends(kind, late_ns, semantics=semantics, **efficiency)
    assert early == pytest.approx(late_ns + moved_ns, rel=2e-3)
    assert late == pytest.approx(late_ns + turns * moved_ns, rel=2e-3)


@pytest.mark.parametrize(("kind", "pieces", "share"), [(GATHER, 2, 1.0), (EXCHANGE_ALL, 1, 0.5)])
def test_collectives_of_ranks_that_come_together_use_both_directions(kind, pieces, share):
    efficiency = IN_ORDER | {"sends-first": {kind.name.lower(): pieces}}
    for end in collective_ends(kind, 0, **efficiency):
        assert end == pytest.approx(share * HANDSHAKE_SIZE * NS_PER_BYTE, rel=2e-3)


def test_other_collectives_take_no_turns():
    efficiency = IN_ORDER | {"sends-first": {"all_gather": 2}}
    assert collective_ends(EXCHANGE_ALL, 50_000, **efficiency) == collective_ends(EXCHANGE_ALL, 50_000)


def test_rings_of_more_than_two_ranks_have_no_turns_to_take():
    """A rank sends requests to its predecessor, and data to its successor, on separate connections."""
    efficiency = IN_ORDER | {"sends-first": {"all_gather": 2}}
    late = collective_ends(GATHER, 5_000_000, ranks=4, **efficiency)
    assert max(late) == pytest.approx(5_000_000 + 3 * HANDSHAKE_SIZE * NS_PER_BYTE, rel=2e-3)


@pytest.mark.parametrize("backend", ["analytical-aware", "packet", "flow"])
def test_turns_are_taken_on_networks_with_queues_too(backend):
    efficiency = IN_ORDER | {"sends-first": {"all_to_all": 1}}
    early, late = collective_ends(EXCHANGE_ALL, 5_000_000, backend=backend, **efficiency)
    assert late - 5_000_000 == pytest.approx(2 * (early - 5_000_000), rel=0.02)
    assert max(collective_ends(EXCHANGE_ALL, 0, backend=backend, **efficiency)) < 0.75 * (late - 5_000_000)


@pytest.mark.parametrize(("part", "told"), [
    ({"sends-first": {"all_gather": 2}}, "needs handshake: in-order"),
    (IN_ORDER | {"sends-first": {"all_gather": 0}}, "must be a whole number from 1 to 64, not 0"),
    (IN_ORDER | {"sends-first": {"all_gather": True}}, "not True"),
    (IN_ORDER | {"sends-first": {"allgather": 2}}, "did you mean"),
    (IN_ORDER | {"sends-first": ["all_gather"]}, "'sends-first' must be a mapping"),
])  # fmt: skip
def test_errors_of_sends_first_are_named(part, told):
    with pytest.raises(ConfigError, match=told):
        network(**part)


def test_sends_first_is_written_as_it_was_read():
    part = IN_ORDER | {"sends-first": {"all_gather": 2}}
    read = EfficiencyPart.from_mapping(part)
    assert read.sends_first == {"all_gather": 2}
    assert replace(read, written={}).to_dict() == part


# Jobs that would deadlock in the order of the queues, and the errors about a stall.

PAIR = NetworkConfig(("Switch",), (2,), (10.0,), (500.0,))
GROUPS = {1: (0, 1), 2: (0, 1)}


def crossed(*, lane=0):
    """Two collectives of two groups in flight on both ranks, started in opposite orders."""
    one = coll(0, 1 << 20, group=1, stream=lane or 11)
    other = coll(1, 1 << 20, group=2, stream=lane or 12)
    delay = comp(2, 5000, stream=2)
    return workload(
        [one, delay, other | {"after": (2,)}], [other, delay, one | {"after": (2,)}], groups=GROUPS
    )


def opposed():
    """The same, but each rank waits for its first collective before it starts the other one."""
    one, other = coll(0, 1 << 20, group=1), coll(1, 1 << 20, group=2)
    return workload([one, other | {"after": (0,)}], [other, one | {"after": (1,)}], groups=GROUPS)


@pytest.mark.parametrize("backend", ["analytical-unaware", "analytical-aware"])
@pytest.mark.parametrize(("lane", "words"), [(0, "order of the queues, the"), (3, "queues and the lanes")])
def test_the_result_says_that_operations_passed_others(backend, lane, words):
    job = crossed(lane=lane)
    result = simulate(job, "default", PAIR, backend=backend, semantics="trace")
    assert any(words in warning for warning in result.provenance["warnings"])
    assert result.provenance["overtaken"] >= 1
    assert critical_path(result, job).segments["duration_ns"].sum() == result.makespan_ns
    assert len(slack(result, job)) == 6


def test_result_in_queue_order_has_no_note():
    result = simulate(workload([coll(0, 64)], [coll(0, 64)]), "default", PAIR, semantics="trace")
    assert result.provenance["overtaking"] == 0
    assert result.provenance["warnings"] == []


def test_only_advice_that_helps_is_given():
    """One communication at a time, as in ASTRA-sim: more active chunks do not help, but lanes do."""
    with pytest.raises(SimulationStalled) as caught:
        simulate(crossed(), "default", PAIR)
    message = str(caught.value)
    assert 'The program can complete with semantics="trace".' in message
    assert "active-chunks" not in message
    assert simulate(crossed(), "default", PAIR, semantics="trace").makespan_ns > 0


def test_deadlock_of_the_program_names_its_cycle():
    for semantics in ("trace", "astra-sim"):
        with pytest.raises(SimulationStalled, match="No order of events completes this program") as caught:
            simulate(opposed(), "default", PAIR, semantics=semantics)
        assert "rank 0's all_reduce 'coll0' (node 0), which waits for rank 1's" in str(caught.value)
        assert {(item["rank"], item["node_id"]) for item in caught.value.deadlock} == {
            (0, 0),
            (0, 1),
            (1, 0),
            (1, 1),
        }
