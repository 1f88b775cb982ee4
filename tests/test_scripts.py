"""The scripts that write pages and files of this project compute and refuse as they should."""

import gzip
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from itertools import product

import numpy as np
import pandas as pd
import pytest
from studies import make_workload

from chakrascope.errors import ConfigError
from chakrascope.runner.chips import find_chip, load_chip, save_chip

from .pages import ROOT

SCRIPTS = ROOT / "scripts"


@pytest.fixture(scope="module")
def module_of():
    """Return a function that imports a script by its name, as scripts import each other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPTS))
        yield importlib.import_module


@pytest.fixture(scope="module")
def fidelity(module_of):
    return module_of("fidelity_report")


EXPERIMENTS = [
    (network, pattern, "1 KiB") for network in ("ring-8", "clos-16") for pattern in ("all-reduce", "incast")
]


@pytest.fixture(scope="module")
def simulated(fidelity):
    return fidelity.run(EXPERIMENTS, ["analytical-unaware", "flow"])


@pytest.fixture(scope="module")
def table(fidelity, simulated):
    """Return errors for packets that take twice the time of the unaware backend, and 0.1 s of CPU time."""
    unaware = simulated[simulated["backend"] == "analytical-unaware"]
    packet = unaware.assign(backend="packet", makespan_ns=2 * unaware["makespan_ns"], seconds=0.1, flags="")
    incast = (simulated["backend"] == "flow") & (simulated["pattern"] == "incast")
    flagged = simulated.assign(flags=simulated["flags"].mask(incast, "pauses"))
    return fidelity.errors(pd.concat([flagged, packet], ignore_index=True))


def test_errors_are_relative_to_the_measure(table):
    assert len(table) == 2 * 2 * 3
    assert (table.loc[table["backend"] == "analytical-unaware", "error"] == -0.5).all()
    assert (table.loc[table["backend"] == "packet", "error"] == 0).all()
    assert (table["seconds"] > 0).all()


def test_the_flags_of_flow_are_in_the_table(fidelity):
    found = fidelity.run([("clos-16-1mib", "incast", "4 MiB")], ["analytical-unaware", "flow"])
    assert found["flags"].tolist() == ["", "pauses"]


def test_the_page_has_every_experiment(fidelity, table):
    (line,) = (line for line in fidelity.report(table).splitlines() if line.startswith("| ring-8 |"))
    assert line.startswith("| ring-8 | 50.0%, 50.0% |")
    rows = fidelity.every(table).set_index(["network", "pattern"])
    assert len(rows) == 2 * 2
    row = rows.loc[("clos-16", "incast")]
    assert " ".join(row).count(" ms") == 3
    assert row["flow"].endswith(", pauses")
    assert row["packet"].endswith("µs, 100 ms")


def test_auto_with_packet_has_its_error_and_both_costs(fidelity, table):
    rows = fidelity._auto(table).set_index(["network", "pattern"])
    flow = table[table["backend"] == "flow"].set_index(["network", "pattern"])
    flagged = flow["flags"] != ""
    assert flagged.any()
    assert (rows["error"][flagged] == 0).all()
    assert (rows["error"][~flagged] == flow["error"][~flagged]).all()
    assert (rows["seconds"] - flow["seconds"]).round(6).tolist() == [0.1 * flag for flag in flagged]


def test_the_published_page_is_of_the_experiments_of_the_script(fidelity):
    folder = ROOT / "docs" / "validation"
    page = (folder / "fidelity.md").read_text(encoding="utf-8")
    table = (folder / "fidelity.csv").read_text(encoding="utf-8")
    grid = [
        (name, *rest) for name in fidelity.NETWORKS for rest in product(fidelity.PATTERNS, fidelity.SIZES)
    ]
    for experiment in grid + fidelity.BEYOND:
        assert table.count(f"\n{','.join(experiment)},") == 1, experiment
    assert all(f"| {backend} |" in page for backend in fidelity.BACKENDS)


def test_trains_are_a_column_of_their_own(fidelity):
    found = fidelity.errors(
        fidelity.run([("dgx-a100-8", "ring-shift", "4 MiB")], [fidelity.TRAINS, "packet"])
    )
    (trains, packet) = found.to_dict("records")
    assert 0 < abs(trains["error"]) < 0.01
    assert packet["error"] == 0


def test_every_network_of_the_grid_exists(fidelity):
    assert {fidelity.load(name).num_ranks for name in fidelity.NETWORKS} == {8, 16}


# The report on how far simulated steps are from measured ones: figures from the traces, none from itself.


@pytest.fixture(scope="module")
def accuracy(module_of):
    return module_of("accuracy_report")


def test_steps_are_those_of_the_trace_sets_each_once(accuracy, data_dir):
    steps = accuracy.distinct(
        [
            *accuracy.steps_in(data_dir / "converter"),
            *accuracy.steps_in(data_dir / "converter"),
        ]
    )
    assert [step.name for step in steps] == [
        "experts_2", "fsdp2_2", "interleaved_2", "loaded_2", "mlp_2", "ring_2"
    ]  # fmt: skip
    other = steps[0]._replace(measured_ns=1)
    assert [step.name for step in accuracy.distinct([steps[0], other])] == [
        "experts_2",
        "experts_2 (2)",
    ]


def test_no_step_has_a_part_in_the_choice_of_its_own_network(accuracy, monkeypatch):
    """Two steps agree on a network; a different network fits the third, which is predicted on theirs."""
    monkeypatch.setattr(accuracy, "BANDWIDTHS", (1.0, 2.0))
    monkeypatch.setattr(accuracy, "LATENCIES", (0.0,))
    ratios = {"a": (1.0, 2.0), "b": (1.1, 2.0), "c": (3.0, 1.0)}

    def ratio(step, network):
        return 1.0 if network is None else ratios[step.name][int(network[0]) - 1]

    monkeypatch.setattr(accuracy, "ratio", ratio)
    rows = accuracy.predictions([accuracy.Step(name, make_workload(), 10**6) for name in ratios])
    assert [(row.step.name, row.predicted) for row in rows][-1] == ("c", 3.0)
    page = accuracy.report(rows)
    assert "| largest error | 1.00 | 3.00 |" in page
    assert page.index("| `c` |") < page.index("| `b` |")


def test_replay_of_a_hand_made_step_takes_the_measured_time(accuracy):
    workload = make_workload()
    step = accuracy.Step("w", workload, 4_920_000)
    assert accuracy.ratio(step, None) == pytest.approx(1.0)
    assert accuracy.ratio(step, (0.25, 0.0)) > accuracy.ratio(step, (4.0, 0.0))


# The comparison with peers, on a trace made here: plain sums, TraceLens's tables, edges, the page.

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
    expected = module_of("gpu_peers").expected_of(folder / "job.json.gz")
    assert expected.times == {"busy": 190 * US, "exposed communication": 30 * US}
    assert (expected.total_ns, expected.kernels) == (200 * US, 3)
    assert module_of("gpu_peers").expected_of(folder / "other.json.gz") is None


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
    found = module_of("gpu_peers").agreements(metadata, folder / "job.json.gz")
    assert [(one.figure, one.alike, one.rows) for one in found] == [
        ("time of operators", 1, 2),
        ("FLOPs of products", 1, 1),
        ("bytes of operators", 1, 2),
    ]
    ours, theirs = module_of("gpu_peers").modelled_shares(metadata, folder / "job.json.gz")
    assert (ours, theirs) == (pytest.approx(40.3 / 45.3), pytest.approx(40 / 45))
    assert module_of("gpu_peers").agreements(metadata, folder / "other.json.gz") == []
    assert module_of("gpu_peers").modelled_shares(metadata, folder / "other.json.gz") is None


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
    script, intervals = module_of("gpu_peers"), module_of("gpu_intervals")
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


# The check of GPUs, where there is none: its refusal, its table, and its smallest job on the CPU.


@pytest.fixture
def gpu_check(module_of):
    return module_of("gpu_check")


@pytest.mark.torch
def test_the_smallest_job_on_the_cpu(tmp_path):
    pytest.importorskip("torch")
    folder = tmp_path / "check"
    done = subprocess.run(
        [SCRIPTS / "gpu_check", "--cpu", "-o", folder],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    row = next(line for line in done.stdout.splitlines() if "on the CPU" in line)
    captured, replayed, unprofiled, *of_device = (cell.strip() for cell in row.split("|")[2:-1])
    # Their difference depends on the load of the machine.
    assert all(float(cell.removesuffix(" ms")) > 0 for cell in (captured, replayed, unprofiled))
    assert of_device == ["-", "-"]
    assert list(folder.rglob("rank0.device.json.gz"))


# The fit of a chip file, on times made from known speeds.

PEAK, BANDWIDTH = 989e12, 3.35e12


@pytest.fixture
def measure_chip(module_of):
    return module_of("measure_chip")


def times_at(shares, start_ns=4_000.0):
    """Return a table of an H100 that reaches *shares* of its peaks, with 2 % of noise."""
    random = np.random.default_rng(7)
    peaks = {"gemm": PEAK, "attention": PEAK, "pointwise": BANDWIDTH}
    works = {
        "gemm": [2.0 * n**3 for n in (1024, 2048, 4096, 8192)],
        "attention": [8192.0 * n**2 for n in (1024, 2048, 4096, 8192)],
        "pointwise": [float(1 << n) for n in (22, 24, 26, 28, 30)],
    }
    rows = [
        (f"aten::{kind}", kind, work, (start_ns + work / (share * peaks[kind]) * 1e9) * noise)
        for kind, share in shares.items()
        for work in works[kind]
        for noise in 1 + 0.02 * random.standard_normal(15)
    ]
    return pd.DataFrame(rows, columns=["operator", "class", "work", "duration_ns"])


def test_shares_of_the_peaks_are_found_again(measure_chip, tmp_path):
    shares = {"gemm": 0.7, "attention": 0.45, "pointwise": 0.85}
    launches = measure_chip.slopes((1, 8, 64), [5e3, 40e3, 320e3], [3e3, 12.1e3, 84.9e3])
    chip, notes = measure_chip.measured_chip(find_chip("h100"), times_at(shares), launches, 12, "a test")
    save_chip(chip, tmp_path / "mine.yml")
    costs = load_chip(tmp_path / "mine.yml").costs_of("measured")
    assert costs.gemm["default"] == pytest.approx(0.7, rel=0.05)
    assert costs.attention["default"] == pytest.approx(0.45, rel=0.05)
    assert costs.pointwise == pytest.approx(0.85, rel=0.05)
    assert costs.host_ns == pytest.approx(12 * 5e3, rel=0.01)
    assert costs.layer_ns == pytest.approx(12 * 1.3e3, rel=0.01)
    assert "a test" in costs.fit.data
    assert any("12 kernels" in note for note in notes)


def test_a_class_without_sizes_keeps_the_costs_of_the_chip(measure_chip):
    table = times_at({"gemm": 0.7, "pointwise": 0.85})
    chip, notes = measure_chip.measured_chip(
        find_chip("h100"), table, measure_chip.Launches(1.0, 1.0), 1, "a test"
    )
    shipped = next(iter(find_chip("h100").costs.values()))
    assert chip.costs["measured"].attention == shipped.attention
    assert any(note.startswith("attention: fewer than 3 sizes") for note in notes)


def test_times_of_a_faster_chip_are_refused(measure_chip):
    with pytest.raises(ConfigError, match="ran on another chip"):
        measure_chip.measured_chip(
            find_chip("v100"), times_at({"gemm": 0.7}), measure_chip.Launches(1, 1), 1, "a test"
        )


# The script that builds a release finds all installed Pythons, including those of pyenv.


@pytest.fixture
def release_wheels(module_of):
    return module_of("release_wheels")


def program(path, status):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexit {status}\n")
    path.chmod(0o755)
    return str(path)


def test_a_python_that_the_path_refuses_to_run_is_taken_from_pyenv(release_wheels, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}/shims:/bin:/usr/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    program(tmp_path / "shims/python9.1", 127)
    kept = program(tmp_path / "pyenv/versions/9.1.4/bin/python9.1", 0)
    assert release_wheels.found("python9.1") == kept
    assert release_wheels.found("python9.2") is None


# The permitted content of a wheel.


@pytest.fixture
def wheel_check(module_of):
    return module_of("wheel_check")


def wheel_of(folder, *extra, licences=("LICENSE", "runner/backends/ns3/tcp/LICENSE")):
    """Write a wheel of these files and of the files that every wheel has."""
    information = "chakrascope-9.1.dist-info"
    path = folder / "chakrascope-9.1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("chakrascope/__init__.py", "chakrascope/runner/backends/ns3/tcp/wire.h", *extra):
            archive.writestr(name, "")
        for name in ("METADATA", *(f"licenses/{licence}" for licence in licences)):
            archive.writestr(f"{information}/{name}", "")
    return path


def test_a_wheel_with_our_package_and_its_licences_passes(wheel_check, tmp_path):
    wheel_check.check_contents(wheel_of(tmp_path))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tracer/__init__.py", r"top-level names \['tracer'\]"),
        ("chakrascope/runner/engine/src/config.h", "nothing installed needs"),
        ("chakrascope/tests/test_x.py", "nothing installed needs"),
    ],
)
def test_a_wheel_with_other_files_is_refused(wheel_check, tmp_path, name, words):
    with pytest.raises(SystemExit, match=words):
        wheel_check.check_contents(wheel_of(tmp_path, name))


def test_a_wheel_without_a_licence_is_refused(wheel_check, tmp_path):
    with pytest.raises(SystemExit, match="no licenses/runner/backends/ns3/tcp/LICENSE"):
        wheel_check.check_contents(wheel_of(tmp_path, licences=["LICENSE"]))
