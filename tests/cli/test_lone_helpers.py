"""No process outlives the command that started it, however that one ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from studies import make_study


def started_by(pid):
    """Return the processes that *pid* started, and those that these did."""
    found = set()
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, file.read_text().split()):
                found |= {child} | started_by(child)
    return found


def alive(pids):
    """Return those of *pids* that run and are no zombies."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            found |= {pid} if state != "Z" else set()
    return found


def until(condition, seconds=60.0):
    """Wait until *condition* holds, and return whether it did."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def convert(_):
    """Workers of a conversion whose ranks never end."""
    code = "import time; from chakrascope.converter.building import _workers;"
    return ["-c", f"{code} list(_workers._mapped(time.sleep, [600] * 3, 2))"], 3


def sweep(folder):
    """Workers of a sweep that wait for work."""
    code = "import time, pathlib; from chakrascope.runner.sweep import _pool;"
    code += f"here = pathlib.Path({str(folder)!r});"
    return ["-c", f"{code} kept = [_pool._Worker(here, here / 'log') for _ in range(2)]; time.sleep(600)"], 2


def foreign(folder):
    """A program of others and what it started."""
    code = "import time, pathlib; from chakrascope.runner.backends import _process;"
    command = ["/bin/sh", "-c", "sleep 600 & sleep 600"]
    code += f"kept = _process.Guarded({command}, pathlib.Path({str(folder)!r}), None); time.sleep(600)"
    return ["-c", code], 4


def query(folder):
    """A query that takes for ever."""
    made = make_study(folder / "study")
    sql = "select count(*) from nodes a, range(100000000) b, range(100000000) c"
    return ["-m", "chakrascope.cli", "query", made.study.path, sql, "--timeout", "600"], 1


def trace(folder):
    """A training command that starts others, one of them in a session of its own."""
    script = folder / "train.py"
    script.write_text(
        "import subprocess, time\n"
        "subprocess.Popen(['sleep', '600'])\n"
        "subprocess.Popen(['sh', '-c', 'sleep 600; sleep 600'], start_new_session=True)\n"
        "time.sleep(600)\n"
    )
    command = ["-m", "chakrascope.cli", "trace", "-o", folder / "study", "--", sys.executable, script]
    return command, 5  # the command, three that it starts, and who watches over them


COMMANDS = {"convert": convert, "foreign": foreign, "query": query, "sweep": sweep}
ENDS = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "interrupt": signal.SIGINT}


@pytest.mark.parametrize(
    ("name", "end"),
    [*((name, "kill") for name in COMMANDS), ("foreign", "terminate"), ("convert", "interrupt")],
)
def test_no_helper_outlives_its_command(tmp_path, name, end):
    arguments, least = COMMANDS[name](tmp_path)
    command = subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    helpers = set()
    try:
        assert until(lambda: len(started_by(command.pid)) >= least or command.poll() is not None)
        assert command.poll() is None, command.stderr.read()
        helpers = started_by(command.pid)
        command.send_signal(ENDS[end])
        assert until(lambda: not alive(helpers))
        assert until(lambda: command.poll() is not None)
    finally:
        command.kill()
        for left in alive(helpers):
            os.kill(left, signal.SIGKILL)
        command.communicate()


def test_a_training_command_does_not_outlive_a_killed_trace(tmp_path):
    arguments, least = trace(tmp_path)
    command = subprocess.Popen(
        [sys.executable, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    helpers = set()
    try:
        assert until(lambda: len(started_by(command.pid)) >= least)
        helpers = started_by(command.pid)
        command.kill()
        assert until(lambda: not alive(helpers))
    finally:
        command.kill()
        for left in alive(helpers):
            os.kill(left, signal.SIGKILL)
        command.wait()
