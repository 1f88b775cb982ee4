"""Experiments and their traces: the critical path, memory, and all available traces."""

import gzip
import json
import shutil
import tarfile
from dataclasses import replace

import pandas as pd
import pytest
from command_line import run_and_read
from hypothesis import given, settings
from hypothesis import strategies as st
from studies import study_of
from training_job import TrainingJob
from workloads import check_path, coll, comp, recv, send, workload

from chakrascope.converter import convert_files, microbenchmark
from chakrascope.errors import BackendError, ConfigError, StudyError, TraceError
from chakrascope.runner import (
    NetworkConfig,
    Result,
    analyse_run,
    cached_traces,
    clear_cached_traces,
    critical_path,
    get_backend,
    prepare,
    read_side,
    simulate,
    study_of_traces,
    summarize,
)
from chakrascope.runner.analysis import operations_of

RING = NetworkConfig(("Ring",), (4,), (46.566,), (500.0,))


def two_ranks():
    slow = [comp(0, 500), coll(1, 1 << 20, after=[0]), comp(2, 200, after=[1])]
    fast = [comp(0, 100), coll(1, 1 << 20, after=[0]), comp(2, 300, after=[1])]
    return workload(slow, fast, metadata={"measured_step_ns": {"0": 1700}})


def test_fake_backend_runs_in_id_order():
    result = simulate(two_ranks(), "default", "ring-2", backend="fake")
    assert result.makespan_ns == 1700
    assert result.ranks["finish_ns"].tolist() == [1700, 1400]
    assert len(result.collectives) == 2
    check_path(critical_path(result, two_ranks()))


@pytest.mark.parametrize("groups", [{1: (0, 0)}, {1: (0, 1, 0)}, {1: ()}, {0: (0, 1)}, {-1: (0, 1)}])
def test_groups_in_memory_are_checked_as_those_in_files_are(groups):
    with pytest.raises(ConfigError, match="an id above 0, and name at least one rank, and each once"):
        simulate(replace(two_ranks(), groups=groups), "default", "ring-2", backend="fake")
    with pytest.raises(ConfigError, match="each once"):
        prepare(two_ranks(), "default", "ring-2", groups=groups)


def test_path_jumps_to_the_straggler():
    # Rank 0's collective ends only because rank 1 arrived at 500.
    nodes = pd.DataFrame(
        [
            (0, 0, 0, 100, -1, False, 0, 0),
            (0, 1, 100, 900, 0, True, 1, 1),
            (0, 2, 900, 1200, 1, True, 0, 2),
            (1, 0, 0, 500, -1, False, 1, 0),
            (1, 1, 500, 900, 0, True, 1, 1),
            (1, 2, 900, 1100, 1, True, 1, 2),
        ],
        columns=[
            "rank",
            "node_id",
            "start_ns",
            "end_ns",
            "cause_node",
            "cause_is_dependency",
            "origin_rank",
            "origin_node",
        ],
    )
    model = two_ranks()
    ranks = simulate(model, "default", "ring-2", backend="fake").ranks
    path = critical_path(Result("x", 1200, ranks, nodes), model)
    check_path(path)
    assert path.segments[["rank", "node_id", "duration_ns"]].to_numpy().tolist() == [
        [1, 0, 500],
        [0, 1, 400],
        [0, 2, 300],
    ]
    assert "Waited 400 ns for rank 1" in path.segments["reason"].iloc[1]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5000), min_size=1, max_size=12), min_size=2, max_size=2))
def test_path_sums_to_the_makespan(durations):
    model = workload(*[[comp(node, value) for node, value in enumerate(rank)] for rank in durations])
    result = simulate(model, "default", "ring-2", backend="fake")
    check_path(critical_path(result, model))


def test_summary_names_the_bound():
    model = two_ranks()
    summary = summarize(simulate(model, "default", "ring-2", backend="fake"), model)
    assert summary.headline.startswith(
        "The step takes 1.70 µs (as measured) and is bound by communication: 58.8 %"
    )
    assert "all_reduce of 1.00 MiB" in summary.headline
    ranks = summary.ranks
    assert (ranks["compute_ns"] + ranks["exposed_comm_ns"] + ranks["idle_ns"] == 1700).all()


def test_path_without_nodes_is_refused():
    model = two_ranks()
    ranks = simulate(model, "default", "ring-2", backend="fake").ranks
    with pytest.raises(BackendError, match="no node times"):
        critical_path(Result("x", 1, ranks), model)


def test_hash_covers_all_inputs_of_the_result():
    model = two_ranks()
    one = prepare(model, "default", "ring-2", backend="fake")
    assert one.content_hash == prepare(model, "default", "ring-2", backend="fake").content_hash
    assert one.content_hash != prepare(model, "direct", "ring-2", backend="fake").content_hash
    assert one.semantics == "trace"


def test_a_captured_workload_is_scaled_out():
    experiment = prepare(two_ranks(), "default", "cpu-cluster-16", backend="fake")
    assert experiment.workload.num_ranks == 16
    assert experiment.assumptions


def test_files_of_surplus_ranks_are_ignored_with_a_note(tmp_path):
    workload([comp(0, 5000)], [comp(0, 9000)], [comp(0, 99_000)]).save(tmp_path / "job")
    result = simulate(tmp_path / "job", "default", "ring-2")
    assert result.makespan_ns == 9000
    assert "only the first 2 ranks were simulated" in result.provenance["assumptions"][0]


@pytest.mark.parametrize("backend", ["analytical-unaware", "analytical-aware", "flow", "packet"])
def test_broadcasts_without_messages_are_said(backend):
    job = microbenchmark("broadcast", 4, 1 << 20)
    replayed = simulate(job, "default", RING, backend=backend)
    (said,) = (line for line in replayed.provenance["warnings"] if "Broadcasts" in line)
    assert replayed.makespan_ns == 1
    assert "--semantics trace" in said
    sent = simulate(job, "default", RING, backend=backend, semantics="trace")
    assert sent.makespan_ns > 10_000  # two hops of a chunk of 256 KiB at 50 GB/s
    assert not any("Broadcasts" in line for line in sent.provenance["warnings"])


def test_undercharged_message_is_reported():
    network = NetworkConfig(("Switch", "Switch"), (2, 2), (400.0, 1.0), (500.0, 5000.0))
    job = workload([comp(0, 1)], [send(0, 1, 2, 1 << 20)], [recv(0, 1, 2, 1 << 20)], [comp(0, 1)])
    fast, slow = (
        simulate(job, "default", network, semantics=semantics) for semantics in ("astra-sim", "trace")
    )
    (said,) = (line for line in fast.provenance["warnings"] if "too fast" in line)
    assert f"1048576 bytes from rank 1 to rank 2 take {fast.makespan_ns} ns" in said
    assert f"{slow.makespan_ns} ns over all dimensions" in said
    assert not slow.provenance["warnings"]


def test_backend_names_are_checked():
    with pytest.raises(ConfigError, match="did you mean 'analytical-aware'"):
        get_backend("analytical-awre")


# Simulations or tables that would not fit into memory are refused first, with the required size.

NETWORK = NetworkConfig(("Switch",), (4,), (100.0,), (500.0,))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    program = microbenchmark("all-reduce", 4, 1 << 20, repeats=5)
    return study_of(tmp_path_factory.mktemp("memory"), program, NETWORK)


@pytest.mark.parametrize("loaded", [True, False])
def test_too_large_simulation_reports_its_memory(study, monkeypatch, loaded):
    monkeypatch.setenv("CHAKRASCOPE_MEMORY", "1MB")
    workload = study.workload() if loaded else study.workload_prefix()
    with pytest.raises(BackendError, match=r"needs about .* of memory, and CHAKRASCOPE_MEMORY allows"):
        simulate(workload, "default", NETWORK)
    monkeypatch.setenv("CHAKRASCOPE_MEMORY", "4GB")
    assert simulate(workload, "default", NETWORK).makespan_ns > 0


def test_ranks_that_are_simulated_one_by_one_need_more(study, monkeypatch):
    workload = microbenchmark("all-reduce", 4, 1 << 20, repeats=2000)
    monkeypatch.setenv("CHAKRASCOPE_MEMORY", "150160kB")
    assert simulate(workload, "default", NETWORK).makespan_ns > 0
    with pytest.raises(BackendError, match="fewer ranks"):
        simulate(workload, "default", NETWORK, backend="analytical-aware")


def test_a_table_that_would_not_fit_is_refused_and_the_path_is_not(study, monkeypatch):
    monkeypatch.setenv("CHAKRASCOPE_MEMORY", "1MB")
    run = analyse_run(study)
    assert run.summary.makespan_ns > 0
    with pytest.raises(StudyError, match=r"table of the run's 20 nodes .* `summary`"):
        _ = run.nodes


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_table_of_operations_that_would_not_fit_is_refused(tmp_path, monkeypatch, suffix):
    path = TrainingJob(replicas=4, steps=8).write(tmp_path / f"job.{suffix}")
    monkeypatch.setenv("CHAKRASCOPE_MEMORY", "150100kB")
    with pytest.raises(TraceError, match=rf"job.{suffix}: about \d[,\d]+ operations need .* every tenth"):
        operations_of(path)
    monkeypatch.setenv("CHAKRASCOPE_MEMORY", "4GB")
    table = operations_of(path)
    assert table is not None
    assert len(table.columns["step"]) > 1000


@pytest.mark.parametrize("text", ["much", "-1GB", "0"])
def test_a_limit_that_is_none_is_refused(study, monkeypatch, text):
    monkeypatch.setenv("CHAKRASCOPE_MEMORY", text)
    with pytest.raises(ConfigError, match="CHAKRASCOPE_MEMORY is"):
        simulate(study.workload_prefix(), "default", NETWORK)


# Every available trace is converted and runs on the default system.

CPU_SETS = (
    "mlp_2",
    "transformer_2",
    "fsdp2_2",
    "tp_2",
    "pp_2",
    "moe_2",
    "tpdp_4",
    "twoopt",
    "noann",
)


# folder -> patterns of its host and device traces
SETS = dict.fromkeys(CPU_SETS, ("et_{rank}.json.gz", "kineto_{rank}.json.gz"))
SETS["gpu_resnet50_ddp2"] = ("et103_{rank}.json.gz", "kineto_{rank}.json.gz")
SETS["."] = ("linear_1gpu_host_et.json.gz", "linear_1gpu_kineto.json.gz")


def ends(workload, backend):
    network = NetworkConfig(("Switch",), (workload.num_ranks,), (1.164,), (5000.0,))
    result = simulate(workload, "default", network, backend=backend)
    assert result.makespan_ns > 0
    assert (result.ranks["finish_ns"] > 0).all()
    assert result.provenance["nodes_executed"] == result.provenance["nodes_total"]


@pytest.mark.parametrize("name", sorted(SETS))
def test_every_trace_set_runs(shared, name):
    host, device = (str(shared / "traces" / name / pattern) for pattern in SETS[name])
    ends(convert_files(host, device), "analytical-unaware")
    ends(convert_files(None, device), "analytical-aware")


def test_eight_ranks_of_dlrm_run(shared, tmp_path):
    for archive in ("dlrm_8gpu_host_et.tar.gz", "dlrm_8gpu_kineto.tar.gz"):
        with tarfile.open(shared / "traces" / archive) as file:
            file.extraction_filter = getattr(tarfile, "data_filter", None)  # 3.11.4 and later
            file.extractall(tmp_path)
    folders = sorted({path.parent for path in tmp_path.rglob("*.json*")})
    host = next(folder for folder in folders if folder.name.endswith("_et"))
    device = next(folder for folder in folders if folder != host)
    workload = convert_files(str(host), str(device))
    assert workload.num_ranks == 8
    for backend in ("analytical-unaware", "analytical-aware"):
        ends(workload, backend)


# Traces in place of a study: read, cached by content, found again, and refused by name.


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def trace(data_dir, tmp_path):
    return shutil.copy(data_dir / "converter/kineto/bert_small_h100.json.gz", tmp_path / "bert.json.gz")


@pytest.fixture
def ranks(data_dir, tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(2):
        shutil.copy(data_dir / f"converter/dlrm_v100_8/kineto_{rank}.json.gz", folder)
    return folder


def converted_ranks(paths):
    """Return the study of *paths*, and the number of ranks converted for it."""
    done = []
    study = study_of_traces(paths, lambda number, _of: done.append(number))
    return study, max(done, default=0)


def test_trace_is_replayed_and_cached_by_content(trace, tmp_path):
    study, count = converted_ranks([trace])
    run = analyse_run(study, study.run_info().id)
    assert (count, run.info.backend, run.info.num_ranks) == (1, "replay", 1)
    assert run.info.workload == study.path.name == "bert"
    (tmp_path / "bert.json.gz").touch()
    again, count = converted_ranks([tmp_path / "bert.json.gz"])
    assert (again.path, count) == (study.path, 0)


def test_another_content_is_another_study(trace, tmp_path):
    before = study_of_traces([trace])
    document = json.loads(gzip.decompress((tmp_path / "bert.json.gz").read_bytes()))
    (tmp_path / "bert.json.gz").write_bytes(gzip.compress(json.dumps(document, indent=1).encode()))
    after = study_of_traces([trace])
    assert after.path != before.path
    assert after.run_info().makespan_ns == before.run_info().makespan_ns
    assert [path for path, _ in cached_traces()] == [after.path, before.path]
    assert clear_cached_traces() > 0
    assert cached_traces() == []


def test_the_files_of_a_job_and_their_folder_are_the_same_study(ranks):
    by_name = study_of_traces(sorted(ranks.iterdir()))
    assert by_name.run_info().num_ranks == 8  # the two represent the others
    assert study_of_traces([ranks]).path == by_name.path
    one, _ = converted_ranks([ranks / "kineto_1.json.gz"])
    assert one.path != by_name.path


def test_unreadable_result_is_refused(trace, tmp_path, ranks, cache):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(StudyError, match=r"notes.txt is neither a study nor a trace"):
        study_of_traces([tmp_path / "notes.txt"])
    (tmp_path / "report1.nsys-rep").write_bytes(b"\0")
    with pytest.raises(StudyError, match=r"as files of Nsight are not. Next: name a Kineto trace"):
        study_of_traces([tmp_path / "report1.nsys-rep"])
    with pytest.raises(StudyError, match=r"contains 2 sets .*: bert.json.gz, job/kineto_.*import STUDY"):
        study_of_traces([tmp_path])
    misnamed = shutil.copy(trace, tmp_path / "bert.json.gz.1")
    with pytest.raises(StudyError, match=r"is a trace, but .*\.json or \.json\.gz\. Next: rename"):
        study_of_traces([misnamed])
    with pytest.raises(StudyError, match=r"one folder; these traces are in"):
        study_of_traces([trace, ranks / "kineto_0.json.gz"])
    (tmp_path / "cut.json.gz").write_bytes((tmp_path / "bert.json.gz").read_bytes()[:9000])
    with pytest.raises(Exception, match=r"cut\.json\.gz"):
        study_of_traces([tmp_path / "cut.json.gz"])
    assert cached_traces() == []
    shutil.rmtree(cache, ignore_errors=True)
    cache.write_text("a file where the folder should be")
    with pytest.raises(StudyError, match=r"cannot be used .*XDG_CACHE_HOME"):
        study_of_traces([trace])


def test_damaged_studies_in_the_cache_are_made_again(trace):
    study = study_of_traces([trace])
    makespan_ns = study.run_info().makespan_ns
    for damage in (
        lambda study: shutil.rmtree(study.runs_dir),
        lambda study: shutil.rmtree(study.workloads_dir),
        lambda study: study.head_file.unlink(),
        lambda study: (study.run_dir(study.run_info().id) / "nodes.parquet").write_bytes(b"PAR1"),
        lambda study: study.workload_files(study.run_info().workload)[0].write_bytes(b""),
    ):
        damage(study)
        again, count = converted_ranks([trace])
        assert (again.path, again.run_info().makespan_ns, count) == (study.path, makespan_ns, 1)
        assert analyse_run(again, again.run_info().id).summary.headline
        study = again


def test_other_files_in_the_cache_are_left_alone(trace, cache):
    folder = cache / "chakrascope" / "replays"
    (folder / "empty").mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    study = study_of_traces([trace])
    assert [path for path, _ in cached_traces()] == [study.path]
    assert clear_cached_traces() > 0
    assert not study.path.exists()
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_renamed_table_of_operations_is_found(tmp_path):
    columns = {
        "step": 7,
        "dp_rank": 0,
        "stage": 0,
        "optype": "forward-compute",
        "start_ts": 0.25,
        "duration": 1.5,
    }
    for name in ("before.csv", "after.csv"):
        rows = [columns | {"dp_rank": rank, "rank": rank} for rank in range(2)]
        pd.DataFrame(rows).to_csv(tmp_path / name, index=False)
        assert study_of_traces([tmp_path / name]).operations_file.is_file()


def test_commands_take_a_trace_for_a_study(trace, capsys, tmp_path):
    code, out, err = run_and_read(capsys, "summary", trace)
    assert (code, "The step takes" in out, "as measured" in out) == (0, True, True), err
    assert f"chakrascope what-if {trace} --run" in out
    code, out, err = run_and_read(
        capsys, "what-if", trace, "--faster", "operator:aten::addmm=2", "--format", "csv"
    )
    assert code == 0, err
    assert run_and_read(capsys, "report", trace, "-o", tmp_path / "r.html")[0] == 0
    assert read_side(str(trace)).steps[0].makespan_ns == study_of_traces([trace]).run_info().makespan_ns
    code, out, err = run_and_read(capsys, "diff", trace, trace, "--format", "csv", "--view", "figures")
    assert code == 0, err
    assert "Deleted" in run_and_read(capsys, "runs", "--clear-traces")[1]


@pytest.mark.parametrize(
    "words", [["TRACE"], ["convert", "TRACE"], ["profile", "-o", "STUDY", "--", "TRACE"]]
)
def test_other_first_commands_lead_to_the_answer(trace, tmp_path, capsys, words):
    places = {"TRACE": trace, "STUDY": tmp_path / "s"}
    code, _, err = run_and_read(capsys, *(places.get(word, word) for word in words))
    assert code != 0
    assert "chakrascope summary" in err
