"""A result carries checksums: whatever changes in it is named by `doctor` and by what reads it."""

from __future__ import annotations

import json
import subprocess

import pytest

from chakrascope.cli import main as cli_main
from chakrascope.errors import StudyError
from chakrascope.runner import (
    Experiment,
    MemoryConfig,
    NetworkConfig,
    Result,
    Study,
    SystemConfig,
    WorkloadSource,
    check_study,
    simulate,
)
from chakrascope.runner.config import preset_path

from .workloads import coll, comp, workload

RESULT = ("result.json", "ranks.parquet", "nodes.parquet", "collectives.parquet", "links.parquet")
INPUTS = ("experiment.json", "system.json", "network.yml", "memory.json")


@pytest.fixture
def study(tmp_path):
    """Return a study with one run."""
    nodes = [comp(1, 100), coll(2, 4096, (1,))]
    job, network = workload(nodes, nodes), NetworkConfig.preset("ring-2")
    job.save(tmp_path / "job" / "workload")
    made = Study.create(tmp_path / "study")
    made.import_workload(tmp_path / "job" / "workload")
    system = SystemConfig.load(preset_path("system", "default"))
    experiment = Experiment(WorkloadSource.of_model(job), system, network, MemoryConfig())
    made.add_run(experiment, simulate(job, system, network))
    return made


def folder_of(study):
    """Return the folder of the only run."""
    (folder,) = study.run_dirs()
    return folder


def errors(study):
    """Return what `doctor` says is wrong."""
    return [finding.cause for finding in check_study(study) if finding.severity == "error"]


def test_a_whole_result_is_read_and_sha256sum_agrees(study):
    assert errors(study) == []
    done = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"], cwd=folder_of(study), capture_output=True, check=True
    )
    assert len(done.stdout.splitlines()) == len(list(folder_of(study).iterdir())) - 1


@pytest.mark.parametrize("name", [*RESULT, *INPUTS, "run.json"])
@pytest.mark.parametrize("how", ["one byte", "one byte less", "missing"])
def test_any_change_is_named_by_doctor(study, name, how):
    file = folder_of(study) / name
    content = file.read_bytes()
    middle = len(content) // 2
    if how == "missing":
        file.unlink()
    elif how == "one byte":
        file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    else:
        file.write_bytes(content[:-1])
    if (name, how) != ("run.json", "missing"):  # then it is no run at all
        (cause,) = errors(study)
        assert str(file) in cause
        readers = (
            [study.runs] if name == "run.json" else [study.result] if name in RESULT else [study.experiment]
        )
        for read in readers:
            with pytest.raises(StudyError, match=name):
                read()


@pytest.mark.parametrize("name", ["run.json", "result.json"])
@pytest.mark.parametrize("checked", [True, False])
def test_another_makespan_is_named_by_every_command(study, name, checked, capsys):
    file = folder_of(study) / name
    file.write_text(json.dumps(json.loads(file.read_text()) | {"makespan_ns": 1}))
    if not checked:  # as version 0.2 wrote it
        (folder_of(study) / "SHA256SUMS").unlink()
    for command in ("summary", "critical-path", "doctor"):
        with pytest.raises(SystemExit):
            cli_main([command, str(study.path)])
        said = capsys.readouterr()
        assert f"{name}" in said.err + said.out
        assert "Traceback" not in said.err


def test_a_damaged_run_is_deleted_by_its_id(study):
    file = folder_of(study) / "run.json"
    file.write_text("{}")
    study.delete_run(file.parent.name)
    assert study.runs() == []


@pytest.mark.parametrize("content", [b"\xff", b"0  run.json", b"0" * 64 + b"  ../../study.json\n", b"\0" * 9])
def test_damaged_checksums_are_named(study, content):
    (folder_of(study) / "SHA256SUMS").write_bytes(content)
    with pytest.raises(StudyError, match="SHA256SUMS is damaged"):
        study.result()
    assert "SHA256SUMS is damaged" in errors(study)[0]


def test_a_damaged_run_leaves_the_others_checked(study):
    (damaged,) = study.run_dirs()
    whole = damaged.with_name("0" * 16)
    whole.mkdir()
    for file in damaged.iterdir():
        (whole / file.name).write_bytes(file.read_bytes())
    (damaged / "run.json").write_text("{}")
    (cause,) = errors(study)
    assert str(damaged / "run.json") in cause


def test_a_damaged_note_is_a_finding_and_gives_way_to_a_new_label(study):
    folder = folder_of(study)
    study.annotate(folder.name, label="mine", note="text")
    (folder / "note.json").write_text('{"label": "mi')
    (finding,) = (
        finding
        for finding in check_study(study)
        if finding.severity == "warning" and finding.place.endswith(folder.name)
    )
    assert f"note.json of {folder.name} is damaged" in finding.cause
    assert "note.json" in study.runs()[0].note
    info = study.annotate(folder.name, label="again")
    assert (info.label, info.note) == ("again", "")


def test_results_of_earlier_versions_are_a_note(study):
    (folder_of(study) / "SHA256SUMS").unlink()
    assert [finding.cause for finding in check_study(study) if finding.severity == "note"] == [
        f"1 run has no checksums, which version 0.3 introduced: {folder_of(study).name}."
    ]


def test_a_result_without_a_study_is_checked_too(study, tmp_path):
    study.result().save(tmp_path / "alone")
    assert Result.load(tmp_path / "alone").makespan_ns == study.result().makespan_ns
    (tmp_path / "alone" / "result.json").write_text("{}")
    with pytest.raises(StudyError, match=r"result\.json is damaged: it differs from its checksum"):
        Result.load(tmp_path / "alone")
