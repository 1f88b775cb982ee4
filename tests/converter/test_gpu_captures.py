"""Graphs of real GPU captures replay the measured times."""

import gzip
import sys

import command_line
import numpy as np
import pytest
from kineto_trace import KinetoTrace, read_json

from chakrascope.converter import CollectiveType, EdgeKind, NodeType, convert_files, doctor, replay
from chakrascope.converter.building._costs import operator_cost
from chakrascope.converter.readers import read_host_trace
from chakrascope.errors import TraceError, UsageError


@pytest.mark.parametrize("jobs", [2, None])
def test_processes_convert_the_same_graphs(data_dir, dlrm, monkeypatch, jobs):
    monkeypatch.setattr(sys.modules["chakrascope.converter.building._workers"], "_WORTH_PROCESSES_BYTES", 1)
    folder = data_dir / "converter" / "dlrm_v100_8"
    seen = []
    workload = convert_files(
        f"{folder}/et_{{rank}}.json.gz",
        f"{folder}/kineto_{{rank}}.json.gz",
        jobs=jobs,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(1, 2), (2, 2)]
    for ours, theirs in zip(workload.graphs, dlrm.graphs, strict=True):
        assert ours.nodes.equals(theirs.nodes)
        assert ours.edges.equals(theirs.edges)
    assert workload.metadata == dlrm.metadata


def test_dlrm_ranks_replay_their_measured_steps(dlrm):
    assert dlrm.metadata["measured_step_ns"] == {"0": 14_455_000, "1": 18_567_000}
    for graph in dlrm.graphs:
        figures = dlrm.metadata["accounting"][str(graph.rank)]
        assert replay(graph).makespan_ns == pytest.approx(figures["measured_step_ns"], rel=0.003)


def test_dlrm_communication_is_told_from_the_operators(dlrm):
    comm = dlrm.graphs[0].nodes.query("type == 7")
    a2a, reduce = int(CollectiveType.ALL_TO_ALL), int(CollectiveType.ALL_REDUCE)
    assert comm["comm_type"].tolist() == [a2a, a2a, a2a, a2a, reduce, a2a, reduce, reduce]
    expected = [6144 * 4, 24 * 8, 384 * 4, 3392 * 4, 394241 * 4, 6144 * 4, 112 * 4, 226960 * 4]
    assert comm["comm_size_bytes"].tolist() == expected
    assert set(comm["group"]) == {0}


def test_backward_runs_on_its_own_thread_and_the_main_thread_waits(dlrm):
    graph = dlrm.graphs[0]
    handed = graph.edges[graph.edges["kind"] == EdgeKind.AUTOGRAD]
    lanes = graph.nodes.set_index("node_id")["stream"]
    pairs = list(zip(handed["src"].map(lanes), handed["dst"].map(lanes), strict=True))
    assert pairs == [(0, 1), (1, 0)] * 2
    assert set(graph.nodes.loc[graph.nodes["stream"] == 1, "phase"]) == {"backward"}


def test_all_eight_dlrm_ranks(shared, tmp_path):
    import tarfile

    for name in ("dlrm_8gpu_kineto.tar.gz", "dlrm_8gpu_host_et.tar.gz"):
        with tarfile.open(shared / "traces" / name) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # 3.11.4 and later
            archive.extractall(tmp_path)
    workload = convert_files(
        f"{tmp_path}/dlrm_pytorch_et/dlrm_eg_{{rank}}.json",
        f"{tmp_path}/dlrm_kineto/worker{{rank}}_*.json",
        tmp_path / "w",
    )
    assert doctor(tmp_path / "w") == []
    assert workload.num_ranks == len(workload.graphs) == 8
    for graph in workload.graphs:
        figures = workload.metadata["accounting"][str(graph.rank)]
        assert figures["unexplained_ns"] <= 0.003 * figures["measured_step_ns"]
    sizes = [graph.nodes.query("type == 7")["comm_type"].tolist() for graph in workload.graphs]
    assert all(size == sizes[0] for size in sizes)


@pytest.fixture(scope="module")
def resnet(shared):
    folder = shared / "traces" / "gpu_resnet50_ddp2"
    return convert_files([folder / "et103_0.json.gz"], [folder / "kineto_0.json.gz"], step="all")


def test_resnet_replays_the_measured_span(resnet):
    # 684 ms is the span of all events, 667.2 ms that of its three steps.
    graph = resnet.graphs[0]
    assert resnet.metadata["measured_step_ns"]["0"] == 667_225_958
    assert replay(graph).makespan_ns == pytest.approx(667_225_958, rel=0.001)
    assert replay(graph).makespan_ns == pytest.approx(684_372_000, rel=0.03)
    comm = graph.nodes.query("type == 7")
    assert comm["comm_type"].value_counts().to_dict() == {0: 15, 5: 6}
    assert comm["comm_size_bytes"].tolist()[2:7] == [8196000, 31502336, 26255360, 26550272, 9724160]
    assert graph.nodes.loc[graph.nodes["name"].str.startswith("Mem"), "duration_ns"].count() == 1074


def test_resnet_depends_on_its_network(resnet):
    graph = resnet.graphs[0]
    slow = graph.nodes.copy()
    slow.loc[slow["type"] == NodeType.COMM_COLL, "duration_ns"] *= 10
    slowed = type(graph).of_tables(graph.rank, slow, graph.edges)
    assert replay(slowed).makespan_ns > 1.1 * replay(graph).makespan_ns
    comm = graph.nodes.query("type == 7 and comm_type == 0")["node_id"]
    lanes = graph.nodes.set_index("node_id")["stream"]
    onward = graph.edges[graph.edges["src"].isin(comm) & (graph.edges["dst"].map(lanes) == 1007)]
    assert set(onward["src"]) == set(comm)


def test_newer_kernel_names_and_schema_give_the_same_graph(shared, resnet):
    folder = shared / "traces" / "gpu_resnet50_ddp2"
    newer = convert_files(
        [folder / "et110_rfshift_0.json.gz"], [folder / "kineto_ncclDevKernel_0.json.gz"], step="all"
    )
    columns = ["name", "type", "duration_ns", "comm_type", "comm_size_bytes", "group", "stream", "operator"]
    ours, theirs = (
        w.graphs[0].nodes.query("not name.str.contains('nccl')", engine="python")[columns]
        for w in (resnet, newer)
    )
    assert np.array_equal(ours.to_numpy(), theirs.to_numpy())
    assert resnet.graphs[0].edges.query("kind != 0").equals(newer.graphs[0].edges.query("kind != 0"))


def test_kernels_share_the_cost_of_their_operator(dlrm, data_dir):
    graph = dlrm.graphs[0]
    host = read_host_trace(data_dir / "converter" / "dlrm_v100_8" / "et_0.json.gz")
    counted = [
        operator_cost(op)[0] for op in map(host.operator, host.records.tolist()) if op.name == "aten::addmm"
    ]
    kernels = graph.nodes.query("stream >= 1000 and type == 4")
    assert (kernels[["num_ops", "tensor_size_bytes"]] >= 1).all(axis=None)
    first = kernels.query("operator == 'aten::addmm'")
    assert counted[0] == 2 * 16 * 13 * 256
    assert first["num_ops"].sum() == pytest.approx(sum(counted), abs=len(first))


# Kernels of CUDA and HIP graphs have the operators of their capture if its trace is given.


ATTENTION = [("aten::mm", "gemm"), ("vllm::attention", "flash"), ("aten::mm", "gemm"), ("aten::add", "add")]
NORM = [("aten::add", "add"), ("aiter::rmsnorm", "norm"), ("aten::copy_", "")]


def capture(path, *graphs, named=True, end=True):
    """Write the trace of a capture of *graphs*, lists of (operator, kernel), "" being a copy."""
    time, trace = 1000.0, KinetoTrace()
    for number, graph in enumerate(graphs):
        trace.call("hipStreamBeginCapture", time, 2.0, correlation=number + 1)
        for place, (operator, kernel) in enumerate(graph):
            time += 20
            about = {"correlation": 1000 * (number + 1) + place} | (
                {"kernel": kernel} if named and kernel else {}
            )
            call = "hipLaunchKernel" if kernel else "hipMemcpyAsync"
            trace.op(operator, time, 15.0, **{"External id": place})
            trace.call(call, time + 5, 5.0, **about)
        time += 20
        if end:
            trace.call("hipStreamEndCapture", time, 2.0, correlation=number + 501)
        time += 20
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(trace.write(path).read_bytes()))
    return path


def launches(path, *graphs, start_us=10_000.0):
    """Write a trace that launches each of *graphs*, lists of kernels, after a separate kernel."""
    time, trace = start_us, KinetoTrace()
    for number, graph in enumerate([["sample"], *graphs]):
        if not number:
            trace.op("aten::argmax", time, 12.0, **{"External id": 1})
        call = trace.call("hipGraphLaunch" if number else "hipLaunchKernel", time + 2, 8.0)
        time += 15
        for kernel in graph:
            category = "kernel" if kernel else "gpu_memcpy"
            trace.work(kernel or "Memcpy DtoD", time, 10.0, call, category=category)
            time += 10
    return trace.write(path)


def kernels_of(graph):
    return [kernel for _, kernel in graph]


def operators(workload):
    """Return the operators of a workload's device work, in order."""
    nodes = workload.graphs[0].nodes
    works = nodes[(nodes["stream"] >= 1000) & (nodes["kind"] != "idle")]
    return works.sort_values("measured_start_ns")["operator"].tolist()


def notes(workload):
    return [note for note in workload.metadata["assumptions"] if "capture trace" in note]


def test_kernels_have_the_operators_of_the_capture_that_fits(tmp_path):
    captures = capture(tmp_path / "captures" / "graphs.json.gz", ATTENTION, NORM)
    trace = launches(tmp_path / "trace.json", kernels_of(NORM), kernels_of(ATTENTION))
    workload = convert_files(None, str(trace), capture_trace=captures)
    called = [operator for operator, _ in [*NORM, *ATTENTION]]
    assert operators(workload) == ["aten::argmax", *called]
    assert "7 of 7" in notes(workload)[0]


def test_of_kernels_out_of_order_names_tell_the_operator(tmp_path):
    captures = capture(tmp_path / "graphs.json.gz", ATTENTION)
    trace = launches(tmp_path / "trace.json", ["flash", "gemm", "add", "gemm"])
    workload = convert_files(None, str(trace), capture_trace=captures)
    assert operators(workload)[1:] == ["vllm::attention", "aten::mm", "aten::add", "aten::mm"]


def test_graphs_that_are_alike_are_launched_in_the_order_of_their_captures(tmp_path):
    layers = [[(f"layer{number}::mm", "gemm"), (f"layer{number}::add", "add")] for number in range(3)]
    capture(tmp_path / "capture_traces" / "graphs.json.gz", *layers)
    trace = launches(tmp_path / "trace.json", *[["gemm", "add"]] * 6)
    workload = convert_files(None, str(trace))
    assert operators(workload)[1:] == [operator for layer in layers * 2 for operator, _ in layer]


def test_without_names_of_kernels_order_and_number_tell_the_operator(tmp_path):
    captures = capture(tmp_path / "graphs.json.gz", ATTENTION, NORM, named=False)
    trace = launches(tmp_path / "trace.json", kernels_of(NORM), ["gemm", "gemm"])
    workload = convert_files(None, str(trace), capture_trace=captures)
    assert operators(workload)[1:] == [*(operator for operator, _ in NORM), "", ""]
    assert "3 of 5" in notes(workload)[0]


def test_eager_work_during_a_capture_is_not_in_the_graph(tmp_path):
    path = capture(tmp_path / "graphs.json.gz", [("aten::fill", "gemm"), *ATTENTION])
    eager = KinetoTrace()
    eager.events = read_json(path)["traceEvents"]
    eager.work("gemm", 1100.0, 5.0, 1000)
    path.write_bytes(gzip.compress(eager.write(path).read_bytes()))
    run = launches(tmp_path / "trace.json", kernels_of(ATTENTION))
    workload = convert_files(None, str(run), capture_trace=path)
    assert operators(workload)[1:] == [operator for operator, _ in ATTENTION]


def test_the_capture_of_another_job_gives_no_operator(tmp_path):
    captures = capture(tmp_path / "graphs.json.gz", NORM)
    trace = launches(tmp_path / "trace.json", ["gemm", "flash", "add", "gemm"])
    workload = convert_files(None, str(trace), capture_trace=captures)
    assert operators(workload)[1:] == [""] * 4
    assert "0 of 4" in notes(workload)[0]


def test_a_step_without_graphs_uses_no_capture(tmp_path):
    captures = capture(tmp_path / "capture_traces" / "graphs.json.gz", ATTENTION)
    trace = launches(tmp_path / "trace.json")
    assert notes(convert_files(None, str(trace))) == []
    told = notes(convert_files(None, str(trace), capture_trace=captures))
    assert told == ["the capture trace is not used: the step launches no graph"]


def test_each_rank_takes_its_own_capture(tmp_path):
    folder = tmp_path / "captures"
    for rank in range(2):
        capture(folder / f"capture_rank_{rank}.json.gz", [(f"rank{rank}::mm", "gemm")])
        launches(tmp_path / f"run_rank{rank}.json", ["gemm"], start_us=10_000.0 + rank)
    workload = convert_files(None, f"{tmp_path}/run_rank{{rank}}.json", capture_trace=folder)
    found = [graph.nodes["operator"].tolist() for graph in workload.graphs]
    assert ["rank0::mm" in found[0], "rank1::mm" in found[0]] == [True, False]
    assert ["rank0::mm" in found[1], "rank1::mm" in found[1]] == [False, True]


def test_named_capture_trace_without_end_is_refused(tmp_path):
    captures = capture(tmp_path / "graphs.json.gz", ATTENTION, end=False)
    trace = launches(tmp_path / "trace.json", kernels_of(ATTENTION))
    with pytest.raises(TraceError, match=r"graphs.json.gz \(rank 0\) holds no capture of a graph"):
        convert_files(None, str(trace), capture_trace=captures)


def test_truncated_capture_trace_is_refused_only_if_named(tmp_path):
    path = capture(tmp_path / "capture_traces" / "graphs.json.gz", ATTENTION)
    path.write_bytes(path.read_bytes()[:-60])
    trace = launches(tmp_path / "trace.json", kernels_of(ATTENTION))
    with pytest.raises(TraceError, match=r"graphs.json.gz"):
        convert_files(None, str(trace), capture_trace=path)
    workload = convert_files(None, str(trace))
    assert operators(workload)[1:] == [""] * 4
    assert "graphs.json.gz" in notes(workload)[0]


@pytest.mark.parametrize("given", ["nowhere", "empty", "trace.txt"])
def test_no_trace_at_the_given_place_is_refused(tmp_path, given):
    (tmp_path / "empty").mkdir()
    (tmp_path / "trace.txt").write_text("no trace")
    trace = launches(tmp_path / "trace.json", ["gemm"])
    with pytest.raises(UsageError, match=f"{given} holds no trace of a capture"):
        convert_files(None, str(trace), capture_trace=tmp_path / given)


def test_the_option_reaches_the_conversion_and_needs_a_trace(tmp_path, capsys):
    captures = capture(tmp_path / "graphs.json.gz", ATTENTION)
    trace = launches(tmp_path / "trace.json", kernels_of(ATTENTION))
    arguments = ["convert", "--device-trace", str(trace), "--capture-trace", str(captures)]
    assert command_line.run(*arguments, "-o", tmp_path / "out") == 0
    assert "operators of 4 of 4" in " ".join(capsys.readouterr().out.split())
    assert command_line.run("convert", "--capture-trace", captures, "-o", tmp_path / "out") == 2
    assert "--device-trace" in capsys.readouterr().err
