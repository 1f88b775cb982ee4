"""Tables of operations on the command line: what is printed, in which format, and what is refused."""

import csv
import io
import json
from pathlib import Path

import pytest

from chakrascope.cli import main
from chakrascope.runner import Study

from ..step_times import data_parallel_job

DATA = Path(__file__).parents[1] / "data" / "runner" / "stragglers"
TABLE = DATA / "slow-worker.parquet"


def run(capfd, *arguments):
    """Return exit code, standard output and error of one command."""
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    out, err = capfd.readouterr()
    return end.value.code, out, err


def test_the_answer_names_the_slow_worker(capfd):
    code, out, _ = run(capfd, "diagnose", TABLE)
    assert code == 0
    first, *lines = out.splitlines()
    assert first == (
        "Stragglers make the job 1.975 times as slow as it is without them "
        "(16 workers: 4 replicas of 4 stages; 2 steps)."
    )
    assert "(M_W): 0.985, without the last stage (M_S): -0.001." in out
    assert any(
        line.startswith("1. Slow worker: rank 0 (dp_rank 0, stage 0), in all steps.") for line in lines
    )
    assert "    rank 0 ##" in lines
    assert "   rank 60 -." in out
    assert lines[-1] == f"Next: chakrascope diagnose {TABLE} --view steps"


def test_json_and_csv(capfd):
    _, out, _ = run(capfd, "diagnose", DATA / "long-stage.parquet", "--format", "json")
    facts = json.loads(out)
    expected = json.loads((DATA / "expected.json").read_text())["long-stage"]
    assert facts["kind"] == "operations"
    assert facts["slowdown"] == pytest.approx(expected["slowdown"], rel=1e-5)
    assert facts["causes"][0]["kind"] == "stage"
    assert facts["causes"][0]["steps"] == [23, 263, 1048]
    assert {row["step"]: row["stage 3"] for row in facts["steps"]} == pytest.approx(
        {int(step): by["3"] for step, by in expected["by_stage"].items()}, rel=1e-5
    )
    assert len(facts["heat-map"]) == len(facts["workers"]) == 8
    _, out, _ = run(capfd, "diagnose", TABLE, "--view", "heat-map", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 16
    assert float(rows[0]["step 27"]) > 1.9
    _, out, _ = run(capfd, "diagnose", TABLE, "--view", "workers", "--format", "json")
    assert json.loads(out)[0]["rank"] == 0


@pytest.mark.parametrize("view", ["causes", "types", "workers", "steps", "heat-map"])
def test_every_view_is_printed(capfd, view):
    code, out, _ = run(capfd, "diagnose", TABLE, "--view", view)
    assert code == 0
    assert "times as slow" not in out
    assert out


def test_refused(tmp_path, capfd):
    code, _, err = run(capfd, "diagnose", TABLE, "--view", "speeds")
    assert code == 2
    assert "causes, types, workers, steps, heat-map" in err
    for wrong in ([TABLE, TABLE], [TABLE, "--run", "measured"]):
        code, _, err = run(capfd, "diagnose", *wrong)
        assert code == 2
        assert "name one TABLE without --run" in err
    code, _, err = run(capfd, "diagnose", TABLE, "--format", "csv")
    assert code == 2
    assert "CSV holds one table" in err
    (tmp_path / "bad.csv").write_text("step,optype\n1,forward-compute\n")
    code, _, err = run(capfd, "diagnose", tmp_path / "bad.csv")
    assert code == 21
    assert "has no column 'dp_rank'" in err


def every_tenth(number):
    return number % 10 == 5


@pytest.mark.parametrize(
    ("planted", "sentence"),
    [
        ({"slow": 2}, "Slow worker: rank 2 (dp_rank 2, stage 0), in all steps."),
        (
            {"slow": 2, "wanted": every_tenth},
            "Slow worker: rank 2 (dp_rank 2, stage 0), in 4 of 40 steps, every 10th.",
        ),
        ({"slow": 1, "phase": "loader"}, "Late input: rank 1 (dp_rank 1, stage 0), in all steps."),
        (
            {"slow": 3, "phase": "pause", "wanted": every_tenth},
            "Garbage collection: rank 3 (dp_rank 3, stage 0), in 4 of 40 steps, every 10th.",
        ),
        (
            {"slow": 9, "wanted": lambda number: number >= 20},
            "Slow transfer: collectives of stage 0, in 20 of 40 steps, since step 20.",
        ),
        ({}, ""),
    ],
)
def test_recorded_steps_name_the_cause_alone(capfd, tmp_path, planted, sentence):
    study = tmp_path / "study"
    Study.create(study)
    data_parallel_job(study / "traces" / "capture-1", **planted)
    _, out, _ = run(capfd, "diagnose", study)
    assert (f"\n1. {sentence}" if sentence else "No worker, stage, link or host makes") in out
    assert "\n2. " not in out
    _, of_folder, _ = run(capfd, "diagnose", study / "traces" / "capture-1")
    assert of_folder == out


def test_a_run_is_explained_where_it_is_named(capfd, tmp_path):
    Study.create(tmp_path / "study")
    data_parallel_job(tmp_path / "study" / "traces" / "capture-1")
    code, _, err = run(capfd, "diagnose", tmp_path / "study", "--run", "abc")
    assert code != 0
    assert "has no run yet" in err
    code, _, err = run(capfd, "convert", tmp_path / "study")
    assert code != 0
    assert "chakrascope diagnose" in err
