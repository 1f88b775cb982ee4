"""Production logs on the command line: what is printed, in which format, and what is refused."""

import csv
import io
import json

import pytest
from command_line import run_and_read
from log_files import Job, straggling_job

from chakrascope.converter import Workload
from chakrascope.converter.chakra import GAP


@pytest.fixture
def logs(tmp_path):
    return straggling_job().write(tmp_path / "logs")


@pytest.fixture
def hang(tmp_path):
    job = Job(2)
    job.collective()
    job.collective(missing=(1,))
    return job.write(tmp_path / "hang")


def test_inspect_names_the_straggler_and_prints_all_tables(logs, capfd):
    code, out, _ = run_and_read(capfd, "diagnose", logs)
    assert code == 0
    assert "Rank 3 comes last in " in out
    for title in ("Who comes last", "Collectives", "Speed by size, for calibration"):
        assert title in out
    assert out.splitlines()[-1] == f"Next: chakrascope convert {logs} -o PREFIX"
    code, out, _ = run_and_read(capfd, "diagnose", *sorted(logs.iterdir()), "--view", "speeds")
    assert "Who comes last" not in out
    assert "Speed by size" in out


def test_inspect_as_json_and_csv(logs, capfd):
    _, out, _ = run_and_read(capfd, "diagnose", logs, "--format", "json")
    facts = json.loads(out)
    assert facts["ranks"] == [0, 1, 2, 3]
    assert facts["groups"]["tp-1"] == [2, 3]
    assert facts["clocks"] == {"known_from": "ends", "ahead_ns": {}, "spread_ns": 0}
    assert facts["stragglers"][0]["rank"] == 3
    assert facts["findings"] == []
    assert len(facts["collectives"]) == 20
    for show, rows in (("collectives", 20), ("stragglers", len(facts["stragglers"])), ("speeds", 3)):
        _, out, _ = run_and_read(capfd, "diagnose", logs, "--view", show, "--format", "csv")
        assert len(list(csv.DictReader(io.StringIO(out)))) == rows
    code, _, err = run_and_read(capfd, "diagnose", logs, "--format", "csv")
    assert code == 2
    assert "CSV holds one table" in err


def test_a_hang_is_named_by_every_command(hang, capfd, tmp_path):
    said = "did not complete: rank 0 issued it, rank 1 never did."
    out = run_and_read(capfd, "diagnose", hang)[1]
    assert said in out
    assert "Next: " not in out  # what to do about it is among the findings
    code, out, _ = run_and_read(capfd, "doctor", hang)
    assert (code, said in out) == (1, True)
    code, _, err = run_and_read(capfd, "convert", hang, "-o", tmp_path / "w")
    assert (code, said in err) == (20, True)
    assert run_and_read(capfd, "convert", hang, "-o", tmp_path / "w", "--cut-unfinished")[0] == 0
    assert Workload.load(tmp_path / "w").num_ranks == 2


def test_a_study_from_logs_answers(logs, capfd, tmp_path):
    study = tmp_path / "study"
    assert run_and_read(capfd, "convert", study, logs)[0] == 0
    network = tmp_path / "net.yml"
    network.write_text("topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n")
    assert run_and_read(capfd, "run", study, "--network", network)[0] == 0
    _, out, _ = run_and_read(capfd, "summary", study)
    assert "gap between collectives, not profiled" in " ".join(out.split())
    code, out, _ = run_and_read(capfd, "timeline", study, "--measured", "--format", "json")
    assert code == 0
    assert {row["operator"] for row in json.loads(out)} >= {"all_reduce", GAP}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["convert", "LOGS"], "is not a study but logs"),
        (["convert", "STUDY", "--back-to-back"], "go with production logs"),
        (["convert", "LOGS", "-o", "w", "--step", "3"], "--step does not go with production logs"),
        (["convert", "LOGS", "-o", "w", "--rescale-host"], "--rescale-host does not go with"),
        (["convert", "LOGS", "-o", "w", "--device-trace", "x"], "--device-trace does not go with"),
        (["convert", "nowhere", "-o", "w"], "There is no file or folder nowhere"),
        (["convert"], "Give a STUDY"),
        (["inspect", "LOGS", "--node", "3"], "chakrascope diagnose"),
        (["diagnose", "w", "--view", "speeds"], "holds no logs"),
        (["diagnose", "LOGS", "--run", "measured"], "name LOGS without --run"),
    ],
)
def test_what_makes_no_sense_is_refused(logs, capfd, monkeypatch, arguments, said):
    monkeypatch.chdir(logs.parent)
    code, _, err = run_and_read(capfd, *(str(logs) if word == "LOGS" else word for word in arguments))
    assert code == 2
    assert said in " ".join(err.split())


def test_a_log_where_a_graph_belongs_is_told(logs, capfd):
    code, _, err = run_and_read(capfd, "run", "--workload-configuration", logs / "nccl_trace_rank_0.json")
    assert code != 0
    assert "Traceback" not in err


def test_names_in_logs_do_not_reach_the_terminal(tmp_path, capfd):
    job = Job(2, {"\x1b[31mred": [0, 1]})
    for _ in range(3):
        job.collective(group="\x1b[31mred")
    _, out, err = run_and_read(capfd, "diagnose", job.write(tmp_path / "logs"))
    assert "\x1b[31mred" not in out + err
    assert "red" in out
