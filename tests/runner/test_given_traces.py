"""Traces where a study goes: read, kept by their content, found again, and refused by name."""

from __future__ import annotations

import gzip
import json
import shutil

import pytest

from chakrascope.cli import main
from chakrascope.errors import StudyError
from chakrascope.runner import analyse_run, clear_kept_traces, kept_traces, read_side, study_of_traces


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
    """Return the study of *paths*, and how many ranks were converted for it."""
    done = []
    study = study_of_traces(paths, lambda number, _of: done.append(number))
    return study, max(done, default=0)


def test_a_trace_is_replayed_as_it_was_measured_and_found_again_by_its_content(trace, tmp_path):
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
    assert [path for path, _ in kept_traces()] == [after.path, before.path]
    assert clear_kept_traces() > 0
    assert kept_traces() == []


def test_the_files_of_a_job_and_their_folder_are_the_same_study(ranks):
    by_name = study_of_traces(sorted(ranks.iterdir()))
    assert by_name.run_info().num_ranks == 8  # the two stand for the others
    assert study_of_traces([ranks]).path == by_name.path
    one, _ = converted_ranks([ranks / "kineto_1.json.gz"])
    assert one.path != by_name.path


def test_what_cannot_be_read_is_refused_and_leaves_nothing(trace, tmp_path, ranks, cache):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(StudyError, match=r"notes.txt is neither a study nor a trace"):
        study_of_traces([tmp_path / "notes.txt"])
    with pytest.raises(StudyError, match=r"holds 2 things: bert.json.gz, job/kineto_.*import STUDY"):
        study_of_traces([tmp_path])
    with pytest.raises(StudyError, match=r"one folder; these lie in"):
        study_of_traces([trace, ranks / "kineto_0.json.gz"])
    (tmp_path / "cut.json.gz").write_bytes((tmp_path / "bert.json.gz").read_bytes()[:9000])
    with pytest.raises(Exception, match=r"cut\.json\.gz"):
        study_of_traces([tmp_path / "cut.json.gz"])
    assert kept_traces() == []
    shutil.rmtree(cache, ignore_errors=True)
    cache.write_text("a file where the folder should be")
    with pytest.raises(StudyError, match=r"cannot be used .*XDG_CACHE_HOME"):
        study_of_traces([trace])


def command(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    shown = capsys.readouterr()
    return stop.value.code, shown.out, shown.err


def test_commands_take_a_trace_for_a_study(trace, capsys, tmp_path):
    code, out, err = command(capsys, "summary", trace)
    assert (code, "The step takes" in out, "as measured" in out) == (0, True, True), err
    assert f"chakrascope what-if {trace} --run" in out
    code, out, err = command(
        capsys, "what-if", trace, "--faster", "operator:aten::addmm=2", "--format", "csv"
    )
    assert code == 0, err
    assert command(capsys, "report", trace, "-o", tmp_path / "r.html")[0] == 0
    assert read_side(str(trace)).steps[0].makespan_ns == study_of_traces([trace]).run_info().makespan_ns
    code, out, err = command(capsys, "diff", trace, trace, "--format", "csv", "--view", "figures")
    assert code == 0, err
    assert "Deleted" in command(capsys, "studies", "--clear-traces")[1]


@pytest.mark.parametrize(
    "words", [["TRACE"], ["convert", "TRACE"], ["profile", "-o", "STUDY", "--", "TRACE"]]
)
def test_other_first_commands_lead_to_the_answer(trace, tmp_path, capsys, words):
    places = {"TRACE": trace, "STUDY": tmp_path / "s"}
    code, _, err = command(capsys, *(places.get(word, word) for word in words))
    assert code != 0
    assert "chakrascope summary" in err
