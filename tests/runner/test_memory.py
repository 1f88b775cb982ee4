"""A simulation or a table that would not fit is refused before it begins, with what it would need."""

from __future__ import annotations

import pytest
from training_job import TrainingJob

from chakrascope.converter import microbenchmark
from chakrascope.errors import BackendError, ConfigError, StudyError, TraceError
from chakrascope.runner import NetworkConfig, Study, get_backend, prepare, simulate
from chakrascope.runner.analysis import analyse_run, operations_of

NETWORK = NetworkConfig(("Switch",), (4,), (100.0,), (500.0,))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    made = Study.create(tmp_path_factory.mktemp("memory") / "study")
    prefix = made.add_workload(microbenchmark("all-reduce", 4, 1 << 20, repeats=5), "job")
    experiment = prepare(prefix, "default", NETWORK)
    made.add_run(experiment, get_backend(experiment.backend).run(experiment))
    return made


@pytest.mark.parametrize("loaded", [True, False])
def test_a_simulation_that_would_not_fit_says_what_it_needs(study, monkeypatch, loaded):
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
    with pytest.raises(StudyError, match=r"table of the run's 20 nodes .* 'summary'"):
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
