"""A study that version 0.1.0 wrote opens, and answers as it did."""

from __future__ import annotations

import tarfile
from dataclasses import replace

import pytest

from chakrascope.converter import convert
from chakrascope.errors import StudyError
from chakrascope.runner import Study, critical_path, get_backend, prepare, read_sweep, run_sweep, sweep_names

MAKESPANS = {
    "6125dec0ca488110": 6_737_297,
    "7d518adac65b8669": 6_926_512,
    "8132f9d470eefffe": 6_266_163,
    "53a22d65de53dfef": 6_267_002,
    "ce538d76edbca7ba": 6_160_088,
    "dd5353830f5ba8b8": 6_206_351,
}
PACKETS = "53a22d65de53dfef"  # of the backend that was called ns3 then


@pytest.fixture
def study(data_dir, tmp_path):
    """Unpack the study."""
    with tarfile.open(data_dir / "runner" / "study-of-0.1.0.tgz") as archive:
        archive.extractall(tmp_path, filter="data")
    return Study.open(tmp_path / "study-of-0.1.0")


def test_every_run_is_there_with_its_critical_path(study):
    assert {info.id: info.makespan_ns for info in study.runs()} == MAKESPANS
    for run, makespan_ns in MAKESPANS.items():
        path = critical_path(study.result(run), study.run_workload(run))
        assert path.segments["duration_ns"].sum() == makespan_ns


@pytest.mark.parametrize("run", MAKESPANS)
def test_every_run_simulated_again_takes_as_long(study, run):
    """It is another run: since 0.3 host work and idle time are kinds of their own, which programs say."""
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
    with pytest.raises(StudyError, match=f"took 6,206,351 ns, and .* takes 6,206,352: .*--delete {run}"):
        study.add_run(experiment, other)
    assert study.run_info(run).makespan_ns == 6_206_351


def test_the_answer_of_another_backend_is_refused(study):
    experiment = replace(study.experiment(PACKETS), backend="flow")
    with pytest.raises(
        StudyError, match=r"answer of 'packet', and the experiment asks 'flow'.*backend='packet'"
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
    assert get_backend("analytical-unaware").run(experiment).makespan_ns == 6_206_351
