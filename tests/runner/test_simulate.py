"""Experiments, the fake backend, the critical path, summaries and studies."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workloads import coll, comp, workload

from chakrascope.converter import microbenchmark
from chakrascope.errors import BackendError, ConfigError, StudyError, WorkloadError
from chakrascope.runner import (
    BREAKDOWNS,
    FakeBackend,
    Result,
    Study,
    critical_path,
    get_backend,
    prepare,
    register,
    simulate,
    summarize,
)
from chakrascope.runner.config import NetworkConfig

RING = NetworkConfig(("Ring",), (4,), (46.566,), (500.0,))


def two_ranks():
    slow = [comp(0, 500), coll(1, 1 << 20, after=[0]), comp(2, 200, after=[1])]
    fast = [comp(0, 100), coll(1, 1 << 20, after=[0]), comp(2, 300, after=[1])]
    return workload(slow, fast, metadata={"measured_step_ns": {"0": 1700}})


def check_path(path):
    segments = path.segments
    assert segments["start_ns"].iloc[0] == 0
    assert segments["end_ns"].iloc[-1] == path.makespan_ns
    assert (segments["start_ns"].to_numpy()[1:] == segments["end_ns"].to_numpy()[:-1]).all()
    assert segments["duration_ns"].sum() == path.makespan_ns
    for by in BREAKDOWNS:
        assert path.breakdown(by)["duration_ns"].sum() == path.makespan_ns


def test_fake_backend_runs_in_id_order():
    result = simulate(two_ranks(), "default", "ring-2", backend="fake")
    assert result.makespan_ns == 1700
    assert result.ranks["finish_ns"].tolist() == [1700, 1400]
    assert len(result.collectives) == 2
    check_path(critical_path(result, two_ranks()))


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


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5000), min_size=1, max_size=12), min_size=2, max_size=2))
def test_path_sums_to_the_makespan(durations):
    model = workload(*[[comp(node, value) for node, value in enumerate(rank)] for rank in durations])
    result = simulate(model, "default", "ring-2", backend="fake")
    check_path(critical_path(result, model))


def test_summary_names_the_bound():
    model = two_ranks()
    summary = summarize(simulate(model, "default", "ring-2", backend="fake"), model)
    assert summary.headline.startswith(
        "The step takes 1.70 µs (measured: 1.70 µs) and is bound by communication: 58.8 %"
    )
    assert "all_reduce of 1.00 MiB" in summary.headline
    ranks = summary.ranks
    assert (ranks["compute_ns"] + ranks["exposed_comm_ns"] + ranks["idle_ns"] == 1700).all()


def test_path_without_nodes_is_refused():
    model = two_ranks()
    ranks = simulate(model, "default", "ring-2", backend="fake").ranks
    with pytest.raises(BackendError, match="no node times"):
        critical_path(Result("x", 1, ranks), model)


def test_hash_says_what_decides_the_result():
    model = two_ranks()
    one = prepare(model, "default", "ring-2", backend="fake")
    assert one.content_hash == prepare(model, "default", "ring-2", backend="fake").content_hash
    assert one.content_hash != prepare(model, "direct", "ring-2", backend="fake").content_hash
    assert one.semantics == "trace"


def test_a_captured_workload_is_scaled_out():
    experiment = prepare(two_ranks(), "default", "cpu-cluster-16", backend="fake")
    assert experiment.workload.num_ranks == 16
    assert experiment.assumptions


def test_files_of_more_ranks_than_the_network_has_are_left_out_and_said(tmp_path):
    workload([comp(0, 5000)], [comp(0, 9000)], [comp(0, 99_000)]).save(tmp_path / "job")
    result = simulate(tmp_path / "job", "default", "ring-2")
    assert result.makespan_ns == 9000
    assert "only the first 2 were simulated" in result.provenance["assumptions"][0]


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


def test_backend_names_are_checked():
    with pytest.raises(ConfigError, match="did you mean 'analytical-aware'"):
        get_backend("analytical-awre")
    with pytest.raises(ConfigError, match="already a backend"):
        register("fake", FakeBackend())


def test_missing_files_and_presets_are_explained(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'ring-2'"):
        simulate(two_ranks(), "default", "ring2", backend="fake")
    with pytest.raises(WorkloadError, match="does not exist"):
        simulate(tmp_path / "absent", "default", "ring-2", backend="fake")


def test_study_keeps_runs_whole_and_can_move(tmp_path):
    study = Study.create(tmp_path / "a")
    model = two_ranks()
    prefix = study.add_workload(model, "w")
    experiment = prepare(prefix, "default", "ring-2", backend="fake")
    result = get_backend("fake").run(experiment)
    run_id = study.add_run(experiment, result)
    assert study.add_run(experiment, result) == run_id
    (tmp_path / "a").rename(tmp_path / "b")
    moved = Study.open(tmp_path / "b")
    assert [info.id for info in moved.runs()] == [run_id]
    pd.testing.assert_frame_equal(moved.result().nodes, result.nodes)
    check_path(critical_path(moved.result(run_id[:6]), moved.run_workload()))
    assert moved.experiment().content_hash == run_id
    for file in (tmp_path / "b").rglob("*.json"):
        assert str(tmp_path) not in file.read_text()


def test_an_unfinished_run_is_absent(tmp_path):
    study = Study.create(tmp_path)
    (tmp_path / "runs" / ".dead.1.tmp").mkdir(parents=True)
    (tmp_path / "runs" / ".dead.1.tmp" / "run.json").write_text("{}")
    assert study.runs() == []
    with pytest.raises(StudyError, match="no run yet"):
        study.result()


@pytest.mark.parametrize("content", ["", "[]", "{", '{"format": "other"}'])
def test_a_damaged_study_is_refused(tmp_path, content):
    (tmp_path / "study.json").write_text(content)
    with pytest.raises(StudyError):
        Study.open(tmp_path)


def test_a_damaged_result_is_refused(tmp_path):
    result = simulate(two_ranks(), "default", "ring-2", backend="fake")
    result.save(tmp_path / "r")
    with pytest.raises(StudyError, match="never overwritten"):
        result.save(tmp_path / "r")
    (tmp_path / "r" / "nodes.parquet").write_bytes(b"PAR1")
    with pytest.raises(StudyError, match="damaged"):
        Result.load(tmp_path / "r")
