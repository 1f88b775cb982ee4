"""Traces and graphs of other tools: device traces alone, the public linker and converter, MLCommons Chakra.

The files in ``tests/data/converter/chakra`` were written by the classes that MLCommons generates.
"""

from __future__ import annotations

import gzip
import json
import shutil

import numpy as np
import pytest
from chakra_schema import GlobalMetadata, Node, messages
from kineto_trace import KinetoTrace, edit_json

from chakrascope.converter import (
    CollectiveType,
    EdgeKind,
    Graph,
    NodeType,
    Workload,
    convert_files,
    decode_graph,
    doctor,
    encode_graph,
    inspect_node,
    inspect_workload,
    load_workload,
    microbenchmark,
    read_et,
    replay,
)
from chakrascope.converter.readers import kind_of
from chakrascope.converter.readers._file_kinds import stated_rank
from chakrascope.errors import TraceError, TraceFormatError, UsageError, WorkloadError, WorkloadFormatError
from chakrascope.runner import WorkloadSource, simulate

ALL_REDUCE = int(CollectiveType.ALL_REDUCE)


def _assumed(workload):
    return " ".join(workload.metadata["assumptions"])


def _slowed(graph):
    nodes = graph.nodes.copy()
    nodes.loc[nodes["kind"] == "communication", "duration_ns"] *= 10
    return replay(type(graph).of_tables(graph.rank, nodes, graph.edges)).makespan_ns


@pytest.fixture(scope="module")
def linked_path(data_dir):
    return data_dir / "converter" / "linked" / "linked_0.json.gz"


@pytest.fixture(scope="module")
def linked(linked_path):
    return convert_files(linked_trace=str(linked_path))


def test_a_linked_trace_replays_what_was_measured(linked):
    graph = linked.graphs[0]
    assert linked.metadata["measured_step_ns"] == {"0": 44_800_000}
    assert replay(graph).makespan_ns == 44_800_000
    assert linked.num_ranks == 2
    assert "lack runtime calls" in _assumed(linked)


def test_a_linked_traces_device_work_hangs_together(linked):
    nodes, edges = linked.graphs[0].nodes, linked.graphs[0].edges
    device = nodes[nodes["stream"] >= 1000]
    assert (device["kind"] == "copy").sum() == 161
    launched = edges[edges["kind"].isin([EdgeKind.LAUNCH, EdgeKind.COMM_ISSUE])]
    assert len(launched) == 187 + 161
    (comm,) = nodes[nodes["type"] == NodeType.COMM_COLL].to_dict("records")
    assert (comm["comm_type"], comm["comm_size_bytes"], comm["group"]) == (ALL_REDUCE, 9_724_160, 0)
    assert (edges["src"] == comm["node_id"]).any()
    assert nodes["num_ops"].clip(lower=0).sum() == 178_319_229_163


def test_a_linked_trace_given_as_host_trace_is_recognised(linked, linked_path):
    again = convert_files(str(linked_path))
    assert again.graphs[0].nodes.equals(linked.graphs[0].nodes)
    assert "linked traces were converted" in _assumed(again)


def test_the_pair_and_its_linked_trace_agree(shared, linked_path, tmp_path):
    folder = shared / "traces" / "gpu_resnet50_ddp2"
    pair = convert_files([folder / "et103_0.json.gz"], [folder / "kineto_0.json.gz"], step=5).graphs[0]
    beside = convert_files([linked_path], [folder / "kineto_0.json.gz"], step=5).graphs[0]
    part = convert_files(linked_trace=[linked_path]).graphs[0]
    ours, theirs = (graph.nodes.query("type == 7 and comm_size_bytes == 9724160") for graph in (pair, part))
    assert ours["duration_ns"].tolist() == theirs["duration_ns"].tolist()
    known = beside.nodes.query("operator == 'aten::convolution_backward' and num_ops > 1")["num_ops"]
    assert known.isin(pair.nodes["num_ops"]).all()
    assert len(known) > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda node: node.pop("ts", None), "holds no time of any operator"),
        (lambda node: node.update(ts="soon") if "ts" in node else None, r"impossible time \('soon'"),
        (lambda node: node.update(inclusive_dur=-1) if "ts" in node else None, "impossible time"),
        (lambda node: node.update(id="x"), "not a trace of the expected kind"),
    ],
)
def test_damaged_linked_traces_are_refused(linked_path, tmp_path, change, message):
    def change_all(document):
        for node in document["nodes"]:
            change(node)

    edit_json(linked_path, change_all, tmp_path / "linked_0.json")
    with pytest.raises(TraceFormatError, match=message):
        convert_files(linked_trace=f"{tmp_path}/linked_{{rank}}.json")


def test_a_host_trace_alone_is_refused(data_dir, linked_path):
    path = data_dir / "converter" / "mlp_2" / "rank0.host.json.gz"
    with pytest.raises(UsageError, match=r"rank0\.host\.json\.gz\) has no times.*--device-trace"):
        convert_files([path])
    with pytest.raises(UsageError, match="give either linked traces"):
        convert_files([path], linked_trace=[linked_path])
    with pytest.raises(UsageError, match="has no times"):
        convert_files()


def test_kinds_of_files_are_told_by_their_content(data_dir, linked_path, tmp_path):
    folder = data_dir / "converter" / "mlp_2"
    found = [
        folder / "rank1.device.json.gz",
        folder / "rank1.host.json.gz",
        linked_path,
        folder / "manifest.json",
    ]
    assert [kind_of(path) for path in found] == ["device", "host", "linked", "other"]
    assert [stated_rank(path) for path in found] == [1, 1, 0, None]
    (tmp_path / "cut.json.gz").write_bytes(found[0].read_bytes()[:9])
    assert kind_of(tmp_path / "cut.json.gz") == "other"


@pytest.fixture(scope="module")
def both(data_dir, dlrm):
    """Return the workload of the pairs of traces, and that of only the device traces."""
    folder = data_dir / "converter" / "dlrm_v100_8"
    return dlrm, convert_files(device_trace=f"{folder}/kineto_{{rank}}.json.gz")


def test_device_traces_alone_give_the_same_communication(both):
    columns = ["comm_type", "comm_size_bytes", "group", "stream", "duration_ns"]
    for pair, alone in zip(*(workload.graphs for workload in both), strict=True):
        ours, theirs = (graph.nodes.query("type == 7")[columns].to_numpy() for graph in (pair, alone))
        assert (ours == theirs).all()


def test_device_traces_alone_replay_and_react_alike(both):
    for pair, alone in zip(*(workload.graphs for workload in both), strict=True):
        measured = both[1].metadata["measured_step_ns"][str(alone.rank)]
        assert replay(alone).makespan_ns == pytest.approx(measured, rel=0.003)
        assert _slowed(alone) == pytest.approx(_slowed(pair), rel=0.01)


def test_device_traces_alone_have_costs_from_shapes(both):
    pair, alone = (workload.graphs[0].nodes for workload in both)
    assert alone["num_ops"].clip(lower=0).sum() == pytest.approx(
        pair["num_ops"].clip(lower=0).sum(), rel=1e-4
    )
    assert "costs follow from the recorded shapes" in _assumed(both[1])


def test_resnet_alone_has_every_wait_of_the_pair(shared):
    folder = shared / "traces" / "gpu_resnet50_ddp2"
    device = [folder / "kineto_0.json.gz"]
    pair, alone = (
        convert_files(host, device, step="all").graphs[0] for host in ([folder / "et103_0.json.gz"], None)
    )
    waits = [graph.edges[graph.edges["kind"] == EdgeKind.COMM_WAIT].to_numpy() for graph in (pair, alone)]
    assert (waits[0] == waits[1]).all()
    assert replay(alone).makespan_ns == pytest.approx(667_225_958, rel=0.001)
    assert _slowed(alone) == pytest.approx(_slowed(pair), rel=0.001)


def test_a_captured_device_trace_alone_gives_the_pairs_collectives(data_dir):
    folder = data_dir / "converter" / "mlp_2"
    device = f"{folder}/rank{{rank}}.device.json.gz"
    pair, alone = (convert_files(host, device) for host in (f"{folder}/rank{{rank}}.host.json.gz", None))
    columns = ["comm_type", "comm_size_bytes"]
    for ours, theirs in zip(pair.graphs, alone.graphs, strict=True):
        found = [graph.nodes.query("type == 7")[columns].to_numpy().tolist() for graph in (ours, theirs)]
        assert found[0] == found[1]
        assert len(found[0]) == 5


@pytest.mark.parametrize(
    ("name", "collective", "count"),
    [("fsdp2_2", 2, 9), ("fsdp2_2", 7, 5), ("moe_2", 6, 5), ("tp_2", 0, 6)],
)
def test_gloo_alone_gives_the_pairs_collectives(shared, name, collective, count):
    folder = shared / "traces" / name
    device = f"{folder}/kineto_{{rank}}.json.gz"
    pair, alone = (convert_files(host, device) for host in (f"{folder}/et_{{rank}}.json.gz", None))
    for ours, theirs in zip(pair.graphs, alone.graphs, strict=True):
        found = [
            graph.nodes.query(f"comm_type == {collective}")["comm_size_bytes"].tolist()
            for graph in (ours, theirs)
        ]
        assert found[0] == found[1]
        assert len(found[0]) == count
        figures = alone.metadata["accounting"][str(theirs.rank)]
        assert figures["unexplained_ns"] <= 0.003 * figures["measured_step_ns"]


def test_gloo_alone_gives_sends_and_receives(shared):
    workload = convert_files(device_trace=f"{shared}/traces/pp_2/kineto_{{rank}}.json.gz")
    first, second = (graph.nodes for graph in workload.graphs)
    sent, received = first.query("type == 5"), second.query("type == 6")
    assert sent["comm_dst"].tolist() == [1] * len(sent)
    assert sent["comm_size_bytes"].tolist() == received["comm_size_bytes"].tolist()


def test_unnamed_gloo_groups_are_noted(shared):
    workload = convert_files(device_trace=f"{shared}/traces/tpdp_4/kineto_{{rank}}.json.gz")
    assert "not the group of each collective" in _assumed(workload)


def test_without_shapes_gloo_communication_stays_measured_time(data_dir, tmp_path):
    def without_shapes(document):
        for event in document["traceEvents"]:
            for name in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs"):
                event.get("args", {}).pop(name, None)

    source = data_dir / "converter" / "mlp_2" / "rank0.device.json.gz"
    edit_json(source, without_shapes, tmp_path / "rank0.json")
    workload = convert_files(device_trace=str(tmp_path / "rank0.json"))
    assert "has no shapes (record_shapes)" in _assumed(workload)
    assert "lack the sizes of some communications" in _assumed(workload)
    assert workload.summary()["communication_nodes"] == 0


def test_traces_tell_their_own_ranks(data_dir, tmp_path):
    folder = data_dir / "converter" / "mlp_2"
    for rank, name in enumerate(("host_b.171.pt.trace.json.gz", "host_a.170.pt.trace.json.gz")):
        shutil.copy(folder / f"rank{rank}.device.json.gz", tmp_path / name)
    by_rank = convert_files(device_trace=f"{folder}/rank{{rank}}.device.json.gz")
    for files in (str(tmp_path), f"{tmp_path}/*.pt.trace.json.gz"):
        found = convert_files(device_trace=files)
        assert found.metadata["measured_step_ns"] == by_rank.metadata["measured_step_ns"]
    swapped = [tmp_path / "host_a.170.pt.trace.json.gz", tmp_path / "host_b.171.pt.trace.json.gz"]
    with pytest.raises(TraceError, match="is the trace of rank 1, but is given as rank 0"):
        convert_files(device_trace=swapped)
    shutil.copy(swapped[0], tmp_path / "again.pt.trace.json.gz")
    with pytest.raises(UsageError, match="belongs to rank 1, like"):
        convert_files(device_trace=str(tmp_path))


def test_one_rank_of_many_stands_for_all_and_is_named(data_dir):
    workload = convert_files(device_trace=str(data_dir / "converter" / "dlrm_v100_8" / "kineto_1.json.gz"))
    assert workload.num_ranks == 8
    assert "1 of 8 ranks were given (1, shown as ranks from 0)" in _assumed(workload)
    assert "for the others (0, 2, 3, 4, 5, 6, 7)" in _assumed(workload)
    assert workload.metadata["stand_ins"] in workload.metadata["assumptions"]


def test_messages_without_shapes_are_told_by_their_parameters(tmp_path):
    stated = {"dtype": "Float", "Group size": 2, "Process Group Ranks": "[2, 3]"}
    trace = KinetoTrace()
    trace.add("user_annotation", "ProfilerStep#1", 0, 400)
    for number, (name, side) in enumerate((("send", "Dst Rank"), ("recv", "Src Rank"))):
        at, record = 10 + 100 * number, 10 + 10 * number
        told = {**stated, "Collective name": name, "In msg nelems": 256, "Out msg nelems": 256, side: 1}
        trace.op(f"c10d::{name}{'_' * number}", at, 40, record)
        trace.op("record_param_comms", at + 2, 30, record + 1, **told)
        call = trace.call("cudaLaunchKernel", at + 10, 5)
        kernel = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
        trace.work(kernel, at + 20, 15, call, stream=20, **told)
    trace.write(tmp_path / "rank0.json", distributedInfo={"rank": 0, "world_size": 1})
    nodes = convert_files(device_trace=str(tmp_path / "rank0.json")).graphs[0].nodes
    sent, received = nodes.query("type == 5"), nodes.query("type == 6")
    assert sent[["comm_dst", "comm_size_bytes"]].to_numpy().tolist() == [[3, 1024]]
    assert received[["comm_src", "comm_size_bytes"]].to_numpy().tolist() == [[3, 1024]]


def test_an_amd_trace_alone_has_the_costs_of_its_products(data_dir):
    workload = convert_files(device_trace=str(data_dir / "converter" / "kineto" / "mi250.json.gz"))
    (graph,) = workload.graphs
    assert replay(graph).makespan_ns == workload.metadata["measured_step_ns"]["0"] == 9_288_291
    kernels = graph.nodes.query("stream >= 1000 and kind != 'idle'")
    assert len(kernels) == 16
    costs = kernels.groupby("operator")[["num_ops", "tensor_size_bytes"]].sum()
    multiplied = 2 * 5 * 128 * 128
    assert costs.loc["aten::addmm"].tolist() == [multiplied, 4 * (128 + 5 * 128 + 128 * 128 + 5 * 128)]
    assert costs.loc["aten::mm"].tolist() == [multiplied, 4 * (5 * 128 + 5 * 128 + 128 * 128)]
    assert costs.loc["aten::add_", "tensor_size_bytes"] == 4 * 3 * (128 + 128 * 128)
    assert set(kernels["phase"]) == {"forward", "backward", "optimizer"}


def test_a_recorded_stream_wait_becomes_an_edge(data_dir):
    workload = convert_files(device_trace=str(data_dir / "converter" / "kineto" / "event_sync.json.gz"))
    (graph,) = workload.graphs
    waits = graph.edges[graph.edges["kind"] == EdgeKind.EVENT_SYNC]
    lanes = graph.nodes.set_index("node_id")["stream"]
    pairs = list(zip(waits["src"].map(lanes), waits["dst"].map(lanes), strict=True))
    assert [pair for pair in pairs if pair[1] != 0] == [(1020, 1024)]
    synchronised = graph.nodes[graph.nodes["kind"] == "sync"]
    assert synchronised["name"].tolist() == ["cudaDeviceSynchronize"] * len(synchronised)
    assert {pair for pair in pairs if pair[1] == 0} == {(1020, 0), (1024, 0), (1028, 0)}
    assert workload.metadata["accounting"]["0"]["unexplained_ns"] <= 1000


def test_a_gpu_job_traced_on_the_host_alone_is_refused(tmp_path):
    trace = KinetoTrace()
    trace.op("c10d::allreduce_", 10, 40, 1)
    trace.op("record_param_comms", 12, 30, 2)
    trace.add("user_annotation", "nccl:all_reduce", 14, 20)
    trace.write(tmp_path / "rank0.json")
    with pytest.raises(TraceError, match="computed on a GPU, but the trace holds no kernel"):
        convert_files(device_trace=str(tmp_path / "rank0.json"))


def _without_operators(folder, names=("cuda_runtime", "kernel", "gpu_memcpy")):
    """Write a trace of two kernels and a copy with their launches on two threads, and nothing else."""
    call, kernel, copy = names
    made = [
        (1, "cudaLaunchKernel", 10, kernel, "gemm", 100, 50),
        (1, "cudaLaunchKernel", 20, kernel, "add", 160, 20),
        (2, "cudaMemcpyAsync", 40, copy, "Memcpy DtoH (Device -> Pinned)", 200, 10),
    ]
    trace = KinetoTrace()
    for number, (thread, launch, at, category, name, start, duration) in enumerate(made, start=1):
        trace.add(call, launch, at, 5, tid=thread, correlation=number)
        trace.work(name, start, duration, number, category=category)
    return trace.write(folder / "rank0.json")


@pytest.mark.parametrize(
    "names",
    [("cuda_runtime", "kernel", "gpu_memcpy"), ("Runtime", "Kernel", "Memcpy")],
    ids=["now", "before"],
)
def test_device_work_without_operators_converts(tmp_path, names):
    workload = convert_files(None, str(_without_operators(tmp_path, names)))
    nodes = workload.graphs[0].nodes
    device = nodes[nodes["kind"].isin(["compute", "copy"]) & ~nodes["is_cpu_op"]]
    assert device["duration_ns"].tolist() == [50_000, 20_000, 10_000]
    assert device["kind"].tolist() == ["compute", "compute", "copy"]
    # From the first kernel, at 100 us, to the end of the copy, at 210.
    assert replay(workload.graphs[0]).makespan_ns == workload.metadata["measured_step_ns"]["0"] == 110_000
    assert "holds no operator" in _assumed(workload)


def test_device_work_without_operators_and_launches_is_refused(tmp_path):
    path = _without_operators(tmp_path)
    events = json.loads(path.read_text())["traceEvents"]
    path.write_text(json.dumps({"traceEvents": [each for each in events if each["cat"] != "cuda_runtime"]}))
    with pytest.raises(TraceFormatError, match="holds no operator"):
        convert_files(None, str(path))


SCALARS = {
    "double": 2.5, "float": -1.25, "int32": -7, "int64": -(2**40), "uint32": 7, "uint64": 2**40, "sint32": -9,
    "sint64": -(2**41), "fixed32": 11, "fixed64": 2**42, "sfixed32": -11, "sfixed64": -(2**42), "bool": True,
    "string": "text é", "bytes": b"\x00\xff",
}  # fmt: skip


@pytest.fixture(scope="module")
def chakra(data_dir):
    return data_dir / "converter" / "chakra"


def _parsed(data):
    first, *rest = messages(data)
    metadata, nodes = GlobalMetadata(), []
    metadata.ParseFromString(first)
    for body in rest:
        nodes.append(Node())
        nodes[-1].ParseFromString(body)
    return metadata, nodes


def test_a_file_of_the_reference_classes_is_read(chakra):
    graph = load_workload(chakra / "all_kinds.et").graphs[0]
    nodes = graph.nodes.set_index("node_id")
    assert nodes["type"].tolist() == [2, 4, 7, 5]
    assert nodes.loc[1, ["num_ops", "tensor_size_bytes", "duration_ns"]].tolist() == [12, 48, 20_000]
    assert nodes.loc[2, ["comm_type", "comm_size_bytes", "group"]].tolist() == [0, 2**33, 1]
    assert nodes.loc[3, ["comm_size_bytes", "comm_src", "comm_dst", "comm_tag"]].tolist() == [64, 0, 1, 5]
    assert list(zip(graph.edges["src"], graph.edges["dst"], strict=True)) == [(0, 1), (0, 2), (1, 2), (2, 3)]


@pytest.mark.parametrize("name", ["all_kinds.et", "public.0.et", "storage.et"])
def test_everything_in_it_survives_being_written_again(chakra, name):
    data = (chakra / name).read_bytes()
    metadata, nodes = _parsed(data)
    again_metadata, again = _parsed(encode_graph(decode_graph(data)))
    assert again_metadata == metadata
    for before, after in zip(sorted(nodes, key=lambda node: node.id), again, strict=True):
        plain = ("id", "name", "type", "start_time_micros", "duration_micros", "inputs", "outputs")
        assert all(getattr(before, field) == getattr(after, field) for field in plain)
        assert {*before.data_deps, *before.ctrl_deps} == {*after.data_deps, *after.ctrl_deps}
        kept = {attribute.name: attribute for attribute in after.attr}
        ours = {
            "comm_type",
            "comm_size",
            "comm_src",
            "comm_dst",
            "comm_tag",
            "tensor_size",
            "pg_name",
            "stream",
        }
        assert all(kept[one.name] == one for one in before.attr if one.name not in ours)


def test_attributes_of_every_kind_are_shown(chakra):
    shown = inspect_node(load_workload(chakra / "all_kinds.et").graphs[0], 1)["other_attributes"]
    assert {name: shown[f"v_{name}"] for name in SCALARS} == SCALARS
    assert {name: shown[f"l_{name}"] for name in SCALARS} == {name: [v, v] for name, v in SCALARS.items()}
    assert shown["inputs"] == "[[1, 2]]"


def test_a_type_of_a_newer_schema_keeps_its_number(chakra):
    graph = load_workload(chakra / "storage.et").graphs[0]
    assert graph.nodes["type"].tolist() == [NodeType.INVALID, NodeType.COMP]
    _, (first, _) = _parsed(encode_graph(graph))
    assert first.type == 8


def test_files_of_older_versions_are_refused(chakra):
    with pytest.raises(
        WorkloadFormatError, match=r"before_0\.0\.4\.et does not start with the metadata of Chakra"
    ):
        load_workload(chakra / "before_0.0.4.et")


def test_compressed_files_are_read_and_simulated(tmp_path):
    workload = microbenchmark("all-reduce", 2, 1 << 20, repeats=2)
    workload.save(tmp_path / "plain")
    for rank in range(2):
        data = (tmp_path / f"plain.{rank}.et").read_bytes()
        (tmp_path / f"packed.{rank}.et").write_bytes(gzip.compress(data))
    (tmp_path / "one.et.gz").write_bytes((tmp_path / "packed.0.et").read_bytes())
    assert Workload.load(tmp_path / "packed").graphs[0].nodes.equals(workload.graphs[0].nodes)
    assert load_workload(tmp_path / "one.et.gz").graphs[0].nodes.equals(workload.graphs[0].nodes)
    assert doctor(tmp_path / "packed") == []
    assert WorkloadSource.of_prefix(tmp_path / "packed", 2).programs == (data,)
    plain, packed = (simulate(tmp_path / name, "default", "ring-2") for name in ("plain", "packed"))
    assert plain.makespan_ns == packed.makespan_ns
    (tmp_path / "cut.0.et").write_bytes(gzip.compress(data)[:-9])
    with pytest.raises(WorkloadFormatError, match=r"cut\.0\.et is truncated"):
        read_et(tmp_path / "cut.0.et")
    with pytest.raises(WorkloadError, match="cannot be read"):
        read_et(tmp_path / "absent.et")


def test_the_public_converters_graphs_are_explained(chakra):
    findings = doctor(chakra / "public")
    assert [finding.severity for finding in findings] == ["error", "error", "warning"]
    alone = doctor(chakra / "public.0.et")
    assert [finding.cause for finding in alone] == [finding.cause for finding in findings]
    dangling, leaves, metadata = findings
    assert "waits for node 0, which does not exist" in dangling.cause
    assert "No node waits for the device's work" in leaves.cause
    assert "METADATA nodes, at which ASTRA-sim stops" in metadata.cause
    assert all("--linked-trace LINKED.json" in finding.remedy for finding in findings)


def test_inspection_shows_an_invalid_graph(chakra):
    facts = inspect_workload(load_workload(chakra / "public.0.et"))
    assert facts["ranks"]["0"]["replay_ns"] == -1
    assert facts["ranks"]["0"]["by_type"] == {"COMM_COLL": 1, "COMP": 20, "METADATA": 1}
    assert [finding["severity"] for finding in facts["findings"]] == ["error", "error", "warning"]


def test_device_work_that_something_waits_for_is_fine(tmp_path):
    nodes = [
        {"node_id": 0, "name": "launch", "type": NodeType.COMP, "is_cpu_op": True},
        {"node_id": 1, "name": "kernel", "type": NodeType.COMP, "stream": 7},
        {"node_id": 2, "name": "next", "type": NodeType.COMP, "stream": 7},
    ]
    for edges, count in (([(0, 1, 3), (0, 2, 3)], 1), ([(0, 1, 3), (1, 2, 2)], 0)):
        graph = Graph.build(0, nodes, edges)
        Workload((graph,), np.zeros(1, dtype=np.int32)).save(tmp_path / "w")
        assert len(doctor(tmp_path / "w")) == count


def test_a_trace_is_no_graph(data_dir):
    path = data_dir / "converter" / "mlp_2" / "rank0.device.json.gz"
    with pytest.raises(WorkloadError, match=r"convert --device-trace .*rank0\.device\.json\.gz -o PREFIX"):
        load_workload(path)
