"""The comparison with peers, on a trace made here: plain sums, TraceLens's tables, edges, the page."""

import gzip
import json
import os
import sys

import pytest

US = 1000


def event(cat, name, start_us, duration_us, **args):
    tid = args.get("stream", 1)
    return {"ph": "X", "cat": cat, "name": name, "ts": start_us, "dur": duration_us, "pid": 0, "tid": tid} | {
        "args": args
    }


def launched(number, cat, name, launch_us, *interval_us, stream=7):
    return [
        event("cpu_op", f"aten::op{number}", launch_us - 5, 12),
        event("cuda_runtime", "cudaLaunchKernel", launch_us, 5, correlation=number),
        event(cat, name, *interval_us, correlation=number, stream=stream, device=0),
    ]


@pytest.fixture
def trace():
    """Computation 100-200 and 250-300, NCCL 150-230, a copy 220-240, all in us: idle 240-250."""
    return {
        "traceEvents": [
            *launched(1, "kernel", "gemm", 20, 100, 100),
            *launched(2, "kernel", "ncclDevKernel_AllReduce_Sum_f32", 40, 150, 80, stream=20),
            *launched(3, "gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 60, 220, 20, stream=21),
            *launched(4, "kernel", "gemm", 80, 250, 50),
        ]
    }


@pytest.fixture
def folder(trace, tmp_path):
    with gzip.open(tmp_path / "job.json.gz", "wt") as file:
        json.dump(trace, file)
    (tmp_path / "notes.json").write_text("[1, 2]")
    (tmp_path / "broken.json").write_text('{"traceEvents": [')
    tables = tmp_path / "job_perf_report_csvs"
    tables.mkdir()
    (tables / "gpu_timeline.csv").write_text(
        "type,time ms,percent\nbusy_time,0.19,95\nexposed_comm_time,0.03,15\ntotal_time,0.2,100\n"
    )
    (tables / "kernel_summary.csv").write_text(
        "Kernel name,Kernel duration (µs)_count\ngemm,2\nnccl,1.0\n", encoding="utf-8"
    )
    return tmp_path


def test_plain_sums_count_every_moment_once(module_of, trace):
    intervals = module_of("gpu_intervals")
    events = intervals.device_events(trace)
    times = intervals.times_of(events.start, events.end, events.kind)
    assert times.span_ns == 200 * US
    assert (times.compute_ns, times.exposed_comm_ns, times.exposed_copy_ns) == (150 * US, 30 * US, 10 * US)
    assert (times.idle_ns, times.comm_ns, times.overlap_ns) == (10 * US, 80 * US, 50 * US)
    assert events.launched.tolist() == [20 * US, 40 * US, 60 * US, 80 * US]
    own = events.within(80 * US, 170 * US)
    assert own.start.tolist() == [180 * US, 180 * US, 220 * US, 250 * US]
    assert own.end.tolist() == [200 * US, 230 * US, 240 * US, 270 * US]


def test_events_without_a_launch_and_those_of_graphs_are_marked(module_of, trace):
    trace["traceEvents"][1]["name"] = "cudaGraphLaunch"
    del trace["traceEvents"][4]
    events = module_of("gpu_intervals").device_events(trace)
    assert events.graph.tolist() == [True, False, False, False]
    assert events.launched.tolist() == [20 * US, -1, 60 * US, 80 * US]


def test_tables_beside_a_trace(module_of, folder):
    expected = module_of("gpu_tracelens").expected_of(folder / "job.json.gz")
    assert expected.times == {"busy": 190 * US, "exposed communication": 30 * US}
    assert (expected.total_ns, expected.kernels) == (200 * US, 3)
    assert module_of("gpu_tracelens").expected_of(folder / "other.json.gz") is None


def test_operators_are_held_against_the_rows_of_the_table(module_of, folder):
    (folder / "job_perf_report_csvs" / "unified_perf_summary.csv").write_text(
        "name,Input Dims,op category,operation_count,has_perf_model,Kernel Time (µs)_sum,GFLOPS,"
        "Data Moved (MB)\n"
        'aten::mm,"((8, 4), (4, 2))",GEMM,3,True,30,1e-06,1\n'
        'aten::mul,"((8, 4), ())",elementwise,1,True,5,0,2\n'
        'aten::mul,"((8, 8), ())",elementwise,1,False,5,,\n'
        'aten::odd,"((8, 8),)",other,1,True,5,1,1\n',
        encoding="utf-8",
    )
    kinds = [
        ["aten::mm", "gemm", "bf16", "bf16[8,4] [4,2]", 1_000, 2**19, 2**19],
        ["aten::mul", "elementwise", "bf16", "bf16[8,4]", 1, 2**20, 2**19],
        ["aten::mul", "elementwise", "bf16", "bf16[8,8]", 1, 1, 1],
        ["aten::odd", "", "", "bf16[8,8]", 0, 0, 0],
    ]
    calls = [[0, 3, 3, 30_100], [1, 1, 1, 5_200], [2, 1, 1, 5_000], [3, 1, 1, 5_000]]
    metadata = {"operators": {"kinds": kinds, "ranks": {"0": calls}}}
    found = module_of("gpu_operators").agreements(metadata, folder / "job.json.gz")
    assert [(one.figure, one.alike, one.rows) for one in found] == [
        ("time of operators", 1, 2),
        ("FLOPs of products", 1, 1),
        ("bytes of operators", 1, 2),
    ]
    assert module_of("gpu_operators").agreements(metadata, folder / "other.json.gz") == []


def test_recomputed_kernels_count_as_computation(module_of, folder):
    (folder / "job_perf_report_csvs" / "gpu_timeline.csv").write_text(
        "type,time ms,percent,is_recompute\ncomputation_time,0.1,50,False\ntotal_comm_time,0.08,40,False\n"
        "total_time,0.2,100,False\ncomputation_time,0.05,25,True\ntotal_time,0.1,100,True\n"
    )
    expected = module_of("gpu_tracelens").expected_of(folder / "job.json.gz")
    assert expected.times == {"computation": 150 * US, "communication": 80 * US}
    assert expected.total_ns == 200 * US


def test_only_the_launched_work_of_the_steps_counts(module_of, trace):
    script, intervals, said = (module_of(name) for name in ("gpu_accuracy", "gpu_intervals", "gpu_ours"))
    trace["traceEvents"].append(event("user_annotation", "ProfilerStep#5", 30, 40))
    trace["traceEvents"].append(event("user_annotation", "step[DECODE bs=2]", 10, 20))
    events = intervals.device_events(trace)
    batch = said.Ours(steps=(0,), step_names=("step[DECODE bs=2]",))
    assert script.in_steps(events, trace, said.Ours(steps=(5,))).tolist() == [False, True, True, False]
    assert script.in_steps(events, trace, batch).tolist() == [True, False, False, False]
    assert script.in_steps(events, trace, said.Ours()).all()


def test_edges_that_the_graph_lacks_are_named(module_of, trace, folder):
    script, intervals = module_of("gpu_syncs"), module_of("gpu_intervals")
    workload = module_of("gpu_ours").measure(folder / "job.json.gz").workload
    pairs = [(100 * US, 250 * US), (250 * US, 150 * US)]
    edges = script.compare_edges(pairs, trace, intervals.device_events(trace), workload)
    assert edges.theirs == 2
    assert edges.missing == ("gemm -> a kernel",)


def test_the_table_has_a_row_for_the_trace_and_the_page_for_each_miss(module_of, folder, monkeypatch):
    monkeypatch.setattr(
        sys,
        "argv",
        ["gpu_accuracy", "--traces", f"Here={folder}", "--traces", "Gone=/nowhere", "-o", str(folder)],
    )
    module_of("gpu_accuracy").main()
    text = (folder / "gpu-accuracy.md").read_text()
    assert "\nHere: job.json.gz,4,0.20," in (folder / "gpu-accuracy.csv").read_text()
    assert "Gone: there is no folder /nowhere" in text
    assert "broken" not in text
    prose = [line for line in text.splitlines() if not line.startswith("|")]
    assert max(map(len, prose)) <= 100


def test_figures_of_another_python_are_read_once(module_of, trace, folder):
    other = folder / "python"
    other.write_text(f"#!/bin/sh\necho asked >> {folder}/asked\necho '{{\"idle_ns\": 10000}}'\n")
    os.chmod(other, 0o755)
    for _ in range(2):
        hta = module_of("gpu_accuracy").Hta(str(other), folder / "kept.json")
        assert hta.figures(folder / "job.json.gz", trace, set()) == {"idle_ns": 10000}
    assert (folder / "asked").read_text().count("asked") == 1


def test_findings_of_a_replay_that_is_too_long(module_of):
    checks, ours, intervals = (module_of(name) for name in ("gpu_checks", "gpu_ours", "gpu_intervals"))
    plain = intervals.Times(4, 3, 200, 150, 30, 10, 10, 80, 50)
    off = intervals.Times(4, 3, 200, 150, 30, 0, 20, 80, 50)
    said = ours.Ours(
        answer=off,
        operators=3,
        replays=(ours.Replay("all", 1000, 1040),),
        gains=(ours.Gain("kernels", 100, 95), ours.Gain("copies", 100, 60)),
    )
    row = checks.Row("a", plain, plain, plain, 0, 2, True, said, {"error": "no"}, None, None)
    missed = [(finding.demand, finding.figure) for finding in checks.findings(row) if not finding.passed]
    assert missed == [
        ("plain", "exposed copies"),
        ("plain", "idle"),
        ("attributed", "work with an operator"),
        ("replay", "replay of all"),
        ("replay of whole traces", "replay of all"),
        ("advice", "gain of copies"),
    ]
