"""``chakrascope diff`` and its limits, and what CI systems read of it and of ``doctor``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import command_line
import pytest
from studies import make_study

TRAIN = """
import argparse, torch, torch.distributed as dist
from torch import nn
parser = argparse.ArgumentParser()
parser.add_argument("--slow", type=int, default=0)
slow = parser.parse_args().slow
torch.set_num_threads(1)
dist.init_process_group("gloo")
big = torch.zeros(1 << 22)
class Block(nn.Module):
    def __init__(self, slow):
        super().__init__()
        self.linear, self.slow = nn.Linear(64, 64), slow
    def forward(self, x):
        for _ in range(self.slow):
            torch.cos(big)
        return torch.relu(self.linear(x))
model = nn.parallel.DistributedDataParallel(nn.Sequential(Block(0), Block(slow), Block(0)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(9):
    optimizer.zero_grad()
    model(torch.randn(64, 64)).square().mean().backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("diff") / "study")


@pytest.fixture
def runs(made):
    return f"{made.study.path}@{made.run_b}", f"{made.study.path}@{made.run_b}"


def test_the_same_run_twice_is_no_change(runs, capsys):
    assert command_line.run("diff", *runs, "--fail-if", "step > +0%", "--fail-if", "compute > +0ns") == 0
    shown = capsys.readouterr().out
    assert "no difference" in shown
    assert "there is no noise" in shown


def test_a_passed_limit_has_an_exit_code_and_a_junit_file_of_its_own(made, tmp_path, capsys):
    sides = [f"{made.study.path}@{run}" for run in (made.run_a, made.run_b)]
    file = tmp_path / "junit.xml"
    limits = ["--fail-if", "bytes > +1GiB", "--fail-if", "step > 1us", "--junit", str(file)]
    assert command_line.run("diff", *sides, *limits, "--format", "json") == 70
    document = json.loads(capsys.readouterr().out)
    assert [one["fails"] for one in document["limits"]] == [False, True]
    assert sum(row["delta_ns"] for row in document["waterfall"]) == document["delta_ns"]
    suite = ElementTree.parse(file).getroot()
    assert suite.attrib["tests"] == "2"
    assert suite.attrib["failures"] == "1"
    failed = [case.attrib["name"] for case in suite if case.find("failure") is not None]
    assert failed == ["step > 1us"]


def test_one_measured_step_is_undecided_unless_strict(made, tmp_path):
    sides = [f"{made.study.path}@{run}" for run in (made.run_b, made.run_a)]
    file = tmp_path / "junit.xml"
    arguments = ["diff", *sides, "--fail-if", "step < +5s", "--junit", str(file)]
    assert command_line.run(*arguments) == 71
    assert ElementTree.parse(file).getroot().attrib["skipped"] == "1"
    assert command_line.run(*arguments, "--strict") == 70
    assert ElementTree.parse(file).getroot().attrib["failures"] == "1"


@pytest.mark.parametrize(
    ("view", "output_format"),
    [
        ("waterfall", "table"),
        ("figures", "csv"),
        ("classes", "json"),
        ("operators", "table"),
        ("modules", "csv"),
        ("collectives", "json"),
        ("paths", "csv"),
    ],
)
def test_every_table_prints(runs, view, output_format, capsys):
    assert command_line.run("diff", *runs, "--view", view, "--format", output_format) == 0
    assert capsys.readouterr().out


def test_wrong_use_says_what_to_do(runs, capsys):
    assert command_line.run("diff", *runs, "--strict") == 2
    assert command_line.run("diff", *runs, "--fail-if", "step > 3%") == 2
    assert "+3%" in capsys.readouterr().err
    assert command_line.run("diff", "no-such-study", runs[0]) == 60


def test_the_doctor_writes_junit(tmp_path, capsys):
    graph = Path(__file__).parent.parent / "data" / "converter" / "chakra" / "public"
    file = tmp_path / "junit.xml"
    assert command_line.run("doctor", str(graph), "--junit", str(file)) == 1
    suite = ElementTree.parse(file).getroot()
    assert int(suite.attrib["failures"]) > 0
    assert "does not exist" in ElementTree.tostring(suite, "unicode")
    assert command_line.run("doctor", "backends", "--junit", str(file)) == 2
    capsys.readouterr()


def test_a_sound_study_is_one_passed_check(made, tmp_path, capsys):
    file = tmp_path / "junit.xml"
    assert command_line.run("doctor", str(made.study.path), "--junit", str(file)) == 0
    suite = ElementTree.parse(file).getroot()
    assert suite.attrib["failures"] == "0"
    assert int(suite.attrib["tests"]) >= 1
    capsys.readouterr()


@pytest.mark.torch
def test_a_layer_that_became_slower_is_found_in_real_captures(tmp_path, capsys):
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    for study, slow in (("before", "0"), ("after", "24")):
        command = [
            sys.executable,
            "-m",
            "chakrascope.cli",
            "trace",
            "-o",
            str(tmp_path / study),
            "--steps",
            "4",
        ]
        job = ["--", sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        subprocess.run([*command, *job, str(script), "--slow", slow], check=True, capture_output=True)
    before, after = str(tmp_path / "before"), str(tmp_path / "after")
    limit = ["--between-starts", "50%", "--fail-if", "step > +3%", "--format", "json"]
    assert command_line.run("diff", before, before, *limit) == 0
    capsys.readouterr()
    assert command_line.run("diff", before, after, *limit) == 70
    found = json.loads(capsys.readouterr().out)
    assert sum(row["delta_ns"] for row in found["waterfall"]) == found["delta_ns"] > 20_000_000
    assert found["modules"][0]["key"] == "1"
    assert found["modules"][0]["verdict"] == "more"
    assert {row["key"]: row["change"] for row in found["operators"]}["aten::cos"] == "new"
