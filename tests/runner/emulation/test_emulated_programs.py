"""A collective program on emulated ranks: the messages of its simulation, each after what it waits for."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from jobs import CAPTURED, posted_messages
from workloads import coll, workload

from chakrascope.converter import CollectiveType, microbenchmark
from chakrascope.runner import get_backend, prepare
from chakrascope.runner.programs import builtin_program, write_msccl

SAMPLES = Path(__file__).parents[2] / "data/runner/programs"
TAGS = 1 << 24  # what the engine gives each run of a program
SIZE = 65_536


def emulated(job, algorithms, transport="tcp", **more):
    """Return the experiment of *job* with these *algorithms*, and its messages in the order of posting."""
    backend = f"emulation:loopback,transport={transport}"
    experiment = prepare(job, "default", None, backend=backend, algorithms=algorithms, **more)
    flows = get_backend(backend).run(experiment).flows
    return experiment, flows.sort_values("start_ns", ignore_index=True)


def by_source(messages):
    """Return (destination, bytes) of *messages*, in their order, by the rank that sends them."""
    found = {}
    for source, *rest in messages:
        found.setdefault(int(source), []).append(tuple(map(int, rest)))
    return found


def messages_of(flows):
    return flows[["src", "dst", "bytes"]].itertuples(index=False, name=None)


def keeps_its_dependencies(lowered, flows):
    """Assert that the *flows* are the sends of *lowered*, and that each left when it might."""
    flow_of = {(row.src, row.tag % TAGS): row for row in flows.itertuples()}
    sends = [
        (rank, node.peer, node.size_bytes, node.tag)
        for rank, nodes in enumerate(lowered.ranks)
        for node in nodes
        if node.kind == "send"
    ]
    found = [(row.src, row.dst, row.bytes, row.tag % TAGS) for row in flows.itertuples()]
    assert sorted(found) == sorted(sends)
    for rank, nodes in enumerate(lowered.ranks):
        over = []  # when each of the rank's nodes was over at the earliest
        for node in nodes:
            begun = max((over[before] for before in node.after), default=0)
            if node.kind == "send":
                flow = flow_of[rank, node.tag]
                assert flow.start_ns >= begun
                begun = flow.start_ns
            elif node.kind == "receive":
                begun = max(begun, flow_of[node.peer, node.tag].end_ns)
            over.append(begun)


@pytest.fixture
def ring(tmp_path):
    """A program in which every rank has one order of messages: each waits for the one before it."""
    (tmp_path / "ring.xml").write_text(write_msccl(builtin_program("ring", "all-reduce", 3)))
    return str(tmp_path / "ring.xml")


def test_every_transport_carries_the_messages_of_the_simulation_in_their_order(transport, ring):
    job = microbenchmark("all-reduce", 3, 3 * SIZE)
    experiment, flows = emulated(job, {"all-reduce": [ring]}, transport)
    expected = posted_messages(experiment)
    assert len(expected) == 12
    assert by_source(messages_of(flows)) == by_source(expected)
    (lowered,) = experiment.program_messages.values()
    keeps_its_dependencies(lowered, flows)


@pytest.mark.parametrize(
    ("name", "kind", "ranks"),
    [
        ("allreduce_packet.json", "all-reduce", 2),
        ("allreduce_pipeline.json", "all-reduce", 4),
        ("hierarchical_allreduce.xml", "all-reduce", 8),
        ("multi_node_allgather.json", "all-gather", 8),
    ],
)
def test_plans_and_xml_run_as_they_are(name, kind, ranks, tmp_path):
    """MSCCL++ plans and MSCCL XML of other people, some with several thread blocks at a time."""
    path = tmp_path / name
    path.write_bytes(gzip.decompress((SAMPLES / f"{name}.gz").read_bytes()))
    experiment, flows = emulated(microbenchmark(kind, ranks, SIZE), {kind: [str(path)]})
    assert sorted(messages_of(flows)) == sorted(posted_messages(experiment))
    (lowered,) = experiment.program_messages.values()
    keeps_its_dependencies(lowered, flows)


def test_each_size_and_group_has_its_own_program(ring):
    """Ranks of a group and of all, a size that the file does not fit, an algorithm that is not a program."""
    whole = [coll(0, 3 * SIZE), coll(1, 3 * SIZE + 1, (0,))]
    pair, last = coll(2, SIZE, (1,), group=1), coll(3, SIZE, (1,), CollectiveType.ALL_TO_ALL)
    inside = [*whole, pair, last | {"after": (2,)}]
    job = workload(inside, [*whole, last], inside, groups={"1": [0, 2]}, metadata=CAPTURED)
    algorithms = {"all-reduce": [ring, "nccl-ring:Simple:1"], "all-to-all": ["direct"]}
    experiment, flows = emulated(job, algorithms)
    names = sorted(lowered.program.name for lowered in experiment.program_messages.values())
    assert names == ["nccl_ring_Simple_all-reduce_1"] * 2 + ["ring_all-reduce"]
    assert sorted(messages_of(flows)) == sorted(posted_messages(experiment))


def test_two_runs_of_a_program_keep_their_messages_apart(ring):
    job = workload(*[[coll(0, 3 * SIZE), coll(1, 3 * SIZE, stream=2)]] * 3, metadata=CAPTURED)
    experiment, flows = emulated(job, {"all-reduce": [ring]})
    assert sorted(messages_of(flows)) == sorted(posted_messages(experiment))
    runs, counts = np.unique(flows["tag"] // TAGS, return_counts=True)
    assert (len(runs), counts.tolist()) == (2, [12, 12])
