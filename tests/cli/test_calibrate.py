"""``chakrascope calibrate`` as people type it."""

from __future__ import annotations

import json
import shutil

import pytest
import yaml
from command_line import run

from chakrascope.runner import NetworkConfig, Study


@pytest.fixture
def logs(data_dir):
    return str(data_dir / "converter" / "logs")


def test_logs_become_a_network_file_with_a_picture(logs, tmp_path, capsys):
    path = tmp_path / "network.yml"
    assert not run("calibrate", logs, "-o", path)
    told = capsys.readouterr().out
    assert "Network, fitted to flight logs" in told
    assert "Next: chakrascope run STUDY --network" in told
    network = NetworkConfig.load(path)
    assert network.npus_count == (2,)
    assert network.calibration["fitted-on"] == "flight logs"
    assert path.with_suffix(".svg").read_text().startswith("<svg")


def test_a_capture_becomes_a_network_file_that_its_study_runs_on(data_dir, tmp_path, capsys):
    study = Study.create(tmp_path / "study")
    shutil.copytree(data_dir / "converter" / "mlp_2", study.path / "traces" / "capture-1")
    path = tmp_path / "network.yml"
    assert not run("calibrate", study.path, "-o", path)
    assert "Not determined" in capsys.readouterr().out
    assert not run("convert", study.path)
    assert not run("run", study.path, "--network", path)
    assert "capture-1" in capsys.readouterr().out


def test_json_and_csv_have_the_figures_of_the_file(logs, tmp_path, capsys):
    path = tmp_path / "network.yml"
    assert not run("calibrate", logs, "-o", path, "--format", "json")
    told = json.loads(capsys.readouterr().out)
    stored = yaml.safe_load(path.read_text())["calibration"]
    assert stored.pop("when")
    assert told == stored
    assert not run("calibrate", logs, "--format", "csv")
    assert capsys.readouterr().out.startswith("dimension,operation,ranks,size_bytes,count")


def test_what_is_known_is_taken_as_it_is(logs, capsys):
    options = ("--bandwidth", "8Gb/s", "--latency", "1us", "--wire", "1448/1538", "--format", "json")
    assert not run("calibrate", logs, *options)
    (dimension,) = json.loads(capsys.readouterr().out)["dimensions"]
    assert dimension["bandwidth-bytes-per-ns"] == {"known": "given", "value": 1.0}
    assert dimension["latency-ns"] == {"known": "given", "value": 1000.0}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Give a STUDY, or LOGS, or --hosts"),
        (("LOGS", "--hosts", "loopback"), "one of them"),
        (("LOGS", "--workload", "x"), "--workload names a workload of a STUDY"),
        (("LOGS", "--wire", "2"), "at most 1"),
        (("LOGS", "--wire", "1/0"), "not a share of one"),
        (("LOGS", "--bandwidth", "fast"), "is not a bandwidth"),
        (("LOGS", "--latency", "soon"), "is not a duration"),
        (("LOGS", "--system", "none"), "no system preset"),
        (("LOGS", "-o", "network.txt"), "does not end in .yml"),
        (("nowhere",), "nowhere"),
        (("--hosts", "loopback", "--largest", "5"), "1KiB or more"),
        (("--hosts", "none.yml"), "none.yml"),
    ],
)
def test_bad_input_is_named(arguments, said, logs, capsys):
    assert run("calibrate", *(logs if word == "LOGS" else word for word in arguments))
    told = " ".join(capsys.readouterr().err.split())
    assert said in told
    assert "Traceback" not in told


def test_a_study_without_measurements_says_what_to_do(tmp_path, capsys):
    Study.create(tmp_path / "study")
    assert run("calibrate", tmp_path / "study")
    assert "holds nothing measured" in capsys.readouterr().err
