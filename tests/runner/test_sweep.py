"""Sweeps: the settings of points, points simulated only once, and failures as rows."""

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
from itertools import product

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import wait_for
from workloads import coll, comp, workload

from chakrascope.errors import BackendError, ConfigError, StudyError
from chakrascope.runner import (
    Detail,
    NetworkConfig,
    Study,
    get_backend,
    read_sweep,
    run_sweep,
    simulate,
    sweep_names,
)
from chakrascope.runner.sweep import PointTable, SweepInterrupted, grid, multiply, parse_axis, read_points
from chakrascope.runner.sweep._settings import Base, Builder


def small_workload(ranks=4):
    program = [comp(0, 500), coll(1, 1 << 22, after=[0]), comp(2, 200, after=[1])]
    return workload(*[program] * ranks)


@pytest.fixture(scope="module")
def shared_study(tmp_path_factory):
    study = Study.create(tmp_path_factory.mktemp("sweep") / "study")
    study.add_workload(small_workload(), "job")
    return study


@pytest.fixture
def study(tmp_path):
    study = Study.create(tmp_path / "study")
    study.add_workload(small_workload(), "job")
    return study


def two_dimensions():
    return NetworkConfig(("Ring", "Switch"), (2, 2), (50.0, 25.0), (500.0, 1000.0), name="small")


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("network.bandwidth=25,50.5", "network.bandwidth", [25, 50.5]),
        (
            "system.all-reduce-implementation=ring, direct",
            "system.all-reduce-implementation",
            ["ring", "direct"],
        ),
        ("network.bandwidth=[25,50],[1e2,100]", "network.bandwidth", [[25, 50], [100.0, 100]]),
        ("network.topology=[Ring,Switch],Ring", "network.topology", [["Ring", "Switch"], "Ring"]),
        ("rendezvous=true,false", "rendezvous", [True, False]),
        ("network.bandwidth=25,10GB/s", "network.bandwidth", [25, 10e9 / 2**30]),
        ("network.bandwidth[1]=80Gb/s,1GiB/s", "network.bandwidth[1]", [10e9 / 2**30, 1]),
        ("network.latency=500ns,1.5us,[1us,2ms]", "network.latency", [500, 1500, [1000, 2_000_000]]),
        ("system.local-mem-bw=1.6TB/s", "system.local-mem-bw", [1600]),
        ("system.peak-perf=1.2PFLOP/s", "system.peak-perf", [1200]),
    ],
)
def test_axes_are_read_as_typed(text, key, values):
    assert parse_axis(text) == (key, values)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["network.bandwidth", "=1", "network.bandwidth="], "not an axis"),
        (["network.bandwidth=[1,2", "a=1]"], "brackets"),
        (["network.bandwidth=10GX/s", "network.latency=-5us", "network.latency=soon"], "is not a"),
    ],
)
def test_an_axis_that_cannot_be_read_is_named(texts, message):
    for text in texts:
        with pytest.raises(ConfigError, match=message):
            parse_axis(text)


numbers = st.one_of(
    st.integers(-(10**9), 10**9), st.floats(allow_nan=False, allow_infinity=False), st.booleans()
)
words = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,10}", fullmatch=True).filter(
    lambda word: word not in ("true", "false", "null", "NaN", "Infinity")
)


@given(st.lists(st.one_of(numbers, words, st.lists(st.one_of(numbers, words), min_size=1)), min_size=1))
def test_axes_round_trip(values):
    def typed(value):
        if isinstance(value, list):
            return f"[{','.join(map(typed, value))}]"
        return value if isinstance(value, str) else json.dumps(value)

    assert parse_axis(f"key={','.join(map(typed, values))}") == ("key", values)


@given(st.dictionaries(words, st.lists(numbers, min_size=1, max_size=4), max_size=4))
def test_a_grid_holds_every_combination_once(axes):
    points = grid(axes)
    assert [tuple(point.values()) for point in points] == list(product(*axes.values()))
    assert multiply(points, [{}]) == points


def test_lists_of_points_are_checked_line_by_line(tmp_path):
    file = tmp_path / "points.jsonl"
    file.write_text('{"network.bandwidth": 50}\n\n{"network": "ring-2", "rendezvous": true}\n')
    assert read_points(file) == [{"network.bandwidth": 50}, {"network": "ring-2", "rendezvous": True}]
    for wrong, hint in (
        ('{"backend": "flow"}\n{"a":', "line 2"),
        ('{"backend": "flow"}\n{"backends": "flow"}', "line 2: A sweep cannot change 'backends'"),
        ('{"network": "\\ud800"}', "line 1.* half of a surrogate pair"),
        ("[1]", "line 1"),
        ("\n", "empty"),
        ("{}", "line 1"),
        ("[" * 100_000, "line 1"),
    ):
        file.write_text(wrong)
        with pytest.raises(ConfigError, match=hint):
            read_points(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_points(tmp_path / "absent")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not text in UTF-8"):
        read_points(file)


def test_settings_change_single_fields(shared_study):
    builder = Builder(shared_study, Base(network=two_dimensions()))
    experiment = builder.experiment(
        {
            "network.bandwidth[1]": 99,
            "network.latency": 7,
            "network.packet.CC_MODE": 12,
            "system.all-reduce-implementation": "direct",
            "system.all_gather_implementation": "oneRing",
            "system.all-to-all-implementation[0]": "ring",
            "system.endpoint-delay": 3,
            "memory.remote-mem-bw": 5,
            "num-queues-per-dim": 2,
            "injection-scale": 2,
            "semantics": "trace",
        }
    )
    assert experiment.network.bandwidth == (50, 99)
    assert experiment.network.latency == (7, 7)
    assert experiment.network.packet.settings == {"CC_MODE": 12}
    assert experiment.network.name == "small"
    assert experiment.system.all_reduce_implementation == ("direct", "direct")
    assert experiment.system.all_gather_implementation == ("oneRing",)
    assert experiment.system.all_to_all_implementation == ("ring", "direct")
    assert experiment.system.endpoint_delay == 3
    assert experiment.memory.remote_mem_bw == 5
    assert experiment.options() == {
        "num_queues_per_dim": 2,
        "injection_scale": 2.0,
        "rendezvous": False,
        "semantics": "trace",
    }


def test_whole_files_and_workloads_are_settings_too(shared_study):
    builder = Builder(shared_study, Base())
    experiment = builder.experiment({"network": "ring-2", "system": "direct", "network.npus_count": 4})
    assert experiment.network.npus_count == (4,)
    assert experiment.system.all_reduce_implementation == ("direct",)
    lists = {"network.topology": ["Ring", "Ring"], "network.npus_count": 2, "network.latency": 1}
    changed = builder.experiment({"network": "ring-2", "network.bandwidth": 9, **lists}).network
    assert (changed.topology, changed.npus_count, changed.bandwidth) == (("Ring", "Ring"), (2, 2), (9, 9))


def test_a_number_beyond_64_bits_is_a_failed_point(shared_study):
    axes = {"network.bandwidth": [10**30]}
    found = run_sweep(shared_study, axes, network="ring-2", workers=0)
    assert list(found.points["state"]) == ["failed"]
    assert list(found.points["network.bandwidth"]) == [str(10**30)]


def test_a_point_is_the_same_experiment_as_a_run(shared_study):
    found = run_sweep(shared_study, {"network": ["ring-2"], "network.npus_count": [4]}, workers=0)
    network = NetworkConfig.preset("ring-2").to_dict() | {"npus_count": [4]}
    same = NetworkConfig.from_mapping(network, "here", "ring-2")
    result = simulate(shared_study.workload_prefix(), "default", same)
    assert found.points["makespan_ns"].tolist() == [result.makespan_ns]
    assert found.points["id"].tolist() == [result.provenance["experiment_hash"]]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("network.bandwith", "network.bandwidth"),
        ("netwrk", "network"),
        ("system.all-reduce", "system.all-reduce-implementation"),
        ("system.endpoint-delay[0]", "without an index"),
        ("network.bandwidth[x]", "network.bandwidth"),
        ("memory.bw", "memory.remote-mem-bw"),
        ("other.thing", "Allowed"),
    ],
)
def test_unknown_key_stops_the_sweep_immediately(shared_study, key, hint):
    with pytest.raises(ConfigError, match=hint.replace("[", r"\[")):
        run_sweep(shared_study, {key: [1, 2]}, network="ring-2", workers=0)


def test_mistakes_of_every_point_stop_the_sweep_at_once(shared_study):
    with pytest.raises(ConfigError, match="no network"):
        run_sweep(shared_study, {"network.bandwidth": [1]}, workers=0)
    with pytest.raises(ConfigError, match="no value"):
        run_sweep(shared_study, {"network": []}, workers=0)
    with pytest.raises(ConfigError, match="no backend"):
        run_sweep(shared_study, {"network": ["ring-2"]}, backend="fak", workers=0)
    with pytest.raises(StudyError, match="name a sweep"):
        run_sweep(shared_study, {"network": ["ring-2"]}, name="../x", workers=0)


def run_grid(study, **changes):
    axes = {"network.bandwidth": [25, 50, 100], "system.all-reduce-implementation": ["ring", "direct"]}
    return run_sweep(study, axes, network=two_dimensions(), **{"workers": 0, **changes})


def test_the_table_is_complete_and_the_best_point_first(study):
    found = run_grid(study, keep=2)
    assert len(found.points) == 6
    assert found.points["makespan_ns"].is_monotonic_increasing
    assert found.points["network.bandwidth"].tolist()[0] == 100
    assert (found.simulated, found.reused, found.failed) == (6, 0, 0)
    stored = read_sweep(study, found.name)
    pd.testing.assert_frame_equal(stored.points, found.points)
    assert [info.id for info in study.runs()] == found.points["id"].tolist()[:2] == list(found.kept)
    assert {path.name for path in found.path.parent.iterdir()} == {
        "points.parquet",
        "lock",
        "start.json",
        "SHA256SUMS",
    }
    with pytest.raises(StudyError, match=found.name):
        read_sweep(study, "other")


def test_a_sweep_is_resumed_and_never_repeats(study, monkeypatch):
    asked = []
    backend = get_backend("analytical-unaware")
    run = backend.run
    monkeypatch.setattr(
        type(backend),
        "run",
        lambda _, experiment, progress=None: _counted(run, experiment, progress, asked),
    )
    with pytest.raises(KeyboardInterrupt):
        run_grid(study, progress=_stop_after(3))
    name = sweep_names(study)[0]
    assert len(read_sweep(study, name).points) == 3
    found = run_grid(study)
    assert (found.name, found.simulated, found.reused) == (name, 3, 3)
    assert (run_grid(study).simulated, len(asked), len(set(asked))) == (0, 6, 6)


def _counted(run, experiment, progress, asked):
    if experiment.detail is Detail.TOTALS:  # and not the best points, which the study stores completely
        asked.append(experiment.content_hash)
    return run(experiment, progress)


def _stop_after(count):
    def progress(finished, points, failed):
        if finished == count:
            raise KeyboardInterrupt

    return progress


def test_equal_experiments_are_simulated_once_and_runs_are_reused(study):
    points = [{"network": "ring-2"}, {"network": "ring-2", "network.npus_count": 2}, {"network": "ring-2"}]
    study.add_workload(small_workload(2), "job")
    found = run_sweep(study, points, workers=0, keep=1)
    assert (len(found.points), found.simulated, found.points["id"].nunique()) == (2, 1, 1)
    again = run_sweep(study, points, workers=0, name="again")
    assert (again.simulated, again.reused) == (0, 2)
    figures = ["makespan_ns", "exposed_comm_ns", "compute_ns", "comm_ns", "overlap_ns"]
    pd.testing.assert_frame_equal(found.points[figures], again.points[figures])


def test_a_changed_workload_is_simulated_again(study):
    first = run_grid(study, name="mine")
    study.add_workload(workload(*[[comp(0, 900)]] * 4), "job", replace_other=True)
    second = run_grid(study, name="mine")
    assert second.simulated == 6
    assert set(first.points["id"]).isdisjoint(second.points["id"])


def test_one_table_holds_points_of_one_base(study):
    run_sweep(study, {"network.latency": [1, 2]}, network=two_dimensions(), name="mine", workers=0)
    with pytest.raises(StudyError, match="has points of another network"):
        run_sweep(study, {"network.latency": [3]}, network="ring-2", name="mine", workers=0)
    study.add_workload(workload(*[[comp(0, 900)]] * 4), "other")
    with pytest.raises(StudyError, match=r"of another workload, .* choose another --name"):
        run_sweep(study, {"network.latency": [3]}, network=two_dimensions(), name="mine", workers=0)
    more = run_sweep(
        study, {"network.latency": [3]}, network=two_dimensions(), name="mine", workers=0, workload="job"
    )
    assert len(read_sweep(study, "mine").points) == 3
    assert (more.path.parent / "SHA256SUMS").is_file()


def test_a_base_without_points_is_replaced(study):
    found = run_grid(study, name="mine")
    found.path.unlink()
    (found.path.parent / "SHA256SUMS").unlink()
    again = run_sweep(study, {"network.latency": [3]}, network="ring-2", name="mine", workers=0)
    assert len(again.points) == 1


def stop(folder, *files):
    def interrupt():
        for file, content in files:
            (folder / file).write_text(content)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), PointTable(folder):
        interrupt()


def test_a_sweep_that_stops_before_its_first_point_leaves_a_folder_only_with_a_log(tmp_path):
    stop(tmp_path / "mine", ("start.json", "{}"), ("log.txt", ""))
    assert not (tmp_path / "mine").exists()
    stop(tmp_path / "mine", ("start.json", "{}"), ("log.txt", "Killed"))
    assert (tmp_path / "mine" / "log.txt").is_file()


def test_a_sweep_that_stops_keeps_a_folder_that_it_did_not_make(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "start.json").write_text("{}")
    stop(tmp_path / "mine")
    assert (tmp_path / "mine" / "start.json").is_file()


def test_an_unused_folder_that_cannot_be_removed_hides_no_error(tmp_path, monkeypatch):
    def refuse(*_arguments, **_options):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    def interrupt():
        monkeypatch.setattr(os, "unlink", refuse)
        monkeypatch.setattr(os, "rmdir", refuse)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), PointTable(tmp_path / "mine"):
        interrupt()


def test_a_failed_point_is_a_row_and_tried_again(study):
    axes = {"network.bandwidth": [50, -1, "fast"], "network.npus_count": [2, [2, 2, 2]]}
    found = run_sweep(study, axes, network=two_dimensions(), workers=0)
    assert found.failed == 5
    done, *failed = found.points.to_dict(orient="records")
    assert (done["state"], done["error"], done["network.bandwidth"]) == ("done", "", "50")
    assert all(row["error"] and pd.isna(row["makespan_ns"]) for row in failed)
    again = run_sweep(study, axes, network=two_dimensions(), workers=0)
    assert (again.simulated, again.reused, again.failed) == (0, 1, 5)


def test_two_sweeps_of_one_name_do_not_mix(study):
    def second(*_):
        with pytest.raises(StudyError, match="Another process"):
            run_grid(study)

    run_grid(study, progress=second)


def test_unwritable_study_has_the_error_of_a_run(study):
    (study.path / "sweeps").write_text("not a folder")
    with pytest.raises(StudyError, match=r"The sweep .* cannot be written \(.*\); a file has the name"):
        run_grid(study)


def test_a_damaged_table_is_named(study):
    found = run_grid(study)
    found.path.write_bytes(b"PAR1 nothing")
    with pytest.raises(StudyError, match="damaged"):
        run_grid(study)
    with pytest.raises(StudyError, match="damaged"):
        read_sweep(study, found.name)


@settings(max_examples=6, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=3))
def test_any_interruptions_end_with_every_point_once(tmp_path_factory, stops):
    study = Study.create(tmp_path_factory.mktemp("interrupted") / "study")
    study.add_workload(workload([comp(0, 5)], [comp(0, 9)]), "job")
    axes = {"network.latency": list(range(5))}
    for stop in stops:
        with contextlib.suppress(KeyboardInterrupt):
            run = run_sweep(
                study, axes, network="ring-2", backend="fake", workers=0, progress=_stop_after(stop)
            )
            assert run.reused + run.simulated == 5
    found = run_sweep(study, axes, network="ring-2", backend="fake", workers=0)
    assert sorted(found.points["network.latency"]) == axes["network.latency"]
    assert (found.points["state"] == "done").all()


def test_interrupted_sweep_reports_progress_until_resumed(study):
    def stop(finished, points, failed):
        if finished == 2:
            raise KeyboardInterrupt

    with pytest.raises(SweepInterrupted) as stopped:
        run_grid(study, name="cut", progress=stop)
    assert (stopped.value.name, stopped.value.done, stopped.value.points) == ("cut", 2, 6)
    partial = read_sweep(study, "cut")
    assert (len(partial.points), partial.missing) == (2, 4)
    assert "2 of 6 points so far" in partial._repr_html_()
    assert run_grid(study, name="cut").missing == 0
    whole = read_sweep(study, "cut")
    assert (len(whole.points), whole.missing) == (6, 0)
    with pytest.raises(SweepInterrupted):
        run_sweep(
            study,
            {"network.latency": [7, 8]},
            network=two_dimensions(),
            name="cut",
            workers=0,
            progress=lambda finished, *_: stop(2, 0, 0) if finished == 1 else None,
        )
    assert read_sweep(study, "cut").missing == 1


class TestProcesses:
    def test_processes_give_the_same_table(self, study):
        here = run_grid(study, name="here")
        there = run_grid(study, name="there", workers=2)
        columns = [name for name in here.points.columns if name != "simulation_s"]
        pd.testing.assert_frame_equal(here.points[columns], there.points[columns])

    def test_a_process_that_is_killed_costs_no_point(self, study):
        killed = []

        def kill_one(finished, points, failed):
            for pid in [] if killed else _workers(study):
                os.killpg(pid, signal.SIGKILL)
                killed.append(pid)

        found = run_grid(study, workers=1, progress=kill_one)
        assert killed
        assert (len(found.points), found.failed) == (6, 0)
        assert not _workers(study)

    def test_processes_that_cannot_work_at_all_end_the_sweep(self, study, monkeypatch):
        monkeypatch.setattr(sys, "executable", "/bin/false")
        with pytest.raises(BackendError, match=r"log\.txt"):
            run_grid(study, workers=2)

    def test_a_point_that_kills_its_process_twice_is_a_row(self, study, tmp_path, monkeypatch):
        # The first process works; all later ones fail to start.
        launcher = tmp_path / "python"
        used = tmp_path / "used"
        launcher.write_text(f'#!/bin/sh\n[ -e {used} ] && exit 3\ntouch {used}\nexec {sys.executable} "$@"\n')
        launcher.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(launcher))
        study.add_workload(workload(*[[comp(0, 5)]] * 2), "small")

        def kill(finished, points, failed):
            for pid in _workers(study) if finished == 2 else []:
                os.killpg(pid, signal.SIGKILL)

        axes = {"network.latency": [1, 2, 3, 4]}
        found = run_sweep(study, axes, network="ring-2", workload="small", workers=1, progress=kill)
        assert found.failed == 2
        failed = found.points[found.points["state"] == "failed"]
        assert failed["error"].str.contains("died 2 times").all()

    def test_ctrl_c_keeps_finished_work_and_ends_processes(self, study):
        script = (
            "import sys; from chakrascope.cli import main; main(['sweep', sys.argv[1], '--network', 'ring-2',"
            "'--over', 'network.npus_count=4', '--workers', '1', '--name', 'long',"
            "'--over', 'network.latency=' + ','.join(map(str, range(30_000)))])"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(study.path)], stderr=subprocess.PIPE, text=True
        )
        table = study.path / "sweeps" / "long" / "points.parquet"
        wait_for(lambda: table.exists() or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, shown = process.communicate(timeout=600)
        assert process.returncode == 130, shown
        assert "Traceback" not in shown
        assert not _workers(study)
        found = read_sweep(study, "long")
        rows = found.points
        assert len(rows) > 0
        assert found.missing == 30_000 - len(rows)
        assert "of 30,000 points are stored. Next: repeat the command to continue" in shown
        assert f"chakrascope sweep {study.path} --show long" in shown
        assert (rows["state"] == "done").all()


def test_a_worker_without_its_parent_ends_before_it_has_imported_everything():
    command = [sys.executable, "-X", "importtime", "-m", "chakrascope.runner.sweep.worker", "0", "1"]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, timeout=300)
    assert ended.returncode == -signal.SIGKILL
    assert "chakrascope.support" in ended.stderr
    assert "chakrascope.runner.sweep._point" not in ended.stderr


def _workers(study):
    """Return the processes of this study's sweep, identified by their log."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            target = os.readlink(f"/proc/{entry}/fd/2") if entry.isdigit() else ""
        except OSError:
            continue
        if target.startswith(str(study.path.resolve())) and target.endswith("log.txt"):
            found.append(int(entry))
    return found
