"""Imports of a study from a folder: only the folder's content, completely or not at all."""

import json
import os
import shutil
from pathlib import Path

import command_line
import pytest
from kineto_trace import KinetoTrace
from workloads import coll, comp, workload

from chakrascope.cli import _doctor as _doctor_command
from chakrascope.converter import Workload, convert_files
from chakrascope.converter.building import _workers, finished_ranks
from chakrascope.converter.readers import kind_of
from chakrascope.errors import Cancelled, ChakrascopeError, StudyError, UsageError
from chakrascope.runner import (
    ImportRequest,
    JobStore,
    NetworkConfig,
    Study,
    SweepRequest,
    SystemConfig,
    check_study,
    find_items,
    read_sweep,
    run_sweep,
    study_of_traces,
    sweep_experiment,
)
from chakrascope.runner.jobs._job import WORK
from chakrascope.runner.jobs.worker import Attempt
from chakrascope.runner.study import check_item, import_item, item_table, proposed_name, step_names_of

NETWORK = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50.0], "latency": [500.0]}


def unheard(_done, _total):
    """Accept progress and ignore it."""


@pytest.fixture
def study(tmp_path):
    return Study.create(tmp_path / "study")


@pytest.fixture
def folder(tmp_path, data_dir):
    """Return a folder with a trace set, separate host and device traces, and graphs."""
    root = tmp_path / "from"
    shutil.copytree(data_dir / "converter" / "mlp_2", root / "captures" / "mlp")
    loose = root / "loose"
    loose.mkdir()
    for rank in (0, 1):
        for side in ("host", "device"):
            source = next((root / "captures" / "mlp").glob(f"rank{rank}.{side}.json*"))
            shutil.copy(source, loose / f"{side}_{rank}{''.join(source.suffixes[1:])}")
    (root / "graphs").mkdir()
    workload([comp(0, 5), coll(1, 64)], [comp(0, 9), coll(1, 64)]).save(root / "graphs" / "job")
    (root / "readme.json").write_text("{}")
    return root


def test_everything_that_can_be_imported_is_found(folder):
    found = {item.place: item for item in find_items(folder)}
    assert {place: (item.kind, item.ranks, item.problem) for place, item in found.items()} == {
        "captures/mlp": ("trace set", 2, ""),
        "graphs/job": ("graphs", 2, ""),
        "loose/device_{rank}.json.gz": ("traces", 2, ""),
    }
    assert found["loose/device_{rank}.json.gz"].host_files == ("loose/host_0.json.gz", "loose/host_1.json.gz")
    assert all(item.size_bytes > 0 for item in found.values())


def _found(folder):
    return {item.place: (item.kind, item.ranks, item.problem) for item in find_items(folder)}


def test_production_logs_are_found_checked_and_imported(study, folder, tmp_path, data_dir):
    logs = folder / "hang"
    logs.mkdir()
    for rank in (0, 1):
        shutil.copy(data_dir / "converter" / "logs" / f"nccl_trace_rank_{rank}.json", logs)
    (logs / "readme.txt").write_text("of Tuesday")
    item = next(item for item in find_items(folder) if item.kind == "logs")
    assert (item.place, item.ranks, item.problem) == ("hang/nccl_trace_rank_{rank}.json", 0, "")
    assert item.files == ("hang/nccl_trace_rank_0.json", "hang/nccl_trace_rank_1.json")
    found = check_item(folder, item.id, unheard)
    assert not any(str(tmp_path) in finding.text + finding.place for finding in found)
    assert import_item(study, folder, item.id, proposed_name(item), unheard) == "hang"
    assert study.workload("hang").num_ranks == 2


def test_traces_with_the_names_that_pytorch_gives_are_found_by_the_ranks_they_state(study, folder, tmp_path):
    device = [folder / "loose" / f"device_{rank}.json.gz" for rank in (0, 1)]
    captured = tmp_path / "captured"
    captured.mkdir()
    for time in (3, 5):  # a profiler with a schedule writes again and again
        for rank, path in enumerate(device):
            shutil.copy(path, captured / f"gpu7_{4242 - rank}.{time}000000000{rank}.pt.trace.json.gz")
            shutil.copy(path, captured / f"worker{rank}_step_{time}.{77 - rank}.pt.trace.json.gz")
    shutil.copy(device[1], captured / "trace.json.gz")
    assert _found(captured) == {
        "*.pt.trace.json.gz": ("traces", 2, ""),
        "*.pt.trace.json.gz, recording 2": ("traces", 2, ""),
        "trace.json.gz": ("traces", 1, ""),
        "worker{rank}_step_3.*.pt.trace.json.gz": ("traces", 2, ""),
        "worker{rank}_step_5.*.pt.trace.json.gz": ("traces", 2, ""),
    }
    item = next(item for item in find_items(captured) if item.place.endswith("recording 2"))
    assert [name[-25:] for name in item.files] == [
        "5000000000.pt.trace.json.gz"[-25:],
        "5000000001.pt.trace.json.gz"[-25:],
    ]
    import_item(study, captured, item.id, "mine", unheard)
    assert study.workload("mine").num_ranks == 2


@pytest.mark.parametrize("read", [find_items, Study.open])
def test_a_file_instead_of_a_folder_names_the_command_that_imports_it(tmp_path, read):
    trace = tmp_path / "rank 0.json"
    trace.write_text("{}")
    with pytest.raises(StudyError) as error:
        read(trace)
    assert error.value.message.endswith(f"`chakrascope import STUDY {tmp_path} 'rank 0.json'`.")


def test_a_folder_that_is_no_study_names_the_command_that_imports_it(folder):
    with pytest.raises(StudyError) as error:
        Study.open(folder)
    assert error.value.message.endswith(f"`chakrascope import STUDY {folder}`.")


@pytest.mark.parametrize("inner", ["captures", "graphs", "loose"])
def test_archive_yields_the_workload_of_its_content(study, folder, tmp_path, inner):
    packed = tmp_path / "packed"
    packed.mkdir()
    shutil.make_archive(str(packed / "all"), "gztar", folder / inner)
    (item,) = find_items(folder / inner)
    import_item(study, folder / inner, item.id, "loose", unheard)
    assert _found(packed) == {"all.tar.gz": ("archive", 0, "")}
    (item,) = find_items(packed)
    assert check_item(packed, item.id, unheard) == []
    import_item(study, packed, item.id, "packed", unheard)
    assert study.workload("packed").graphs == study.workload("loose").graphs


def test_archive_with_several_items_lists_them(study, folder, tmp_path):
    packed = tmp_path / "packed"
    packed.mkdir()
    shutil.make_archive(str(packed / "all"), "zip", folder)
    (item,) = find_items(packed)
    (finding,) = check_item(packed, item.id, unheard)
    assert "captures/mlp, graphs/job, loose/device_{rank}.json.gz" in finding.cause
    with pytest.raises(StudyError, match="several sets of traces or graphs"):
        import_item(study, packed, item.id, "mine", unheard)
    assert study.workloads() == study.trace_sets() == []


def test_bare_host_traces_are_listed_as_incomplete(study, folder, tmp_path):
    for path in (folder / "loose").glob("device_*"):
        path.unlink()
    item = next(item for item in find_items(folder) if item.place == "loose/host_{rank}.json.gz")
    assert (item.kind, item.ranks, item.files) == ("traces", 2, ())
    assert "only device traces have times" in item.problem
    packed = tmp_path / "packed"
    packed.mkdir()
    shutil.make_archive(str(packed / "all"), "gztar", folder / "loose")
    (item,) = find_items(packed)
    (finding,) = check_item(packed, item.id, unheard)
    assert finding.text.endswith("put the Kineto trace of each rank next to them).")


def test_each_kind_becomes_the_same_workload_as_by_the_command_line(study, folder):
    names = [import_item(study, folder, item.id, "mine", unheard) for item in find_items(folder)]
    assert names == ["mine", "mine-2", "mine-3"]
    assert study.workloads() == names
    assert study.trace_sets() == ["mine"]
    assert study.workload("mine").num_ranks == 2
    assert study.workload("mine").metadata["trace_set"] == "mine"
    assert [len(graph.nodes) for graph in study.workload("mine-2").graphs] == [2, 2]


@pytest.mark.parametrize(("step", "steps"), [("ProfilerStep#*#all", 2), (4, 1)])
def test_the_step_of_traces_can_be_chosen(study, folder, step, steps):
    for kind in ("trace set", "traces"):
        item = next(item for item in find_items(folder) if item.kind == kind)
        name = import_item(study, folder, item.id, "job", unheard, step=step)
        assert len(Workload.load(study.workload_prefix(name)).metadata["steps"]) == steps


def test_the_annotations_that_cover_most_time_are_suggested_as_steps(folder, tmp_path):
    by_kind = {item.kind: item for item in find_items(folder)}
    for kind in ("trace set", "traces"):
        names = step_names_of(folder, by_kind[kind].id)
        assert names[0] == "ProfilerStep#*"
        assert any(name.startswith("Optimizer.step#") for name in names)
        assert len(names) == len(set(names)) <= 20
    assert step_names_of(folder, by_kind["graphs"].id) == []
    packed = tmp_path / "packed"
    packed.mkdir()
    shutil.make_archive(str(packed / "all"), "zip", folder / "loose")
    assert step_names_of(packed, find_items(packed)[0].id)[0] == "ProfilerStep#*"
    device = folder / "loose" / "device_0.json.gz"
    device.write_bytes(device.read_bytes()[:-60])
    (damaged,) = (item for item in find_items(folder) if item.place.startswith("loose"))
    assert step_names_of(folder, damaged.id) == []


def test_a_step_that_is_not_there_is_refused(study, folder):
    by_kind = {item.kind: item for item in find_items(folder)}
    with pytest.raises(UsageError, match="has no annotation 'decode'"):
        import_item(study, folder, by_kind["traces"].id, "job", unheard, step="decode")
    with pytest.raises(StudyError, match="holds graphs, which have no steps"):
        import_item(study, folder, by_kind["graphs"].id, "job", unheard, step="all")
    assert study.workloads() == []


@pytest.fixture
def graphs(tmp_path):
    """A trace that launches a CUDA graph, next to a folder with the trace of its capture."""
    captured, launched, folder = KinetoTrace(), KinetoTrace(), tmp_path / "server"
    captured.call("cudaStreamBeginCapture", 10, 5.0)
    captured.op("flash::attention", 20, 9.0, 1)
    captured.call("cudaLaunchKernel", 22, 5.0)
    captured.call("cudaStreamEndCapture", 40, 5.0)
    launched.launch((10, 5.0), [(30, 5.0)], name="cudaGraphLaunch", work="sgemm")
    (folder / "capture_traces").mkdir(parents=True)
    captured.write(folder / "capture_traces" / "graphs.json")
    launched.write(folder / "decode.json")
    return folder


def _operators(study, name):
    nodes = study.workload(name).graphs[0].nodes
    return nodes.loc[nodes["name"] == "sgemm", "operator"].tolist()


def test_traces_of_captures_go_with_those_of_the_launches(study, graphs):
    (item,) = find_items(graphs)
    assert (item.place, item.capture_files) == ("decode.json", ("capture_traces/graphs.json",))
    assert item_table([item])["files"].tolist() == [2]
    name = import_item(study, graphs, item.id, "mine", unheard)
    assert _operators(study, name) == ["flash::attention"]
    assert [item.place for item in find_items(graphs / "capture_traces")] == ["graphs.json"]


def test_captures_elsewhere_are_given_and_links_to_them_not_followed(study, graphs, tmp_path, capsys):
    elsewhere = (graphs / "capture_traces").rename(tmp_path / "elsewhere")
    (graphs / "capture_traces").symlink_to(elsewhere)
    (item,) = find_items(graphs)
    assert _operators(study, import_item(study, graphs, item.id, "mine", unheard)) == [""]
    asked = ["import", str(study.path), str(graphs), item.place, "--name", "given", "--capture-trace"]
    command_line.run(*asked, elsewhere)
    assert _operators(study, "given") == ["flash::attention"]
    command_line.run(*asked, tmp_path / "absent")
    assert "holds no trace of a capture" in capsys.readouterr().out.replace("\n", " ")


def test_captures_go_with_traces_alone(study, folder):
    item = next(item for item in find_items(folder) if item.kind == "graphs")
    with pytest.raises(StudyError, match="requires device traces"):
        import_item(study, folder, item.id, "mine", unheard, capture_trace=folder)


def test_findings_name_places_as_seen_from_the_folder(folder):
    (folder / "captures" / "mlp" / "rank1.device.json.gz").write_bytes(b"no gzip")
    for item in find_items(folder):
        found = check_item(folder, item.id, unheard)
        assert not any(str(folder) in text for finding in found for text in finding.to_dict().values())
        assert any(finding.severity == "error" for finding in found) == (item.place == "captures/mlp")


def test_failed_conversion_leaves_the_study_unchanged(study, folder):
    (folder / "captures" / "mlp" / "rank1.device.json.gz").write_bytes(b"no gzip")
    item = next(item for item in find_items(folder) if item.kind == "trace set")
    with pytest.raises(ChakrascopeError):
        import_item(study, folder, item.id, "mine", unheard)
    assert study.workloads() == study.trace_sets() == []
    assert not list((study.path / "traces").glob("*"))


@pytest.mark.parametrize("name", ["../../outside.json", "/etc/passwd", "link.json", "absent.json"])
def test_trace_set_cannot_reach_outside_of_its_folder(study, folder, name):
    (folder.parent / "outside.json").write_text("{}")
    (folder / "captures" / "mlp" / "link.json").symlink_to(folder.parent / "outside.json")
    manifest = folder / "captures" / "mlp" / "manifest.json"
    document = json.loads(manifest.read_text())
    document["ranks"][0]["host_trace"] = name
    manifest.write_text(json.dumps(document))
    item = next(item for item in find_items(folder) if item.kind == "trace set")
    assert ("not the name of a file there" if "/" in name else "not a file of this folder") in item.problem
    with pytest.raises(StudyError, match="cannot be imported"):
        import_item(study, folder, item.id, "mine", unheard)


def test_links_are_not_followed(folder):
    os.symlink(folder / "captures", folder / "again")
    os.symlink(folder / "graphs" / "job.0.et", folder / "graphs" / "job.7.et")
    found = {item.place: item.problem for item in find_items(folder)}
    assert not any(place.startswith("again") for place in found)
    assert "is a link" in found["graphs/job"]


@pytest.mark.parametrize(
    "content", [b"", b"[1]", b'{"ranks": 7}', b'{"ranks": [7]}', b"\xff", b"[" * 100_000]
)
def test_damaged_manifest_is_listed_with_its_problem(folder, content):
    (folder / "captures" / "mlp" / "manifest.json").write_bytes(content)
    item = next(item for item in find_items(folder) if item.kind == "trace set")
    assert item.problem.startswith("captures/mlp/manifest.json")


def test_gap_among_the_ranks_is_told(folder):
    (folder / "graphs" / "job.0.et").unlink()
    item = next(item for item in find_items(folder) if item.kind == "graphs")
    assert "no file of rank 0" in item.problem


def rank_traces(folder, ranks, world_size):
    """Write device traces that state their ranks, and the size of their job unless it is 0."""
    folder.mkdir()
    for rank in ranks:
        trace = KinetoTrace()
        trace.op("aten::mm", 10 * rank, 100.0 + rank)
        job = {"distributedInfo": {"rank": rank, "world_size": world_size}} if world_size else {}
        trace.write(folder / f"rank{rank}.pt.trace.json", **job)


def test_files_that_the_system_makes_and_pipes_are_no_traces(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    assert kind_of(tmp_path / "pipe.json") == "other"
    assert kind_of(Path("/proc/kmsg")) == "other"  # waits for messages
    assert find_items(tmp_path) == []


def test_a_missing_trace_of_a_job_of_known_size_is_named_in_the_answer(study, tmp_path):
    rank_traces(tmp_path / "known", (0, 1, 3), 4)
    (item,) = find_items(tmp_path / "known")
    assert (item.ranks, item.problem) == (3, "")
    name = import_item(study, tmp_path / "known", item.id, "known", unheard)
    (note,) = [line for line in study.workload(name).metadata["assumptions"] if "were given" in line]
    assert "the traces of 3 of 4 ranks were given (0, 1, 3, shown as ranks from 0)" in note
    assert "repeated for the others (rank 0 for rank 2, shown as rank 3)" in note
    by_pattern = convert_files(None, str(tmp_path / "known" / "rank{rank}.pt.trace.json"))
    assert by_pattern.num_ranks == study.workload(name).num_ranks == 4
    assert convert_files(None, str(tmp_path / "known")).num_ranks == 4


def test_missing_trace_of_unknown_job_size_is_refused(tmp_path):
    rank_traces(tmp_path / "unknown", (0, 2), 0)
    (item,) = find_items(tmp_path / "unknown")
    assert item.problem == "there is no trace of rank 1, and the traces do not state the size of their job"
    for traces in ("unknown", "unknown/rank{rank}.pt.trace.json", "unknown/rank*.json"):
        with pytest.raises(UsageError, match="of rank 2 but none of rank 1, and they do not state the size"):
            convert_files(None, str(tmp_path / traces))


@pytest.mark.parametrize("content", [b"", b"{}", b"\x1f\x8b\x08"])
def test_an_empty_trace_among_others_is_named(tmp_path, content):
    rank_traces(tmp_path / "job", (0, 1, 2), 3)
    (tmp_path / "job" / "rank1.pt.trace.json").write_bytes(content)
    (item,) = find_items(tmp_path / "job")
    assert item.problem.startswith("rank1.pt.trace.json is named like the file of a rank, but is empty")
    with pytest.raises(UsageError, match=r"rank1.pt.trace.json is named like the file of a rank"):
        convert_files(None, str(tmp_path / "job"))
    with pytest.raises(StudyError, match=r"cannot be read: rank1.pt.trace.json is named like"):
        study_of_traces([tmp_path / "job"])


def test_renumbered_trace_has_a_note(tmp_path):
    rank_traces(tmp_path / "one", (3,), 0)
    (note,) = [
        line
        for line in convert_files(None, str(tmp_path / "one")).metadata["assumptions"]
        if "file names have" in line
    ]
    assert note == (
        "the traces contain no rank: their file names have rank 3, but they are numbered as rank 0 of a job "
        "of 1"
    )


def test_item_that_changed_is_not_imported_in_its_place(study, folder):
    item = find_items(folder)[0]
    (folder / "captures" / "mlp" / "rank0.host.json.gz").write_bytes(b"changed")
    with pytest.raises(StudyError, match="changed in the meantime"):
        import_item(study, folder, item.id, "mine", unheard)


def test_folder_that_is_gone_is_named(tmp_path):
    with pytest.raises(StudyError, match="Check its path"):
        find_items(tmp_path / "absent")


class TestJobs:
    """The work of jobs, in this process; `test_jobs` and the viewer's tests start processes for it."""

    @pytest.fixture
    def store(self, study):
        return JobStore(study, launch=lambda *_: 0)

    @staticmethod
    def worked(store, job):
        Attempt(store, job.id).run()
        return store.job(job.id)

    def test_item_is_looked_over_and_imported(self, study, store, folder):
        item = next(item for item in find_items(folder) if item.kind == "trace set")
        look = ImportRequest(str(folder), item.id)
        assert store.findings(look) is None
        done = self.worked(store, store.submit_import(look))
        assert (done.kind, done.state, store.findings(look)) == ("check", "done", [])
        done = self.worked(store, store.submit_import(ImportRequest(str(folder), item.id, "mine")))
        assert (done.kind, done.state) == ("import", "done")
        assert done.message == "Imported as the workload 'mine'."
        assert study.workloads() == ["mine"]

    def test_sweep_job_resumes(self, study, store):
        study.add_workload(workload([coll(0, 1 << 20)], [coll(0, 1 << 20)]), "job")
        system = SystemConfig.preset("default").to_dict()
        request = SweepRequest(
            over={"network.bandwidth": [1.0, 2.0, 4.0]}, workload="job", system=system, network=NETWORK,
            network_name="mine", backend="analytical-unaware", name="widths",
        )  # fmt: skip
        job = store.submit_sweep(request)
        assert (job.kind, job.total, request.points) == ("sweep", 3, 3)
        assert store.submit_sweep(request).experiment == job.experiment
        ended = self.worked(store, job)
        assert (ended.state, ended.message) == ("done", "The sweep 'widths' has 3 points.")
        assert len(read_sweep(study, "widths").points) == 3
        assert len(study.runs()) == 1

    def test_sweep_without_any_answer_has_failed(self, study, store):
        study.add_workload(workload([comp(0, 5)], [comp(0, 9)]), "job")
        request = SweepRequest({"network.npus_count": [3]}, "job", {}, NETWORK, "mine", "analytical-unaware")
        ended = self.worked(store, store.submit_sweep(request))
        assert ended.state == "failed"
        assert "No point of the sweep has a result" in ended.message


def test_point_of_a_sweep_is_reproduced_from_its_base(study):
    study.add_workload(workload([coll(0, 1 << 20)], [coll(0, 1 << 20)]), "job")
    network = NetworkConfig.from_mapping(NETWORK, "The network", "mine")
    found = run_sweep(study, {"network.bandwidth": [1.0, 4.0]}, network=network, workers=0, name="widths")
    best = found.points["id"].iloc[0]
    experiment = sweep_experiment(study, "widths", best)
    assert experiment.content_hash == best
    assert experiment.network.bandwidth == (4.0,)
    with pytest.raises(StudyError, match="no point 'abc'"):
        sweep_experiment(study, "widths", "abc")
    (study.path / "sweeps" / "widths" / "start.json").unlink()
    with pytest.raises(StudyError, match=r"start\.json is missing"):
        sweep_experiment(study, "widths", best)


class TestStopped:
    """Ranks that a stopped import or check has converted are not converted again."""

    @pytest.fixture(autouse=True)
    def always_worth_it(self, monkeypatch):
        monkeypatch.setattr(_workers, "_WORTH_KEEPING_BYTES", 1)

    @staticmethod
    def after_one(done, _total):
        if done == 1:
            raise Cancelled("Cancelled.")

    @pytest.fixture(params=["trace set", "archive"])
    def item(self, request, folder, monkeypatch):
        if request.param == "archive":
            shutil.make_archive(str(folder / "all"), "gztar", folder / "captures")
        return next(item for item in find_items(folder) if item.kind == request.param)

    def test_an_import_goes_on_and_the_check_before_it_counts(self, study, folder, item, made):
        expected = import_item(study, folder, item.id, "expected", unheard)
        made.clear()
        target = study.import_target(item.id)
        with pytest.raises(Cancelled), finished_ranks(target) as finished:
            import_item(study, folder, item.id, "mine", self.after_one, finished=finished)
        assert study.workloads() == [expected]
        with finished_ranks(target) as finished:
            assert check_item(folder, item.id, unheard, finished=finished) == []
            assert import_item(study, folder, item.id, "mine", unheard, finished=finished) == "mine"
        assert made == [0, 1]
        assert study.workload("mine").graphs == study.workload(expected).graphs
        assert not list(study.path.parent.glob(".*converting"))

    def test_a_killed_job_goes_on(self, study, folder, item, made):
        """The process dies; the next process of the same job resumes its work."""
        look = ImportRequest(str(folder), item.id)
        store = JobStore(study, slots=0)
        for request in (look, ImportRequest(str(folder), item.id, "mine")):
            job = store.submit_import(request)

            def note(figures):
                if figures["done"] == 1:
                    raise SystemExit("killed")
                return True

            with pytest.raises(SystemExit, match="killed"):
                WORK[job.kind](study, job, store.request(job.id), note)
            assert made == [0]
            WORK[job.kind](study, job, store.request(job.id), lambda _: True)
            assert made == [0, 1]
            made.clear()
        assert (study.workloads(), store.findings(look)) == (["mine"], [])
        assert not list(study.path.parent.glob(".*converting"))

    def test_the_command_converts_once(self, study, folder, item, made):
        assert (
            command_line.run("import", study.path.parent / "new", folder, item.place, "--name", "mine") == 0
        )
        assert sorted(made) == [0, 1]
        assert Study.open(study.path.parent / "new").workloads() == ["mine"]

    def test_doctor_resumes_and_names_the_folder(self, folder, item, made, monkeypatch, capsys):
        place = str(folder / item.place)

        def stop(_status, _what):
            return self.after_one

        with monkeypatch.context() as patch:
            patch.setattr(_doctor_command, "counter", stop)
            command_line.run("doctor", place)
        assert "1 converted rank stored in" in " ".join(capsys.readouterr().err.split())
        code = command_line.run("doctor", place)
        assert (code, made) == (0, [0, 1])
        assert not list(folder.rglob(".*converting"))


def test_the_doctor_of_a_study_goes_on(study, folder, monkeypatch):
    monkeypatch.setattr(_workers, "_WORTH_KEEPING_BYTES", 1)
    (item,) = (item for item in find_items(folder) if item.kind == "trace set")
    import_item(study, folder, item.id, "mine", unheard)
    with pytest.raises(Cancelled):
        check_study(study, progress=TestStopped.after_one)
    assert len(list(study.path.parent.glob(".study.mine.doctor.converting/rank*.nodes.parquet"))) == 1
    told = []
    assert check_study(study, progress=lambda done, _: told.append(done)) == []
    assert told == [1, 2]
    assert not list(study.path.parent.glob(".*converting"))
