"""Overhead of captured steps over unprofiled steps, and its removal from host time."""

import json
import shutil
from types import SimpleNamespace

import command_line
import numpy as np
import pytest
from evidence_file import EvidenceFile
from gloo_thread import Thread, write_trace_set

from chakrascope.converter import NodeType, Workload, convert, doctor
from chakrascope.converter.building import profiler_overhead
from chakrascope.converter.building._overhead import without_recording
from chakrascope.converter.building._rank_graph import RankGraph
from chakrascope.converter.building._steps import Window
from chakrascope.converter.chakra import GraphBuilder
from chakrascope.errors import UsageError
from chakrascope.runner import Study, analyse_run

CAPTURED_NS = 27_929_204  # the median captured step of the slower rank of interleaved_2


@pytest.fixture
def captured(data_dir, tmp_path):
    """Return a function that gives a capture with these durations of the ranks' unprofiled steps."""

    def make(*unprofiled, folder="set"):
        path = tmp_path / folder
        shutil.copytree(data_dir / "converter" / "interleaved_2", path)
        manifest = json.loads((path / "manifest.json").read_text())
        for entry, lengths in zip(manifest["ranks"], unprofiled, strict=True):
            steps = [{"index": n, "start_ns": 10**9, "end_ns": 10**9 + ns} for n, ns in enumerate(lengths)]
            entry["unprofiled_steps"] = steps
        (path / "manifest.json").write_text(json.dumps(manifest))
        return path

    return make


def host_times(workload):
    """Return the durations of host work, and of the remaining time."""
    nodes = [graph.node_columns for graph in workload.graphs]
    masks = [(columns["stream"] < 100) & (columns["type"] == NodeType.COMP) for columns in nodes]
    pairs = list(zip(nodes, masks, strict=True))
    return (
        np.concatenate([columns["duration_ns"][mask] for columns, mask in pairs]),
        np.concatenate([columns["duration_ns"][~mask] for columns, mask in pairs]),
    )


def test_the_median_steps_of_the_slowest_rank_are_compared_and_told(captured):
    workload = convert(captured([9_000_000] * 5, [13_000_000, 99_000_000, *[14_699_581] * 3]))
    overhead = profiler_overhead(workload.metadata)
    assert (overhead.captured_ns, overhead.unprofiled_ns) == (CAPTURED_NS, 14_699_581)
    assert (
        "captured steps take 1.9 times as long as unprofiled ones (27.9 ms against 14.7 ms)"
        in (workload.metadata["assumptions"][0])
    )


def test_the_doctor_warns_of_it(captured):
    (finding,) = (
        found for found in doctor(captured([10**7] * 5, [10**7] * 5)) if "unprofiled" in found.cause
    )
    assert finding.severity == "warning"
    assert finding.cause.startswith("Captured steps take 2.8 times as long as unprofiled ones")
    assert "--rescale-host" in finding.remedy


@pytest.mark.parametrize(
    "unprofiled", [([], []), ([10**7] * 5, [10**7] * 4), ([CAPTURED_NS] * 5, [CAPTURED_NS] * 5)]
)
def test_untimed_steps_yield_no_overhead(captured, unprofiled):
    folder = captured(*unprofiled)
    assert not any("unprofiled" in note for note in convert(folder).metadata["assumptions"])
    assert not any("unprofiled" in found.cause for found in doctor(folder))


def test_host_time_is_scaled_and_nothing_else(captured):
    folder = captured([CAPTURED_NS // 2] * 5, [CAPTURED_NS // 4] * 5)
    plain, scaled = convert(folder), convert(folder, rescale_host=True)
    (host, others), (scaled_host, scaled_others) = host_times(plain), host_times(scaled)
    assert host.sum() > 0
    assert np.abs(scaled_host - host / 2).max() <= 1
    assert (scaled_others == others).all()
    notes = scaled.metadata["assumptions"]
    assert notes[0].startswith("host time was scaled by 0.500, the same for every operator, because captured")
    assert [note for note in notes if "unprofiled" in note] == notes[:1]
    assert scaled.metadata["measured_step_ns"] == plain.metadata["measured_step_ns"]


def test_scaled_host_time_is_kept_with_the_workload(captured, tmp_path):
    convert(captured([10**7] * 5, [10**7] * 5), rescale_host=True).save(tmp_path / "w")
    overhead = profiler_overhead(Workload.load(tmp_path / "w").metadata)
    assert overhead.host_rescaled
    assert not overhead.matters


def test_host_time_is_unchanged_without_overhead(captured):
    folder = captured([10**9] * 5, [10**9] * 5)
    (host, _), (scaled, _) = host_times(convert(folder)), host_times(convert(folder, rescale_host=True))
    assert (host == scaled).all()


def test_an_older_capture_cannot_be_scaled_and_says_why(data_dir):
    with pytest.raises(UsageError, match="has too few unprofiled step times"):
        convert(data_dir / "converter" / "interleaved_2", rescale_host=True)


def test_scattered_steps_are_no_baseline(captured, tmp_path, capsys):
    """Every third step also saves: by the median alone, the profiler would take most of the step."""
    scattered = [13_100_000, 13_200_000, 177_600_000] * 4
    folder = captured(scattered, [10**7] * 5)
    assert not any("unprofiled" in note for note in convert(folder).metadata["assumptions"])
    assert not any("unprofiled" in found.cause for found in doctor(folder))
    with pytest.raises(UsageError, match=r"unprofiled steps vary .middle half: 13\.1 ms to 178"):
        convert(folder, rescale_host=True)
    study = Study.create(tmp_path / "study")
    shutil.copytree(folder, study.path / "traces" / "capture-1")
    assert command_line.run("convert", study.path) == 0
    assert command_line.run("run", study.path, "--network", "ring-2") == 0
    capsys.readouterr()
    assert command_line.run("summary", study.path) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Unprofiled steps vary" in shown
    assert "times as long" not in shown
    assert "rescale-host" not in shown


@pytest.mark.parametrize(
    "told", [None, 7, {}, {"captured_step_ns": 0, "unprofiled_step_ns": 0}, {"captured_step_ns": "x"}]
)
def test_edited_metadata_is_ignored(told):
    assert profiler_overhead({"profiler_overhead": told}) is None


def test_convert_and_summary_report_overhead_and_correction(captured, tmp_path, capsys):
    study = Study.create(tmp_path / "study")
    shutil.copytree(
        captured([CAPTURED_NS // 2] * 5, [CAPTURED_NS // 2] * 5), study.path / "traces" / "capture-1"
    )
    said = "Captured steps take 2.0 times as long as unprofiled ones (27.9 ms against 14.0 ms)"
    for options in ([], ["--rescale-host"]):
        assert command_line.run("convert", study.path, *options) == 0
        assert said.lower() in " ".join(capsys.readouterr().out.split()).lower()
        assert command_line.run("run", study.path, "--network", "ring-2") == 0
        capsys.readouterr()
        assert command_line.run("summary", study.path, "--run", study.runs()[-1].id) == 0
        shown = " ".join(capsys.readouterr().out.split())
        doubted = f"{said}: the profiler may be why the host bounds the captured step"
        assert (f"{said}; host times were corrected for the profiler." if options else doubted) in shown
        assert shown.index(said) > shown.index("The step takes")
        assert shown.lower().count(said.lower()) == 1
    run = analyse_run(study, study.runs()[-1].id)
    assert run.summary.to_json()["qualifiers"][0] == f"{said}; host times were corrected for the profiler."


def test_traces_of_other_tools_cannot_be_scaled(data_dir, tmp_path, capsys):
    trace = str(data_dir / "converter" / "linked" / "linked_0.json.gz")
    assert command_line.run("convert", "-o", tmp_path / "w", "--linked-trace", trace, "--rescale-host") == 2
    assert "timed without a profiler" in " ".join(capsys.readouterr().err.split())


# The profiler's overhead per event is measured against unprofiled steps, and removed from host time.


START, END = 100_000, 102_000  # microseconds
OPERATORS = 100


def converted(folder, plain, recorded, gaps=(10,)):
    """Convert a step of 100 operators of 10 us that used *recorded* us of a CPU.

    *plain* lists the CPU time of the unprofiled steps after it, and *gaps* the distances between operators,
    repeatedly.
    """
    thread, evidence = Thread(0), EvidenceFile()
    start = START + 5
    for number in range(OPERATORS):
        thread.op("aten::mm", start, start + 10, number + 1)
        start += 10 + gaps[number % len(gaps)]
    entry = thread.write(folder, [(START, END)]) | {"process_groups": []}
    entry["unprofiled_steps"] = [{"index": 1 + n, "start_ns": 0, "end_ns": 1_500_000} for n in range(8)]
    cpu, time = 0, START
    evidence.step(0, START)
    for index, used in enumerate([recorded, *plain], start=1):
        cpu, time = cpu + used, time + 2_000
        evidence.step(index, time, cpu=cpu, recorded=int(index == 1))
    evidence.write(folder / "rank0.evidence.json.gz")
    entry["evidence"] = "rank0.evidence.json.gz"
    write_trace_set(folder, [entry])
    return convert(folder, step=0)


def test_each_recorded_event_costs_the_host_its_part(tmp_path):
    workload = converted(tmp_path, [1_000] * 8, 1_400)
    nodes = workload.graphs[0].nodes
    gaps = nodes[nodes["kind"] == "host"]["duration_ns"]
    assert set(nodes[nodes["kind"] == "compute"]["duration_ns"]) == {10_000}
    assert set(gaps[1:-1]) == {6_000}  # half of the 4 us before an operator, and half after it
    overhead = profiler_overhead(workload.metadata)
    assert overhead.removed_ns == OPERATORS * 4_000
    assert not overhead.matters
    assert "400 µs, the cost of recording operators, is subtracted" in overhead.text


@pytest.mark.parametrize(
    ("plain", "recorded"),
    [
        ([1_000] * 4, 1_400),  # too few
        ([100, 3_000, 500, 2_000, 900, 2_500, 200, 1_500], 3_000),  # too different
        ([900, 1_100] * 4, 1_040),  # a difference that may be random
        ([1_000] * 8, 700),
    ],
)
def test_nothing_is_taken_out_without_a_steady_baseline(tmp_path, plain, recorded):
    workload = converted(tmp_path, plain, recorded)
    assert profiler_overhead(workload.metadata).removed_ns == 0
    assert workload.graphs[0].nodes["duration_ns"].sum() == (END - START) * 1_000


def test_steps_that_also_save_are_left_out_of_the_baseline(tmp_path):
    workload = converted(tmp_path, [1_000, 1_000, 9_000] * 4, 1_400)
    assert profiler_overhead(workload.metadata).removed_ns == OPERATORS * 4_000


def test_no_operator_gets_shorter_than_a_nanosecond_and_no_event_costs_beyond_reason(tmp_path):
    workload = converted(tmp_path, [1_000] * 8, 9_000)
    assert profiler_overhead(workload.metadata).removed_ns == OPERATORS * 10_000 - 1
    assert workload.graphs[0].nodes["duration_ns"].min() == 1


def test_cost_above_a_gap_is_subtracted_later(tmp_path):
    """Some events cost more than others, because PyTorch allocates in blocks: the sum is exact."""
    workload = converted(tmp_path, [1_000] * 8, 1_400, gaps=(1,) * 9 + (91,))
    assert profiler_overhead(workload.metadata).removed_ns == OPERATORS * 4_000
    assert workload.graphs[0].nodes["duration_ns"].min() == 1


@pytest.mark.parametrize(("kind", "left_ns"), [("host", 995_490), ("sync", 999_500)])
def test_a_wait_for_the_device_pays_for_no_other_event(kind, left_ns):
    """Ten events of 1 us with a period of 500 ns, then one of 1 ms."""
    built = GraphBuilder()
    for number in range(11):
        node = {"type": NodeType.COMP, "stream": 0, "kind": kind if number == 10 else "host"}
        node |= {"measured_start_ns": 500 * number, "duration_ns": 1_000_000 if number == 10 else 500}
        built.add(node, {})
    starts = 500 * np.arange(10)
    events = SimpleNamespace(start_ns=starts, end_ns=starts + 500)
    own = without_recording(
        RankGraph(built.graph(0)), {0: events}, Window(0, 1_005_000, ()), {0: np.full(10, 1_000.0)}
    )
    assert own.graph.nodes["duration_ns"].tolist() == [1] * 10 + [left_ns]


def test_each_phase_bears_the_cost_that_it_had(tmp_path):
    """Recording made 100 operators of the forward pass 1 ms longer, 100 of the backward pass 0.2 ms."""
    thread, evidence = Thread(0), EvidenceFile()
    for number in range(200):
        start = START + 20 * number
        if number >= 100:
            thread.op("autograd::engine::evaluate_function: MmBackward0", start, start + 15, number + 1)
        thread.op("aten::mm", start, start + 15, number + 1)
    entry = thread.write(tmp_path, [(START, START + 4_000)]) | {"process_groups": []}
    evidence.step(0, START)
    for index in range(1, 10):
        evidence.step(
            index, START + 4_000 * index, recorded=int(index == 1), cpu=1_200 + 2_800 * index,
            forward=1_000 + 1_000 * index, backward=200 + 1_800 * index,
        )  # fmt: skip
    evidence.write(tmp_path / "rank0.evidence.json.gz")
    write_trace_set(tmp_path, [entry | {"evidence": "rank0.evidence.json.gz"}])
    nodes = convert(tmp_path, step=0).graphs[0].nodes
    is_forward = nodes["measured_start_ns"] < 2_000_000
    taken = 2_000_000 - nodes["duration_ns"].groupby(is_forward).sum()
    assert taken[True] == pytest.approx(1_000_000, rel=0.02)
    assert taken[False] == pytest.approx(200_000, rel=0.05)


def test_a_cost_that_a_block_of_events_cannot_have_is_dropped(tmp_path):
    """Of 3,000 events that cost 1.5 us each, a later operator of 5 ms includes one block only."""
    thread, evidence = Thread(0), EvidenceFile()
    for number in range(3_000):
        thread.op("aten::add", START + number, START + number + 1, 1)
    thread.op("aten::mm", START + 3_000, START + 8_000, 2)
    entry = thread.write(tmp_path, [(START, START + 8_000)]) | {"process_groups": []}
    evidence.step(0, START)
    for index in range(1, 10):
        evidence.step(index, START + 8_000 * index, cpu=4_501 + 3_000 * index, recorded=int(index == 1))
    evidence.write(tmp_path / "rank0.evidence.json.gz")
    write_trace_set(tmp_path, [entry | {"evidence": "rank0.evidence.json.gz"}])
    nodes = convert(tmp_path, step=0).graphs[0].nodes
    product_ns = nodes.loc[nodes["name"] == "aten::mm", "duration_ns"].sum()
    assert product_ns == pytest.approx(5_000_000 - 512 * 1_500, rel=0.01)
