"""Kernels of CUDA and HIP graphs have the operators of their capture, where a trace of it is given."""

import gzip
import json

import command_line
import pytest

from chakrascope.converter import convert_files
from chakrascope.errors import TraceError, UsageError

ATTENTION = [("aten::mm", "gemm"), ("vllm::attention", "flash"), ("aten::mm", "gemm"), ("aten::add", "add")]
NORM = [("aten::add", "add"), ("aiter::rmsnorm", "norm"), ("aten::copy_", "")]


def event(category, name, start, duration, **args):
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": duration,
            "args": args}  # fmt: skip


def capture(path, *graphs, named=True, end=True):
    """Write the trace of a capture of *graphs*, lists of (operator, kernel), "" being a copy."""
    time, events = 1000.0, []
    for number, graph in enumerate(graphs):
        events.append(event("cuda_runtime", "hipStreamBeginCapture", time, 2.0, correlation=number + 1))
        for place, (operator, kernel) in enumerate(graph):
            time += 20
            about = {"correlation": 1000 * (number + 1) + place} | (
                {"kernel": kernel} if named and kernel else {}
            )
            call = "hipLaunchKernel" if kernel else "hipMemcpyAsync"
            events.append(event("cpu_op", operator, time, 15.0, **{"External id": place}))
            events.append(event("cuda_runtime", call, time + 5, 5.0, **about))
        time += 20
        if end:
            events.append(event("cuda_runtime", "hipStreamEndCapture", time, 2.0, correlation=number + 501))
        time += 20
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()))
    return path


def launches(path, *graphs, start_us=10_000.0):
    """Write a trace that launches each of *graphs*, lists of kernels, and a kernel of its own before."""
    time, events = start_us, []
    for number, graph in enumerate([["sample"], *graphs]):
        about = {"correlation": number + 1}
        name = "hipGraphLaunch" if number else "hipLaunchKernel"
        if not number:
            events.append(event("cpu_op", "aten::argmax", time, 12.0, **{"External id": 1}))
        events.append(event("cuda_runtime", name, time + 2, 8.0, **about))
        time += 15
        for kernel in graph:
            category = "kernel" if kernel else "gpu_memcpy"
            work = event(category, kernel or "Memcpy DtoD", time, 10.0, **about, device=0, stream=7)
            events.append(work)
            time += 10
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


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


def test_what_ran_at_once_during_a_capture_is_not_in_the_graph(tmp_path):
    path = capture(tmp_path / "graphs.json.gz", [("aten::fill", "gemm"), *ATTENTION])
    trace = json.loads(gzip.decompress(path.read_bytes()))
    trace["traceEvents"].append(event("kernel", "gemm", 1100.0, 5.0, correlation=1000, device=0, stream=7))
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))
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


def test_a_capture_without_an_end_is_refused_where_it_was_given(tmp_path):
    captures = capture(tmp_path / "graphs.json.gz", ATTENTION, end=False)
    trace = launches(tmp_path / "trace.json", kernels_of(ATTENTION))
    with pytest.raises(TraceError, match=r"graphs.json.gz \(rank 0\) holds no capture of a graph"):
        convert_files(None, str(trace), capture_trace=captures)


def test_a_truncated_capture_is_refused_where_it_was_given_and_left_out_where_not(tmp_path):
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
