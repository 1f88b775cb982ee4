"""Studies as folders: their parts and tables, moved studies, and studies of version 0.1.0."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tarfile
from dataclasses import replace
from pathlib import Path

import command_line
import pytest
from processes import wait_for
from studies import make_study, run_in
from workloads import coll, comp, workload

from chakrascope.converter import convert
from chakrascope.errors import StudyError
from chakrascope.runner import (
    ImportItem,
    JobStore,
    NetworkConfig,
    Study,
    check_study,
    compare,
    critical_path,
    get_backend,
    prepare,
    read_sweep,
    run_sweep,
    sweep_names,
)
from chakrascope.runner.study import compared, item_table, proposed_name, run_table


def job():
    return workload(*[[comp(0, 500), coll(1, 1 << 20, (0,))] for _ in range(2)])


def test_names_list_existing_items(tmp_path):
    study = Study.create(tmp_path / "study")
    study.add_workload(job(), "job")
    (study.new_trace_dir("captured") / "manifest.json").write_text("{}")
    study.new_trace_dir("unfinished")
    assert study.taken_names() == {"job", "captured", "unfinished"}
    assert study.unfinished_trace_dirs() == [study.trace_dir("unfinished")]
    assert study.trace_set_dirs() == [study.latest_trace_set()]
    assert study.graph_prefixes() == [study.workload_prefix("job")]
    before = study.last_change()
    os.utime(study.workloads_dir, (before + 5, before + 5))
    assert study.last_change() == before + 5


def test_a_study_is_looked_over_whole(tmp_path, data_dir):
    study = Study.create(tmp_path / "study")
    (finding,) = check_study(study)
    assert (finding.severity, "no trace set" in finding.cause) == ("warning", True)
    study.new_trace_dir("unfinished")
    shutil.copytree(data_dir / "converter" / "ring_2", study.trace_dir("one"))
    study.add_workload(job(), "job")
    first = study.graph_prefixes()[0].with_name("workload.0.et")
    assert [finding.place for finding in check_study(study)] == [str(study.trace_dir("unfinished"))]
    first.write_bytes(b"no graph")
    worst, other = check_study(study)
    assert (worst.severity, other.severity) == ("error", "warning")
    assert str(first) in worst.place or str(first) in worst.cause


def test_the_default_run_is_the_capture(tmp_path, data_dir, capsys):
    study = Study.create(tmp_path / "study")
    captured = convert(data_dir / "converter" / "ring_2")
    unmeasured = {key: value for key, value in captured.metadata.items() if key != "accounting"}
    simulated = [run_in(study, captured, "ring-2", workload="capture-1")]
    rescaled = replace(captured, metadata=unmeasured, graphs=captured.graphs[::-1])
    simulated.append(run_in(study, rescaled, "ring-2", workload="rescaled"))
    assert study.measured_workload() == "capture-1"
    assert study.default_run().id == simulated[-1]  # no replay yet
    assert command_line.run("summary", str(study.path)) == 0
    assert (
        "capture-1, 2 ranks, as measured (the newest of 3 runs; --run chooses another)"
        in capsys.readouterr().out
    )
    default = study.default_run()
    assert default.id not in simulated
    simulated.append(run_in(study, rescaled, workload="rescaled"))
    assert command_line.run("critical-path", str(study.path)) == 0
    assert "capture-1, 2 ranks, as measured (one of 4 runs; --run chooses another)" in capsys.readouterr().out
    assert study.run_info() == default == study.default_run()
    assert command_line.run("runs", str(study.path)) == 0
    assert f"use run {default.id[:8]}, the replay" in capsys.readouterr().out


@pytest.mark.parametrize("changes", [{"accounting": {}}, {"scaled_from_ranks": 1}])
def test_untimed_logs_and_more_ranks_than_captured_are_no_capture(tmp_path, data_dir, changes):
    study = Study.create(tmp_path / "study")
    captured = convert(data_dir / "converter" / "ring_2")
    study.add_workload(captured, "capture-1")
    changed = replace(captured, metadata=captured.metadata | changes, graphs=captured.graphs[::-1])
    study.add_workload(changed, "changed")
    assert study.measured_workload() == "capture-1"


def test_of_a_study_the_newest_capture_is_collected(tmp_path, data_dir):
    study = Study.create(tmp_path / "study")
    shutil.copytree(data_dir / "converter" / "ring_2", study.trace_dir("z"))
    manifest = study.trace_dir("z") / "manifest.json"
    whole = {"command": [], "reasons": [], "notes": [], "options": {}, "exit_code": 0} | json.loads(
        manifest.read_text()
    )
    manifest.write_text(json.dumps(whole))
    old = study.new_trace_dir("old") / "manifest.json"
    old.write_text("{}")
    os.utime(old, (1, 1))
    assert command_line.run("trace", "--output", str(tmp_path / "all"), "--collect", str(study.path)) == 0
    (collected,) = Study.open(tmp_path / "all").trace_set_dirs()
    assert {file.name for file in study.trace_dir("z").iterdir()} == {
        file.name for file in collected.iterdir()
    }


# A study that is moved, renamed or copied keeps working, with any content.

OVER = {"network.latency": [1, 2, 3]}


def experiment(study, latency, system="default"):
    network = NetworkConfig(("Ring",), (2,), (50.0,), (float(latency),))
    return prepare(study.workload_prefix(), system, network)


def until(store, done, resume=False):
    def look():
        # A process may detect only after a while that its study was moved.
        if resume:
            store.resume()
        return done(store.jobs())

    wait_for(look)
    return store.jobs()


@pytest.fixture(scope="module")
def used(tmp_path_factory):
    """A used study: runs, notes, a sweep, jobs that are finished, waiting, and interrupted."""
    home = tmp_path_factory.mktemp("home-of-the-study")
    study = Study.create(home / "study")
    ranks = [[comp(0, 500), coll(1, 1 << 20, (0,)), comp(2, 20, (1,))]] * 2
    program = workload(*ranks, metadata={"measured_step_ns": {"0": 1}})
    (home / "mine.yml").write_text("topology: [Ring]\nnpus_count: [2]\nbandwidth: [5]\nlatency: [9]\n")
    for network in (str(home / "mine.yml"), "ring-2"):
        run = run_in(study, program, network)
        study.annotate(run, label="mine", note="kept", tags=["a"])
    run_sweep(study, OVER, network=str(home / "mine.yml"), workers=1, keep=1)
    store = JobStore(study)
    store.submit(experiment(study, 100))
    until(store, lambda jobs: jobs[0].state == "done")
    cut_off = JobStore(study, slots=1, launch=lambda *_: 0)
    cut_off.submit(experiment(study, 101))
    cut_off.submit(experiment(study, 102))
    return study


def texts_with(folder: Path, words: bytes) -> list[str]:
    return [
        str(file.relative_to(folder))
        for file in folder.rglob("*")
        if file.is_file() and words in file.read_bytes()
    ]


def test_study_files_contain_no_absolute_path(used):
    assert texts_with(used.path, str(used.path.parent).encode()) == []


def test_moved_study_continues(used, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(used.path, copy)
    study = Study.open(copy.rename(tmp_path / "a name with blanks, ünïcode"))
    check_runs(study, used)
    assert sweep_names(study) == sweep_names(used)
    assert read_sweep(study, sweep_names(study)[0]).points["state"].tolist() == ["done"] * 3
    store = JobStore(study)
    assert [job.state for job in store.jobs()] == ["done", "running", "queued"]
    store.resume()
    jobs = until(store, lambda jobs: all(not job.is_active for job in jobs))
    assert [job.state for job in jobs] == ["done"] * 3
    assert {job.experiment for job in jobs} <= {info.id for info in study.runs()}
    assert not (used.path / "runs" / jobs[-1].experiment).exists()


def check_runs(study, original):
    assert [info.id for info in study.runs()] == [info.id for info in original.runs()]
    for info in study.runs():
        again = study.experiment(info.id)
        assert again.content_hash == info.id
        assert get_backend(again.backend).run(again).makespan_ns == info.makespan_ns
        assert (
            critical_path(study.result(info.id), study.run_workload(info.id)).makespan_ns == info.makespan_ns
        )
    results = [study.result(info.id) for info in study.runs()]
    assert len(compare(results, study.workload()).overview) == len(results)


def test_moving_a_study_during_a_job_is_harmless(used, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(used.path, copy)
    slow = workload(*[[comp(0, 5), *[coll(n, 1 << 20, (n - 1,)) for n in range(1, 800)]]] * 2)
    study = Study.open(copy)
    study.add_workload(slow, "slow")
    store = JobStore(study, slots=4)
    asked = prepare(study.workload_prefix("slow"), "default", "ring-2", backend="analytical-aware")
    job = store.submit(asked, workload="slow")
    until(store, lambda jobs: jobs[-1].pid > 1 or not jobs[-1].is_active)
    moved = Study.open(copy.rename(tmp_path / "moved"))
    store = JobStore(moved, slots=4)
    pid = store.job(job.id).pid
    if store.job(job.id).is_active and pid > 1:
        os.killpg(pid, signal.SIGKILL)
    until(store, lambda jobs: all(not job.is_active for job in jobs), resume=True)
    assert store.job(job.id).state == "done"
    assert moved.result(asked.content_hash).makespan_ns > 0
    assert not list((moved.path / "runs").glob(".*"))


# A study of version 0.1.0 opens, and gives the same results.

MAKESPANS = {
    "6125dec0ca488110": 6_737_297,
    "7d518adac65b8669": 6_926_512,
    "8132f9d470eefffe": 6_266_163,
    "53a22d65de53dfef": 6_267_002,
    "ce538d76edbca7ba": 6_160_088,
    "dd5353830f5ba8b8": 6_206_351,
}
PACKETS = "53a22d65de53dfef"  # of the backend that was then called ns3


@pytest.fixture
def study(data_dir, tmp_path):
    """Unpack the study."""
    with tarfile.open(data_dir / "runner" / "study-of-0.1.0.tgz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # 3.11.4 and later
        archive.extractall(tmp_path)
    return Study.open(tmp_path / "study-of-0.1.0")


def test_every_run_is_there_with_its_critical_path(study):
    assert {info.id: info.makespan_ns for info in study.runs()} == MAKESPANS
    for run, makespan_ns in MAKESPANS.items():
        path = critical_path(study.result(run), study.run_workload(run))
        assert path.segments["duration_ns"].sum() == makespan_ns


@pytest.mark.parametrize("run", MAKESPANS)
def test_every_run_simulated_again_takes_as_long(study, run):
    """It is a different run: since 0.3, programs have separate kinds for host work and idle time."""
    experiment = study.experiment(run)
    result = get_backend(experiment.backend).run(experiment)
    assert result.makespan_ns == MAKESPANS[run]
    if run != PACKETS:
        assert study.add_run(experiment, result) != run
        assert study.result(run).makespan_ns == MAKESPANS[run]


def test_what_was_called_ns3_is_packet_today(study):
    info = study.run_info(PACKETS)
    assert (info.backend, info.label, info.tags) == ("packet", "packets", ("kept",))
    assert info.note == "as 0.1.0 wrote it"
    assert study.result(PACKETS).backend == "packet"


def test_a_run_of_another_model_with_the_same_name_is_another_run(study):
    tcp = replace(study.experiment(PACKETS), backend="ns3")
    assert not study.has_run(tcp)
    kept = study.add_run(tcp, replace(study.result(PACKETS), backend="ns3", makespan_ns=1))
    assert (study.run_info(kept).backend, study.run_info(kept).makespan_ns) == ("ns3", 1)


def test_another_answer_to_the_same_experiment_is_refused(study):
    experiment = study.experiment("dd5353830f5ba8b8")
    result = study.result("dd5353830f5ba8b8")
    run = study.add_run(experiment, result)
    other = replace(result, makespan_ns=6_206_352)
    with pytest.raises(StudyError, match=f"took 6,206,351 ns, and .* takes 6,206,352 ns: .*--delete {run}"):
        study.add_run(experiment, other)
    assert study.run_info(run).makespan_ns == 6_206_351


def test_the_answer_of_another_backend_is_refused(study):
    experiment = replace(study.experiment(PACKETS), backend="flow")
    with pytest.raises(
        StudyError, match=r"comes from 'packet', but the experiment is for 'flow'.*backend='packet'"
    ):
        study.add_run(experiment, study.result(PACKETS))
    assert {info.id for info in study.runs()} == set(MAKESPANS)


def test_its_sweep_is_listed_and_its_kept_point_is_known(study):
    (name,) = sweep_names(study)
    table = read_sweep(study, name).points
    assert sorted(table["makespan_ns"]) == [6_160_088, 6_214_940]
    again = run_sweep(study, {"network.bandwidth": [10]}, network="cpu-cluster-2", workers=0)
    assert (again.simulated, again.reused) == (0, 1)


def test_its_traces_convert_to_the_graphs_it_has(study):
    (trace_set,) = study.trace_set_dirs()
    experiment = prepare(convert(trace_set), "default", "cpu-cluster-2", semantics="trace")
    # 2 ns less than in 0.1, which read decimal times as doubles.
    assert get_backend("analytical-unaware").run(experiment).makespan_ns == 6_206_349


# The runs and the imports of a study as tables.


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("tables") / "study")


def test_table_lists_the_newest_first(made):
    table = run_table(made.study.runs())
    assert table["id"].tolist() == [made.run_b, made.run_a]
    assert table["label"].tolist() == ["run-b", "run-a"]
    assert run_table([]).columns.tolist() == table.columns.tolist()


def test_measurement_is_the_base_of_a_comparison(made):
    assert compared(made.study.runs(), [made.run_b, made.run_a]) == (made.run_a, [made.run_b])
    assert compared(made.study.runs(), [made.run_b]) == (made.run_b, [])


def test_repeated_run_is_unchanged_and_newest(tmp_path):
    made = make_study(tmp_path / "study")
    study, before = made.study, made.study.run_info(made.run_a)
    assert study.run_info().id == made.run_b
    again = study.add_run(study.experiment(made.run_a), study.result(made.run_a))
    assert again == made.run_a
    assert study.run_info() == before
    assert [info.id for info in study.runs()] == [made.run_b, made.run_a]
    study.delete_run(made.run_a)
    assert study.run_info().id == made.run_b


@pytest.mark.parametrize(
    ("kind", "place", "name"),
    [
        ("trace set", "runs/llama 7b", "llama 7b"),
        ("traces", "dlrm/kineto_{rank}.json.gz", "dlrm"),
        ("traces", "kineto_{rank}.json.gz", "kineto"),
        ("graphs", "a/<b>", "b"),
        ("trace set", ".", "imported"),
        ("graphs", "x" * 300, "x" * 80),
    ],
)
def test_name_is_proposed_from_the_place(kind, place, name):
    assert proposed_name(ImportItem("1", kind, place, 2, ("a",), 1)) == name


def test_table_counts_the_files_of_both_sides():
    item = ImportItem("1", "traces", "p", 2, ("a", "b"), 7, ("c", "d"))
    assert item_table([item])["files"].tolist() == [4]
    assert item_table([]).empty
