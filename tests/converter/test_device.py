"""Conversion of ranks that drive a GPU: random programs on a model device."""

from __future__ import annotations

import copy
import json
import operator
from dataclasses import dataclass, field
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from kineto_trace import KinetoTrace

from chakrascope.converter import CollectiveType, EdgeKind, NodeType, convert_files, replay
from chakrascope.converter.building import measured_group_sizes
from chakrascope.converter.kernels import unsized_communication
from chakrascope.errors import WorkloadError
from chakrascope.runner import NetworkConfig, simulate

LATENCY_US, CALL_US = 2.0, 4.0
COMM_STREAM = 20


@dataclass
class Device:
    """A host thread and the streams it drives; writes the traces PyTorch would have written."""

    now: float = 1000.0
    ends: dict = field(default_factory=dict)
    trace: KinetoTrace = field(default_factory=lambda: KinetoTrace(thread=7))
    nodes: list = field(default_factory=list)
    records: int = 0
    sequence: int = 0
    after: dict = field(default_factory=dict)
    comm_end: dict = field(default_factory=dict)
    works: int = 0
    busy_us: float = 0.0
    room: int = 10**9
    starts: list = field(default_factory=list)
    boundaries: list = field(default_factory=lambda: [1000.0])

    def op(self, name, inputs=(), outputs=()):
        self.records += 1
        start, record = self.now, self.records
        attrs = [{"name": "rf_id", "value": record}, {"name": "op_schema", "value": ""}]
        node = {"id": record + 10, "name": name, "attrs": attrs}
        node["inputs"] = {"values": list(inputs), "shapes": [], "types": []}
        node["outputs"] = {"values": list(outputs), "shapes": [], "types": []}
        self.nodes.append(node)
        self.trace.op(name, start, 0, record)
        return self.trace.events[-1]

    def close(self, event):
        self.now += 1.0
        event["dur"] = self.now - event["ts"]

    def call(self, name, duration):
        """Call the runtime, and return the identifier of the call's work."""
        correlation = self.trace.call(name, self.now, duration, **{"External id": self.records})
        self.now += duration
        return correlation

    def work(self, name, start, duration, correlation, **about):
        self.trace.work(name, start, duration, correlation, **{"External id": self.records}, **about)

    def launch(self, stream, duration, name="gemm", **extra):
        issued = self.now
        if len(self.starts) >= self.room:
            issued = max(issued, self.starts[-self.room])
        call = self.call("cudaLaunchKernel", issued + CALL_US - self.now)
        start = max(
            issued + CALL_US + LATENCY_US, self.ends.get(stream, 0) + 1, self.after.pop(stream, 0) + 1
        )
        self.ends[stream] = start + duration
        self.starts.append(start)
        self.work(name, start, duration, call, stream=stream, **extra)
        self.works += 1
        self.busy_us += duration
        return start + duration

    def compute(self, stream, durations):
        event = self.op("aten::mm")
        self.now += 3.0
        for duration in durations:
            self.launch(stream, duration)
            self.now += 2.5
        self.close(event)

    def all_reduce(self, duration, elements):
        self.sequence += 1
        tensor = [[1, 500 + self.sequence, 0, elements, 4, "cuda:0"]]
        event = self.op("c10d::allreduce_", [tensor])
        inner = self.op(
            "record_param_comms",
            [tensor, self.sequence, ["0", "default_pg"], 0, "allreduce", [], [], 0, 1, 2],
            [tensor],
        )
        self.call("cudaStreamWaitEvent", 1.0)
        self.after[COMM_STREAM] = self.ends.get(7, 0)
        told = {"Collective name": "allreduce", "In msg nelems": elements, "Out msg nelems": elements}
        told |= {
            "dtype": "Float",
            "Group size": 2,
            "Process Group Name": "0",
            "Process Group Ranks": "[0, 1]",
        }
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        self.comm_end[self.sequence] = self.launch(COMM_STREAM, duration, name=name, **told)
        self.close(inner)
        self.close(event)

    def exchange(self, peers):
        """Send to and receive from *peers* in one batch, which is one kernel."""
        for position, (name, peer) in enumerate(peers):
            tensor = [[1, 700 + position, 0, 256, 4, "cuda:0"]]
            self.close(self.op(name, [tensor, "<Object>", peer, 3]))
        event = self.op("record_param_comms", [[], 9, ["1", "pp"], 0, "coalesced", [], [], 0, 1, 2])
        told = {"Collective name": "coalesced", "Process Group Name": "1", "Process Group Ranks": "[1, 0]"}
        self.launch(COMM_STREAM, 50.0, name="ncclDevKernel_SendRecv(ncclDevKernelArgs)", **told)
        self.close(event)

    def graph_launch(self, durations):
        """Launch a CUDA graph: many kernels, one call, one correlation."""
        event = self.op("aten::graph")
        first = self.launch(7, durations[0])
        for duration in durations[1:]:
            start, first = first + 1, first + 1 + duration
            self.work("gemm", start, duration, self.trace.correlations)
        self.ends[7] = first
        self.close(event)

    def wait(self, stated=None, group=("", ""), awaited=None):
        awaited = awaited or self.sequence
        event = self.op("record_param_comms", [stated or awaited, list(group), 0, "wait", [], [], -1, -1, 1])
        self.call("cudaStreamWaitEvent", 1.0)
        self.after[7] = self.comm_end.get(awaited, 0)
        self.close(event)

    def synchronize(self):
        last = max(self.ends.values(), default=0)
        self.call("cudaDeviceSynchronize", max(3.0, last + 5 - self.now))

    def read_back(self):
        event = self.op("aten::item")
        ready = max(self.now + CALL_US + LATENCY_US, self.ends.get(7, 0) + 1, self.after.pop(7, 0) + 1)
        call = self.call("cudaMemcpyAsync", ready + 3 - self.now)
        self.work("Memcpy DtoH", ready, 2.0, call, category="gpu_memcpy")
        self.ends[7] = ready + 2
        self.works += 1
        self.busy_us += 2
        self.close(event)

    def write(self, folder, rank=0):
        trace = copy.deepcopy(self.trace)
        for number, (start, end) in enumerate(pairwise([*self.boundaries, self.now]), start=3):
            trace.add("user_annotation", f"ProfilerStep#{number}", start, end - start)
        info = {"rank": rank, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]}
        host, device = folder / f"et_{rank}.json", folder / f"kineto_{rank}.json"
        trace.write(device, distributedInfo=info)
        host.write_text(json.dumps({"schema": "1.1.1-chakra.0.0.4", "nodes": self.nodes}))
        return [host], [device]


_microseconds = st.integers(1, 4000).map(lambda tenths: tenths / 10)
_actions = st.one_of(
    st.tuples(
        st.just("compute"), st.sampled_from([7, 7, 7, 13]), st.lists(_microseconds, min_size=1, max_size=4)
    ),
    st.tuples(st.just("all_reduce"), _microseconds, st.integers(1, 10**6)),
    st.tuples(st.sampled_from(["wait", "synchronize", "read_back"])),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("device")


@given(st.lists(_actions, min_size=1, max_size=25))
@settings(max_examples=12, deadline=None)
def test_any_program_becomes_a_graph_that_replays_it(folder, actions):
    device = Device()
    for name, *arguments in [("compute", 7, [5.0]), *actions]:
        getattr(device, name)(*arguments)
    (graph,) = convert_files(*device.write(folder)).graphs
    nodes, edges = graph.nodes, graph.edges
    assert (edges["src"] < edges["dst"]).all()
    on_device = nodes[(nodes["stream"] >= 1000) & (nodes["kind"] != "idle")]
    assert len(on_device) == device.works
    assert on_device["duration_ns"].sum() == pytest.approx(device.busy_us * 1000, abs=device.works)
    issued = edges.loc[edges["kind"].isin([EdgeKind.LAUNCH, EdgeKind.COMM_ISSUE]), "dst"]
    gaps = nodes.loc[(nodes["stream"] >= 1000) & (nodes["kind"] == "idle"), "node_id"]
    assert len(set(issued)) == len(on_device)
    assert set(issued) - set(gaps) <= set(on_device["node_id"])
    assert on_device["node_id"].isin(edges["dst"]).all()
    for _, lane in nodes[nodes["stream"] >= 1000].groupby("stream"):
        pairs = set(zip(lane["node_id"][:-1], lane["node_id"][1:], strict=True))
        assert pairs <= set(zip(edges["src"], edges["dst"], strict=True))
    measured = max(device.now, *device.ends.values()) - 1000
    assert replay(graph).makespan_ns == pytest.approx(measured * 1000, rel=0.01, abs=15_000)


def test_a_waited_all_reduce_holds_up_what_follows(tmp_path):
    device = Device()
    device.compute(7, [50.0])
    device.all_reduce(300.0, 1000)
    device.compute(7, [10.0])
    device.wait()
    device.compute(7, [20.0])
    (graph,) = convert_files(*device.write(tmp_path)).graphs
    comm = graph.nodes[graph.nodes["type"] == NodeType.COMM_COLL].iloc[0]
    kernels = graph.nodes.loc[graph.nodes["name"] == "gemm", "node_id"].tolist()
    pairs = {(src, dst): kind for src, dst, kind in graph.edges.itertuples(index=False)}
    assert comm["comm_size_bytes"] == 4000
    assert pairs[kernels[0], comm["node_id"]] == EdgeKind.EVENT_SYNC
    assert pairs[comm["node_id"], kernels[2]] == EdgeKind.COMM_WAIT
    assert (comm["node_id"], kernels[1]) not in pairs


def awaited_collectives(device, folder, number, group, *, awaited):
    """Return the collectives (from 0) for which a kernel after a wait with this *number* waits."""
    device.compute(7, [10.0])
    device.wait(number, group, awaited=awaited)
    device.compute(7, [20.0])
    (graph,) = convert_files(*device.write(folder)).graphs
    collectives = graph.nodes.loc[graph.nodes["type"] == NodeType.COMM_COLL, "node_id"].tolist()
    return [collectives.index(node) for node in graph.edges.query(f"kind == {EdgeKind.COMM_WAIT:d}")["src"]]


@pytest.mark.parametrize("group", [("", ""), ("0", "default_pg")], ids=["no group", "its group"])
@pytest.mark.parametrize("number", [2, [2, False]], ids=["before torch 2.6", "since"])
def test_a_wait_is_for_the_collective_that_it_numbers(tmp_path, number, group):
    device = Device()
    device.compute(7, [5.0])
    device.all_reduce(30.0, 1000)
    device.all_reduce(30.0, 1000)
    assert awaited_collectives(device, tmp_path, number, group, awaited=2) == [1]


def test_the_same_number_of_another_group_is_not_waited_for(tmp_path):
    device = Device()
    device.compute(7, [5.0])
    device.all_reduce(30.0, 1000)
    device.all_reduce(30.0, 1000)
    inner = device.nodes[-1]
    assert inner["name"] == "record_param_comms"
    inner["inputs"]["values"][1:3] = [1, ["1", "tp"]]  # the first collective of a second group
    assert awaited_collectives(device, tmp_path, [1, False], ("0", "default_pg"), awaited=1) == [0]


def test_a_batch_of_messages_becomes_its_sends_and_receives(tmp_path):
    device = Device()
    device.compute(7, [50.0])
    device.exchange([("c10d::send", 1), ("c10d::recv_", 0)])
    device.compute(7, [10.0])
    device.exchange([("c10d::send", 0)])
    first = device.write(tmp_path)
    device.now += 1.0
    workload = convert_files(*map(operator.add, first, device.write(tmp_path, rank=1)))
    comm = workload.graphs[0].nodes.query("kind == 'communication'")
    assert comm["type"].tolist() == [NodeType.COMM_SEND, NodeType.COMM_RECV, NodeType.COMM_SEND]
    # Peers are numbered within the group, whose second member is global rank 0.
    assert comm["comm_dst"].tolist() == [0, -1, 1]
    assert comm["comm_src"].tolist() == [-1, 1, -1]
    assert set(comm["comm_size_bytes"]) == {1024}
    assert set(comm["comm_tag"]) == {3}
    assert comm["stream"].nunique() == 2
    alone = convert_files(*device.write(tmp_path))
    messages = alone.graphs[0].nodes.query("kind == 'communication'")
    # One message is to the rank itself; the peer of the other messages was not measured.
    assert messages["type"].tolist() == [NodeType.COMM_SEND, NodeType.COMP, NodeType.COMP]
    assert messages["duration_ns"].tolist() == comm["duration_ns"].tolist()


@pytest.mark.parametrize(("rank", "members"), [(0, "[0, 1]"), (3, "[1, 3]")])
def test_one_rank_of_a_job_with_several_groups_is_replayed_alone(tmp_path, rank, members):
    device = Device()
    device.compute(7, [50.0])
    device.all_reduce(20.0, 1024)
    device.wait()
    host, trace = device.write(tmp_path, rank=rank)
    text = (
        trace[0].read_text(encoding="utf-8").replace('"Process Group Name": "0"', '"Process Group Name": "3"')
    )
    trace[0].write_text(text.replace('"world_size": 2', '"world_size": 4').replace("[0, 1]", members))
    workload = convert_files(host, trace)
    (note,) = [line for line in workload.metadata["assumptions"] if "replayed alone" in line]
    shown = ", shown as ranks from 0" if rank else ""
    assert f"the traces of 1 rank of 4 were given ({rank}{shown})" in note
    assert (workload.num_ranks, workload.groups) == (1, {1: (0,)})
    assert measured_group_sizes(workload.metadata) == {0: 4, 1: 2}
    result = simulate(workload, "default", None, backend="replay")
    assert result.columns("collectives")["transfer_ns"].tolist() == [20_000]
    assert result.makespan_ns == replay(workload.graphs[0]).makespan_ns
    workload.save(tmp_path / "alone")
    for source in (workload, tmp_path / "alone"):
        with pytest.raises(WorkloadError, match=r"only some of the job's 4 ranks.*use 'replay'"):
            simulate(source, "default", NetworkConfig(("Switch",), (4,), (1.0,), (0.0,)))


@pytest.mark.parametrize("metadata", [{}, {"measured_group_sizes": 3}, {"measured_group_sizes": {"a": 1}}])
def test_workloads_with_all_ranks_state_no_sizes_of_groups(metadata):
    assert measured_group_sizes(metadata) == {}


def test_a_numbered_group_of_all_ranks_needs_no_traces_of_the_others(tmp_path):
    """vLLM creates several groups of all ranks, none of which is the default group."""
    device = Device()
    device.compute(7, [50.0])
    device.all_reduce(20.0, 1024)
    host, trace = device.write(tmp_path)
    text = trace[0].read_text(encoding="utf-8")
    trace[0].write_text(text.replace('"Process Group Name": "0"', '"Process Group Name": "3"'))
    workload = convert_files(host, trace)
    assert workload.num_ranks == 2
    assert set(workload.groups.values()) <= {(0, 1)}


def test_the_kernels_of_a_cuda_graph_share_its_launch(tmp_path):
    device = Device()
    device.compute(7, [5.0])
    device.graph_launch([10.0, 20.0, 30.0])
    (graph,) = convert_files(*device.write(tmp_path)).graphs
    kernels = graph.nodes.loc[graph.nodes["name"] == "gemm", "node_id"].tolist()
    launches = graph.edges[graph.edges["kind"] == EdgeKind.LAUNCH].set_index("dst")["src"]
    assert len(kernels) == 4
    assert len({launches[kernel] for kernel in kernels[1:]}) == 1
    assert replay(graph).makespan_ns == pytest.approx((device.ends[7] - 1000) * 1000, abs=5_000)


@pytest.mark.parametrize(
    ("works", "expected", "makespan"),
    [
        ([(0, 10), (8, 30), (29, 40)], [10, 20, 10], 40),
        ([(0, 30), (5, 20), (40, 50)], [30, 0, 10], 50),
        ([(20, 30), (0, 10)], [10, 10], 40),
    ],
    ids=["each begins before the last ends", "one ends before the last", "not in order of issue"],
)
def test_kernels_that_overlap_on_a_stream_count_their_common_time_once(tmp_path, works, expected, makespan):
    """Kernels with programmatic dependent launch begin before the previous kernel of their stream ends."""
    made = KinetoTrace()
    made.op("aten::mm", 1000.0, 20.0)
    for start, end in works:
        call = made.call("cudaLaunchKernelExC", made.events[-1]["ts"] + 0.5, 0.4)
        made.work(f"gemm_{start}", 1020.0 + start, float(end - start), call)
    workload = convert_files(None, str(made.write(tmp_path / "kineto.json")))
    (graph,) = workload.graphs
    nodes = graph.nodes.set_index("name")["duration_ns"]
    assert [nodes[f"gemm_{start}"] for start, _ in works] == [1000 * one for one in expected]
    assert workload.metadata["accounting"]["0"]["device_compute_ns"] == 1000 * sum(expected)
    assert replay(graph).makespan_ns == 1000 * makespan


def test_device_traces_alone_give_the_collectives_they_describe(tmp_path):
    device = Device()
    device.compute(7, [50.0])
    device.all_reduce(30.0, 1000)
    device.compute(7, [10.0])
    workload = convert_files(None, device.write(tmp_path)[1])
    assert workload.graphs[0].nodes.query("type == 7")["comm_size_bytes"].tolist() == [4000]
    assert any("no host trace was given" in note for note in workload.metadata["assumptions"])


@pytest.mark.parametrize("read_back", [False, True], ids=["never synchronising", "reading the last loss"])
def test_lagging_device_determines_the_step(tmp_path, read_back):
    device = Device(room=1000)
    for _ in range(4):
        if read_back:
            device.read_back()
        for _ in range(15):
            device.compute(7, [20.0] * 100)
        device.boundaries.append(device.now)
    device.boundaries.pop()
    host, trace = device.write(tmp_path)
    for step in (4, 5):
        figures = convert_files(host, trace, step=step).metadata["accounting"]["0"]
        assert figures["measured_step_ns"] == pytest.approx(1500 * 21_000, rel=0.02)
        assert figures["unexplained_ns"] <= 0.01 * figures["measured_step_ns"]


def test_a_host_that_waits_within_its_lead_adds_no_time_to_the_step(tmp_path):
    """Short kernels use up most of the host's lead while the host waits for space in the queue."""
    device = Device(room=1000)
    for _ in range(5):
        for duration in [*[0.5] * 20, *[100.0] * 10]:
            device.compute(7, [duration] * 50)
        device.boundaries.append(device.now)
    device.boundaries.pop()
    figures = convert_files(*device.write(tmp_path), step=5).metadata["accounting"]["0"]
    assert figures["unexplained_ns"] <= 0.001 * figures["measured_step_ns"]


@pytest.mark.parametrize("streams", [(7, 1007), (-1, 999), (3, 2003), (2**40, 2**40 + 1000)])
def test_streams_with_the_same_number_in_a_thousand_run_at_the_same_time(tmp_path, streams):
    """They once had a common lane, so that a replay ran their work sequentially."""
    made = KinetoTrace()
    made.op("aten::mm", 1000.0, 20.0)
    for stream in streams:
        call = made.call("cudaLaunchKernel", 1002.0 + 4 * streams.index(stream), 2.0)
        made.work("gemm", 1010.0, 100.0, call, stream=stream)
    graph = convert_files(None, str(made.write(tmp_path / "kineto.json"))).graphs[0]
    works = graph.nodes[graph.nodes["name"] == "gemm"]
    assert works["stream"].nunique() == 2
    assert replay(graph).makespan_ns == 100_000


def test_stream_that_resumes_after_another_waited_for_it(tmp_path):
    device = Device()
    device.compute(7, [400.0])
    device.after[13] = device.ends[7]
    device.compute(13, [30.0])
    (graph,) = convert_files(*device.write(tmp_path)).graphs
    first, second = graph.nodes.loc[graph.nodes["name"] == "gemm", "node_id"]
    kinds = graph.edges.query(f"src == {first} and dst == {second}")["kind"].tolist()
    assert kinds == [EdgeKind.EVENT_SYNC]


# Custom and symmetric-memory collectives have the size of the operator that launched them.


SYMMETRIC = "void c10d::symmetric_memory::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8, false>(x)"
VLLM = "void vllm::cross_device_reduce_2stage<__half, 4>(vllm::RankData*, vllm::RankSignals)"
GATHER = "void c10d::symmetric_memory::multimem_all_gather_kernel<16>(x)"


def trace(path, operator, kernels, dims, types, *, concrete=(), world=4, groups=()):
    """Write a trace with one *operator*, which launches *kernels* one after the other."""
    made = KinetoTrace()
    made.op("vllm::unified", 5, 100, 1)
    values = [*concrete, *[""] * (len(dims) - len(concrete))]
    made.op(operator, 10, 90, 2, **{"Input Dims": dims, "Input type": types, "Concrete Inputs": values})
    for number, kernel in enumerate(kernels):
        made.launch((20 + 10 * number, 5), [(40 + 10 * number, 8)], work=kernel)
    return made.write(path, distributedInfo={"rank": 0, "world_size": world, "pg_config": list(groups)})


def group(name, *ranks):
    return {"pg_name": name, "pg_desc": "", "pg_size": len(ranks), "ranks": list(ranks)}


def collectives(workload):
    """Return kind, bytes and ranks of each collective."""
    nodes = workload.graphs[0].nodes
    found = nodes[nodes["type"] == NodeType.COMM_COLL]
    columns = (found[name].tolist() for name in ("comm_type", "comm_size_bytes", "group"))
    return [
        (CollectiveType(kind), size, workload.groups.get(key, ()))
        for kind, size, key in zip(*columns, strict=True)
    ]


ONE_SHOT = ("symm_mem::one_shot_all_reduce", [SYMMETRIC], [[64, 32], [], []], ["c10::BFloat16", "", ""])


@pytest.mark.parametrize(
    ("called", "expected"),
    [
        (ONE_SHOT, (CollectiveType.ALL_REDUCE, 4096)),
        (("_C_custom_ar::all_reduce", [VLLM], [[], [3, 50], [3, 50], []],
          ["Scalar", "c10::Half", "c10::Half", ""]), (CollectiveType.ALL_REDUCE, 300)),
        (("symm_mem::multimem_all_gather_out", [GATHER], [[10], [], [40]], ["float", "", "float"]),
         (CollectiveType.ALL_GATHER, 40)),
    ],
)  # fmt: skip
def test_they_move_the_first_tensor_of_their_operator(tmp_path, called, expected):
    workload = convert_files(None, str(trace(tmp_path / "trace.json", *called)))
    assert collectives(workload) == [(*expected, ())]
    assert unsized_communication(workload) is None
    assert any("are assumed to span all ranks" in note for note in workload.metadata["assumptions"])


@pytest.mark.parametrize(
    ("concrete", "groups", "count"),
    [
        (("", "", '"tp"'), [group("tp", 0, 1, 2, 3), group("dp", 0, 2)], 1),
        ((), [group("world", 0, 1, 2, 3), group("alone", 0)], 1),
        ((), [group("world", 0, 1, 2, 3), group("tp", 0, 1)], 0),
        (("", "", '"tp"'), [group("world", 0, 1, 2, 3), group("tp", 0, 1)], 0),
    ],
    ids=["named", "the only one", "ambiguous", "of some ranks"],
)
def test_they_are_of_all_ranks(tmp_path, concrete, groups, count):
    path = trace(tmp_path / "trace.json", *ONE_SHOT, concrete=concrete, groups=groups)
    assert len(collectives(convert_files(None, str(path)))) == count


@pytest.mark.parametrize(
    ("operator", "kernels", "dims", "world"),
    [
        (ONE_SHOT[0], [SYMMETRIC], [[64, 32], [], []], 16),
        (ONE_SHOT[0], [SYMMETRIC, SYMMETRIC], [[64, 32], [], []], 4),
        (ONE_SHOT[0], [SYMMETRIC], [[-3, 2**62], [], []], 4),
        ("symm_mem::fused_matmul_all_reduce", [SYMMETRIC], [[64, 32], [], []], 4),
        ("ours::step", [SYMMETRIC], [[64, 32], [], []], 4),
    ],
    ids=["several nodes", "several kernels", "no shape", "a product", "another operator"],
)
def test_unknown_size_or_ranks_keep_the_measured_time(tmp_path, operator, kernels, dims, world):
    path = trace(tmp_path / "trace.json", operator, kernels, dims, ONE_SHOT[3], world=world)
    found = unsized_communication(convert_files(None, str(path)))
    assert found is not None
    assert (found.kernels, found.duration_ns) == (len(kernels), 8_000 * len(kernels))
