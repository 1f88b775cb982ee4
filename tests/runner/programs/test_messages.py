"""Programs as messages: no data is lost, rings take the engine's time, and every backend runs them."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from program_samples import NAMES, changed_plan, drop, path_of, sample
from workloads import coll, comp, workload

from chakrascope.converter import CollectiveType, EdgeKind, Graph, NodeType, Workload, microbenchmark
from chakrascope.errors import ConfigError
from chakrascope.runner import NetworkConfig, SystemConfig, simulate
from chakrascope.runner.programs import (
    SLOT_BYTES,
    Buffer,
    Channel,
    ChannelType,
    Demand,
    Op,
    Program,
    RankProgram,
    Region,
    Sizes,
    ThreadBlock,
    builtin_program,
    demands_of,
    expand_workload,
    inspect_program,
    lower,
    workload_of,
    write_msccl,
)

SIZE = 1 << 18
PLAIN = replace(
    SystemConfig.preset("default"), preferred_dataset_splits=1, endpoint_delay=0, local_mem_bw=50.0
)


def network(ranks):
    return NetworkConfig(("Switch",), (ranks,), (100.0,), (500.0,), name="switch")


@pytest.mark.parametrize("name", NAMES)
def test_every_send_has_its_receive(name):
    lowered = lower(sample(name), 1 << 16)
    ends = {"send": Counter(), "receive": Counter()}
    for rank, nodes in enumerate(lowered.ranks):
        for number, node in enumerate(nodes):
            assert all(0 <= before < len(nodes) and before != number for before in node.after)
            if node.kind == "send":
                ends["send"][rank, node.peer, node.tag, node.size_bytes] += 1
            elif node.kind == "receive":
                ends["receive"][node.peer, rank, node.tag, node.size_bytes] += 1
    assert ends["send"] == ends["receive"]
    assert all(count == 1 for count in ends["send"].values())


def test_a_ring_sends_what_a_ring_sends():
    found = inspect_program(builtin_program("ring", "all-reduce", 8), 8 << 20)
    assert (found.steps, found.messages) == (14, 8 * 14)
    assert found.most_sent_bytes == found.most_received_bytes == found.least_bytes == 14 << 20
    assert {(item.source, item.destination) for item in found.traffic} == {(r, (r + 1) % 8) for r in range(8)}
    assert found.local_bytes == 7 * 3 * (1 << 20)


def test_flags_of_protocols_are_sent_too():
    base = builtin_program("ring", "all-gather", 4)
    sent = {
        protocol: inspect_program(replace(base, protocol=protocol), 120_000).most_sent_bytes
        for protocol in ("Simple", "LL", "LL128")
    }
    assert sent == {"Simple": 360_000, "LL": 720_000, "LL128": 384_000}


@pytest.mark.parametrize("name", [name for name in NAMES if sample(name).language == "msccl"])
def test_chunks_larger_than_a_slot_go_in_rounds(name, monkeypatch):
    program = sample(name)
    size = program.chunks << 14
    once = inspect_program(program, size)
    chunk = max(Sizes(program, size).chunks)
    monkeypatch.setitem(SLOT_BYTES, program.protocol, chunk // 4)
    found = inspect_program(program, size)
    assert (once.rounds, found.rounds) == (1, 4)
    assert found.messages >= 4 * once.messages
    assert found.most_received_bytes == pytest.approx(once.most_received_bytes, rel=0.003)
    assert "in rounds" in " ".join(found.remarks)


def test_a_ring_of_some_rounds_takes_their_time(tmp_path):
    path = tmp_path / "ring.xml"
    path.write_text(write_msccl(builtin_program("ring", "all-reduce", 4)))
    slot = SLOT_BYTES["Simple"]
    times = [
        simulate(
            microbenchmark("all-reduce", 4, rounds * 4 * slot),
            PLAIN,
            network(4),
            algorithms={"all-reduce": [str(path)]},
        )
        for rounds in (1, 3)
    ]
    # The first send of a round comes after the last receive of the round before.
    assert times[1].makespan_ns == 3 * times[0].makespan_ns
    assert times[1].links["bytes"].sum() == 3 * times[0].links["bytes"].sum()
    assert "in rounds" in " ".join(times[1].provenance["assumptions"])
    assert "in rounds" not in " ".join(times[0].provenance["assumptions"])


def test_more_rounds_than_can_be_held():
    program = replace(builtin_program("ring", "all-reduce", 8), protocol="LL")
    with pytest.raises(ConfigError, match=r"16384 rounds of 120 steps .* 4.00 GiB; use the protocol Simple"):
        lower(program, 1 << 32)


def test_a_plan_s_signals_go_with_the_data():
    found = inspect_program(sample("multi_node_allgather"), 1000)
    # Ready in the node, ready across nodes, data across, data in the node; only readiness has messages.
    assert found.steps == 4
    assert found.messages == 8 * 11


@pytest.mark.parametrize(("names", "waits"), [(["put", "flush"], False), (["pwsf"], True)])
def test_pwsf_waits_for_its_data_and_flush_does_not(names, waits):
    own, scratch = (Region((0,), buffer, 0, 1) for buffer in (Buffer.INPUT, Buffer.SCRATCH))
    data = ((own,), (Region((1,), Buffer.OUTPUT, 0, 1),))
    port = Channel(ChannelType.PORT, 0, 1, 0)
    ops = [
        Op(name, (number,), *(data if name != "flush" else ()), channels=(port,))
        for number, name in enumerate(names)
    ]
    block = ThreadBlock(0, (*ops, Op("copy", (len(ops),), (own,), (scratch,))))
    ranks = tuple(RankProgram(rank, 1, 1, 1, (block,) * (rank == 0)) for rank in range(2))
    nodes = lower(Program("p", "p", "mscclpp", "custom", "Simple", False, 1, ranks), 1024).ranks[0]
    (copy,) = (node for node in nodes if node.kind == "local")
    assert ("send" in {nodes[before].kind for before in copy.after}) == waits


@pytest.mark.parametrize("backend", ["analytical-unaware", "analytical-aware", "flow", "packet"])
@pytest.mark.parametrize("collective", ["all-reduce", "reduce-scatter", "all-gather"])
def test_a_ring_takes_as_long_as_the_engine_s(tmp_path, backend, collective):
    path = tmp_path / "ring.xml"
    path.write_text(write_msccl(builtin_program("ring", collective, 4)))
    workload = microbenchmark(collective, 4, SIZE)
    own = simulate(workload, PLAIN, network(4), backend=backend, algorithms={collective: ["ring"]})
    ours = simulate(workload, PLAIN, network(4), backend=backend, algorithms={collective: [str(path)]})
    assert ours.makespan_ns == own.makespan_ns
    assert ours.links["bytes"].sum() == own.links["bytes"].sum()


@pytest.mark.parametrize("backend", ["analytical-unaware", "analytical-aware", "flow", "packet"])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "multi_node_send_recv"])
def test_every_sample_runs(backend, name):
    program = sample(name)
    workload = microbenchmark(program.collective, program.num_ranks, 1 << 16)
    result = simulate(
        workload,
        PLAIN,
        network(program.num_ranks),
        backend=backend,
        algorithms={program.collective: [str(path_of(name))]},
    )
    # No program is faster than its data over one link, if links are shared at all.
    if backend != "analytical-unaware":
        assert result.makespan_ns > inspect_program(program, 1 << 16).most_received_bytes / 108
    assert any(program.name in text for text in result.provenance["assumptions"])


def test_two_collectives_at_a_time_keep_their_messages(tmp_path):
    path = tmp_path / "direct.xml"
    path.write_text(write_msccl(builtin_program("direct", "all-reduce", 4)))
    row = {"type": NodeType.COMM_COLL, "comm_type": int(CollectiveType.ALL_REDUCE), "comm_size_bytes": SIZE}
    nodes = [{"node_id": number, "name": f"n{number}", "stream": number, **row} for number in range(3)]
    graph = Graph.build(0, nodes, [(0, 2, int(EdgeKind.DATA))])
    workload = Workload((graph,), np.zeros(4, dtype=np.int32))
    one = microbenchmark("all-reduce", 4, SIZE)
    chosen = {"algorithms": {"all-reduce": [str(path)]}, "backend": "analytical-aware"}
    single = simulate(one, PLAIN, network(4), **chosen).makespan_ns
    several = simulate(workload, PLAIN, network(4), semantics="trace", **chosen)
    assert len(several.collectives) == 12
    assert single < several.makespan_ns <= 3 * single


def test_exported_messages_are_a_workload_and_a_custom_algorithm(tmp_path):
    program = sample("hierarchical_allreduce")
    lowered = lower(program, SIZE)
    workload_of(lowered, 50.0).save(tmp_path / "direct")
    alone = simulate(str(tmp_path / "direct"), PLAIN, network(8), semantics="trace")
    chosen = {"all-reduce": [str(path_of("hierarchical_allreduce"))]}
    inside = simulate(microbenchmark("all-reduce", 8, SIZE), PLAIN, network(8), algorithms=chosen)
    assert alone.makespan_ns == pytest.approx(inside.makespan_ns, rel=0.01)
    custom = replace(PLAIN, all_reduce_implementation_custom=("direct",), folder=tmp_path)
    listed = simulate(microbenchmark("all-reduce", 8, SIZE), custom, network(8))
    # ASTRA-sim's files measure computation in whole microseconds.
    assert listed.makespan_ns == pytest.approx(inside.makespan_ns, rel=0.25)


def test_a_size_that_the_chunks_do_not_divide():
    with pytest.raises(ConfigError, match="1000001 bytes cannot be divided among its 8 chunks"):
        lower(builtin_program("ring", "all-reduce", 8), 1_000_001)
    assert lower(sample("allreduce_packet"), 1002).size_bytes == 1002


def test_a_pipeline_of_tiny_units():
    def change(ranks):
        for rank in ranks:
            for block in rank["threadblocks"]:
                block["ops"][0]["iter_context"]["unit_size"] = 1

    program = changed_plan("allreduce_pipeline", change)
    with pytest.raises(ConfigError, match=r"op 0 \(pipeline\): it would repeat 268435456 times for 1.00 GiB"):
        lower(program, 1 << 30)


def test_deadlocked_program_is_an_error():
    program = changed_plan("multi_node_allgather", lambda ranks: drop(ranks, 2, 0, "rlxsignal"))
    with pytest.raises(ConfigError, match=r"op 18 .wait.: it waits forever"):
        lower(program, 1000)


def test_a_whole_workload_as_messages(tmp_path):
    job = microbenchmark("overlap", 4, SIZE, repeats=2, compute_ns=5000)
    program = builtin_program("ring", "all-reduce", 4)
    (tmp_path / "ring.xml").write_text(write_msccl(program))
    demands = demands_of(job)
    assert demands == {Demand("all-reduce", 4, SIZE)}
    expanded = expand_workload(job, {each: lower(program, each.size_bytes) for each in demands}, 50.0)
    assert not any((graph.nodes["type"] == NodeType.COMM_COLL).any() for graph in expanded.graphs)
    expanded.save(tmp_path / "expanded")
    chosen = {"backend": "analytical-aware", "semantics": "trace"}
    messages = simulate(str(tmp_path / "expanded"), PLAIN, network(4), **chosen)
    ring = {"algorithms": {"all-reduce": [str(tmp_path / "ring.xml")]}}
    whole = simulate(job, PLAIN, network(4), **chosen, **ring)
    assert messages.makespan_ns == whole.makespan_ns


def test_groups_of_a_workload_as_messages():
    job = microbenchmark("all-reduce", 4, SIZE)
    columns = {"group": np.where(np.arange(4) % 2, 2, 1)}
    graphs = tuple(
        job.graph_of(0).as_rank(rank).with_columns(group=columns["group"][[rank]].astype("int64"))
        for rank in range(4)
    )
    groups = {1: (2, 0), 2: (1, 3)}
    split = Workload(graphs, np.arange(4, dtype=np.int32), groups, {})
    lowered = lower(builtin_program("direct", "all-reduce", 2), SIZE)
    expanded = expand_workload(split, {Demand("all-reduce", 2, SIZE): lowered})
    ends = [
        set(
            graph.nodes.loc[graph.nodes["type"] == kind, ["comm_src", "comm_dst"]].itertuples(
                index=False, name=None
            )
        )
        for graph in expanded.graphs
        for kind in (NodeType.COMM_SEND, NodeType.COMM_RECV)
    ]
    assert ends == [{(0, 2)}, {(2, 0)}, {(1, 3)}, {(3, 1)}, {(2, 0)}, {(0, 2)}, {(3, 1)}, {(1, 3)}]
    assert simulate(expanded, PLAIN, network(4), backend="analytical-aware").makespan_ns > 0


@pytest.mark.parametrize("second", [126, 127, 257, 300])
@pytest.mark.parametrize("backend", ["analytical-aware", "packet"])
def test_groups_keep_their_messages_apart(tmp_path, backend, second):
    path = tmp_path / "ring.xml"
    path.write_text(write_msccl(builtin_program("ring", "all-gather", 2)))

    def collectives(second):
        ranks = [
            [
                comp(9, 100_000),
                coll(0, SIZE, (), CollectiveType.ALL_GATHER, group=first, stream=2),
                coll(1, SIZE, (9,), CollectiveType.ALL_GATHER, group=then, stream=3),
            ]
            for first, then in [(1, second), (second, 1)]
        ]
        job = workload(*ranks, groups=dict.fromkeys(range(1, 301), (0, 1)))
        chosen = {"backend": backend, "semantics": "trace", "algorithms": {"all-gather": [str(path)]}}
        return simulate(job, PLAIN, network(2), **chosen).collectives.drop(columns="group")

    apart = collectives(2)
    # Neither collective ends before the rank that begins it late has sent.
    assert apart["end_ns"].min() > 100_000
    assert collectives(second).equals(apart)
