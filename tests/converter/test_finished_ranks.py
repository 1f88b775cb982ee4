"""A stopped conversion keeps its finished ranks, and resumes with the same result."""

import fcntl
import json
import os
import shutil
from pathlib import Path

import command_line
import pytest

from chakrascope.converter import Workload, convert, convert_files
from chakrascope.converter.building import _rank, _workers, finished_ranks
from chakrascope.errors import TraceError, TraceFormatError
from chakrascope.runner import Study

RANKS = 4


@pytest.fixture(autouse=True)
def always_worth_it(monkeypatch):
    monkeypatch.setattr(_workers, "_WORTH_KEEPING_BYTES", 1)


@pytest.fixture(scope="module")
def traces(device_traces):
    return device_traces(RANKS)


@pytest.fixture
def pattern(traces, tmp_path):
    """Copies of the traces, which tests change."""
    return str(shutil.copytree(traces, tmp_path / "traces") / "rank{rank}.json")


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def stopped_after(ranks):
    def stop(finished, _):
        if finished == ranks:
            raise KeyboardInterrupt

    return stop


@pytest.fixture(scope="module")
def memory(traces, tmp_path_factory):
    """A conversion that keeps its graphs in memory, saved as *job*."""
    prefix = tmp_path_factory.mktemp("expected") / "job"
    convert_files(None, str(traces / "rank{rank}.json")).save(prefix)
    return prefix


@pytest.fixture(scope="module")
def expected(memory):
    return files(memory.parent)


def test_conversion_resumes_after_finished_ranks(pattern, memory, expected, tmp_path, made):
    output = tmp_path / "out" / "job"
    with pytest.raises(KeyboardInterrupt):
        convert_files(None, pattern, output, progress=stopped_after(3))
    assert not output.parent.joinpath("job.0.et").exists()
    told = []
    workload = convert_files(None, pattern, output, progress=lambda finished, _: told.append(finished))
    assert made == [0, 1, 2, 3]
    assert told == [3, 4]
    assert files(output.parent) == expected
    assert workload == Workload.load(memory)
    assert not [path for path in output.parent.iterdir() if path.is_dir()]


@pytest.fixture
def read(monkeypatch):
    """The device traces that were read, in order."""
    names, read_trace = [], _rank.read_device_trace

    def noted(path, **options):
        names.append(path.name)
        return read_trace(path, **options)

    monkeypatch.setattr(_rank, "read_device_trace", noted)
    return names


def test_large_traces_are_read_once_and_finished_ones_not_again(pattern, expected, tmp_path, read):
    output = tmp_path / "out" / "job"
    with pytest.raises(KeyboardInterrupt):
        convert_files(None, pattern, output, step="all", progress=stopped_after(3))
    assert read == ["rank0.json", *(f"rank{rank}.json" for rank in range(3))]  # of the first rank
    read.clear()
    convert_files(None, pattern, output, step="all")
    assert read == ["rank3.json"]
    assert files(output.parent).keys() == expected.keys()


def steps_of_rank(pattern, rank, marks):
    """Mark the steps of a rank's trace: number -> the fractions of it at which the step begins and ends."""
    path = Path(pattern.format(rank=rank))
    trace = json.loads(path.read_text())
    events = [
        event for event in trace["traceEvents"] if not event.get("name", "").startswith("ProfilerStep#")
    ]
    timed = [event for event in events if event.get("ph") == "X"]
    first = min(event["ts"] for event in timed)
    length = max(event["ts"] + event["dur"] for event in timed) - first
    of = next(event for event in timed if event["cat"] == "cpu_op")
    trace["traceEvents"] = events + [
        {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": of["pid"],
         "tid": of["tid"], "ts": first + begin * length, "dur": (end - begin) * length, "args": {}}
        for number, (begin, end) in marks.items()
    ]  # fmt: skip
    path.write_text(json.dumps(trace))


@pytest.mark.parametrize(("step", "odd"), [("all", 0), ("median", 2)])
def test_steps_undetermined_by_the_first_rank(pattern, tmp_path, step, odd, made):
    for rank in range(RANKS):
        marks = {7: (0.0, 0.4), 8: (0.4, 1.0)} if rank != odd else {8: (0.0, 1.0)}
        steps_of_rank(pattern, rank, marks)
    convert_files(None, pattern, step=step).save(tmp_path / "memory" / "job")
    made.clear()
    workload = convert_files(None, pattern, tmp_path / "disk" / "job", step=step)
    assert workload.metadata["steps"] == [8]
    assert set(made) == {*range(RANKS)}
    assert len(made) <= 2 * RANKS
    assert files(tmp_path / "disk") == files(tmp_path / "memory")


def test_a_rank_whose_file_is_cut_off_is_named(pattern, tmp_path):
    path = Path(pattern.format(rank=2))
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(TraceFormatError, match=r"rank2\.json"):
        convert_files(None, pattern, tmp_path / "out" / "job")


def test_a_trace_of_another_rank_is_refused_before_the_others_are_converted(pattern, tmp_path, made):
    for rank in range(1, RANKS):
        shutil.copy(pattern.format(rank=0), pattern.format(rank=rank))
    with pytest.raises(TraceError):
        convert_files(None, pattern, tmp_path / "out" / "job", step="all")
    assert made == [0, 1]


def test_changed_or_damaged_rank_is_converted_again(pattern, expected, tmp_path, made):
    output = tmp_path / "out" / "job"
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            convert_files(None, pattern, output, progress=stopped_after(RANKS))
    kept = output.parent / ".job.converting"
    made.clear()
    os.utime(pattern.format(rank=1), ns=(1, 1))
    damaged = kept / "rank2.nodes.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-1000])
    with pytest.raises(KeyboardInterrupt):
        convert_files(None, pattern, output, progress=stopped_after(RANKS))
    assert made == [1, 2]
    made.clear()
    convert_files(None, pattern, output, step="all")
    assert made == [*range(RANKS)]
    assert files(output.parent).keys() == expected.keys()


def test_a_damaged_file_costs_no_other_rank(pattern, expected, tmp_path, made, capsys):
    path = tmp_path / "traces" / "rank2.json"
    whole, times = path.read_bytes(), path.stat()
    study = tmp_path / "study"
    command = ["convert", str(study), "--device-trace", pattern, "--workers", "1"]
    convert_rank = _workers.rank_graph

    def damaged(opened, *others):
        if opened.traces.rank == 2:
            raise TraceFormatError(f"{path} is damaged")
        return convert_rank(opened, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_workers, "rank_graph", damaged)
        command_line.run(*command)
    said = " ".join(capsys.readouterr().err.split())
    assert "2 converted ranks stored in" in said
    path.write_bytes(whole + b"\n")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 1))
    made.clear()
    assert command_line.run(*command) == 0
    assert made == [2, 3]
    assert files(Study.open(study).workload_prefix().parent).keys() == {
        "SHA256SUMS",
        *(name.replace("job", "workload") for name in expected),
    }
    assert not [path for path in tmp_path.iterdir() if "converting" in path.name]


@pytest.mark.parametrize("name", ["experts_2", "fsdp2_2", "interleaved_2"])
def test_captures_come_out_the_same_with_host_time_scaled(name, data_dir, tmp_path):
    captured = shutil.copytree(data_dir / "converter" / name, tmp_path / name)
    manifest = json.loads((captured / "manifest.json").read_text())
    for entry in manifest["ranks"]:
        entry["unprofiled_steps"] = [{"index": 0, "start_ns": 0, "end_ns": 1_000_000}] * 5
    (captured / "manifest.json").write_text(json.dumps(manifest))
    convert(captured, rescale_host=True).save(tmp_path / "memory" / "job")
    with finished_ranks(tmp_path / "target") as finished:
        workload = convert(captured, rescale_host=True, finished=finished)
        assert finished.count == 2
        workload.save(tmp_path / "disk" / "job")
    assert files(tmp_path / "disk") == files(tmp_path / "memory")


def test_while_another_process_converts_to_the_same_place_nothing_is_kept(pattern, expected, tmp_path):
    output = tmp_path / "out" / "job"
    folder = output.parent / ".job.converting"
    folder.mkdir(parents=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        convert_files(None, pattern, output)
    assert [path.name for path in folder.iterdir()] == ["lock"]
    assert files(output.parent) == expected


def test_a_workload_that_cannot_be_saved_whole_leaves_no_file(pattern, tmp_path, monkeypatch):
    workload = convert_files(None, pattern)
    workload.save(tmp_path / "out" / "job")
    module = Workload.save.__globals__
    write = module["_write_graph"]

    def fails(graph, path, others, **options):
        if graph.rank == 0:
            raise OSError("No space left on device")
        return write(graph, path, others, **options)

    monkeypatch.setitem(module, "_write_graph", fails)
    with pytest.raises(OSError, match="No space"):
        workload.save(tmp_path / "out" / "job")
    assert files(tmp_path / "out") == {}
