"""No process outlives the command that started it, however that one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from processes import descendants, is_running, wait_for
from studies import make_study


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
    helpers = []
    try:
        wait_for(lambda: len(descendants(command.pid)) >= least or command.poll() is not None)
        assert command.poll() is None, command.stderr.read()
        helpers = descendants(command.pid)
        command.send_signal(ENDS[end])
        wait_for(lambda: not any(map(is_running, helpers)))
        wait_for(lambda: command.poll() is not None)
    finally:
        command.kill()
        for left in filter(is_running, helpers):
            os.kill(left, signal.SIGKILL)
        command.communicate()


def test_a_training_command_does_not_outlive_a_killed_trace(tmp_path):
    arguments, least = trace(tmp_path)
    command = subprocess.Popen(
        [sys.executable, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    helpers = []
    try:
        wait_for(lambda: len(descendants(command.pid)) >= least)
        helpers = descendants(command.pid)
        command.kill()
        wait_for(lambda: not any(map(is_running, helpers)))
    finally:
        command.kill()
        for left in filter(is_running, helpers):
            os.kill(left, signal.SIGKILL)
        command.wait()
