"""Tables of operations on the command line: what is printed, in which format, and what is refused."""

import csv
import io
import json
from pathlib import Path

import pytest

from chakrascope.cli import main

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
