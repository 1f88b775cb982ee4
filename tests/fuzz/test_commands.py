"""The fuzzer of commands makes calls, and recognises faults."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import script

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def commands():
    return script(HERE / "commands.py")


def test_hostile_calls_end_with_a_message():
    command = [sys.executable, HERE / "commands.py", "--calls", "20", "--seed", "1", "--first", "8000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^20 calls, 0 faults; exit codes 0: \d+, ", done.stdout, re.MULTILINE)


def test_every_command_has_right_arguments_to_start_from(commands):
    import calls

    assert set(commands.commands_of([])) == set(calls._BASES) | set(calls._ENDLESS)


def test_a_call_depends_on_its_seed_alone(commands):
    import random

    found = commands.commands_of([])
    made = [[commands.make_call(found, random.Random(f"7 {n}")) for n in range(200)] for _ in range(2)]
    assert made[0] == made[1]
    assert len(set(made[0])) > 150


@pytest.mark.parametrize(
    ("code", "out", "err", "fault"),
    [
        (0, "", "", ""),
        (1, "2 problems", "", ""),
        (40, "", "error: no such network", ""),
        (141, "", "", ""),
        (40, "", "", "without a message"),
        (120, "", "broken pipe", "exit code 120"),
        (-11, "", "", "signal 11"),
        (1, "", 'Traceback (most recent call last)\n  File "x.py", line 3\nKeyError: 7', "KeyError: 7"),
        (40, "", "x" * 30_000, "30000 characters"),
    ],
)
def test_faults_are_recognised(commands, code, out, err, fault):
    assert bool(commands.fault_of(code, out, err)) == bool(fault)
    assert fault in commands.fault_of(code, out, err)
