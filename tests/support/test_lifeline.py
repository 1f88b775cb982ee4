"""Programs under a lifeline end with the process that started them, however and whenever it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from processes import is_running, wait_for

from chakrascope.support import Lifeline

PATIENCE_S = 300
# Starts a program, which holds standard output open, and is killed when the code says so.
ASKER = "import os, sys; from chakrascope.support import Lifeline; line = Lifeline(); start = line.start;"
FOREVER = ["sh", "-c", "sleep 600"]
# Leaves a process in a separate session, without a parent.
ORPHAN = ["sh", "-c", "(setsid sh -c 'echo $$; exec sleep 600' &); sleep 600"]


def ends_with_its_program(code: str, lines: int = 0) -> None:
    """Run *code*, kill it after a number of *lines*, and wait until all holders of its output have ended."""
    asker = subprocess.Popen([sys.executable, "-c", ASKER + code], stdout=subprocess.PIPE)
    try:
        assert asker.stdout is not None
        for _ in range(lines):
            assert asker.stdout.readline()
        if lines:
            asker.kill()
        asker.communicate(timeout=PATIENCE_S)
        assert asker.returncode == -signal.SIGKILL
    finally:
        asker.kill()


@pytest.mark.parametrize("foreground", [True, False])
def test_killed_as_soon_as_its_program_has_started(foreground):
    ends_with_its_program(f"start({FOREVER}, foreground={foreground}); os.kill(os.getpid(), 9)")


@pytest.mark.parametrize("foreground", [True, False])
def test_orphans_in_sessions_of_their_own_end_too(foreground):
    ends_with_its_program(f"start({ORPHAN}, foreground={foreground}).wait()", lines=1)


def test_only_in_the_foreground_a_process_survives_its_program():
    program = ["sh", "-c", "sleep 600 & echo $!"]
    with closing(Lifeline()) as lifeline:
        with lifeline.start(program, stdout=subprocess.PIPE) as ended:
            out, _ = ended.communicate(timeout=PATIENCE_S)
        assert not is_running(int(out))
        with lifeline.start(program, foreground=True, stdout=subprocess.PIPE) as ended:
            assert ended.stdout is not None
            left = int(ended.stdout.readline())
            assert ended.wait(PATIENCE_S) == 0
        assert is_running(left)
        os.kill(left, signal.SIGKILL)


def test_no_process_survives_a_signal_but_each_may_save_first():
    saves = "trap 'echo saved; exit' TERM; echo ready; while :; do sleep 0.05; done"
    program = ["sh", "-c", f"({saves}) & setsid sleep 600 & wait"]
    with (
        closing(Lifeline()) as lifeline,
        lifeline.start(program, foreground=True, stdout=subprocess.PIPE) as running,
    ):
        assert running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        lifeline.send(signal.SIGTERM)
        assert running.communicate(timeout=PATIENCE_S)[0] == b"saved\n"  # all that held it have ended
        assert running.returncode == 128 + signal.SIGTERM


def test_signals_reach_the_program_alone():
    trap = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done"
    for program, status in (["sh", "-c", trap], 7), (["sh", "-c", "echo ready; exec sleep 600"], 128 + 15):
        with closing(Lifeline()) as lifeline, lifeline.start(program, stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            assert running.stdout.readline() == b"ready\n"
            running.send_signal(signal.SIGTERM)  # the terminal's: the program gets a separate one
            running.send_signal(signal.SIGINT)
            lifeline.send(signal.SIGTERM)
            assert running.wait(PATIENCE_S) == status


def test_ignored_signals_stay_ignored():
    code = "import signal; print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with closing(Lifeline()) as lifeline:
            program = lifeline.start([sys.executable, "-c", code], stdout=subprocess.PIPE)
            assert program.communicate(timeout=PATIENCE_S)[0] == b"True\n"
    finally:
        signal.signal(signal.SIGHUP, before)


# Starts a process that outlives it, as a job's process does, prints its id, and continues. Processes that
# tests start end with the tests.

TEST = """
import subprocess, sys, time
from processes import ended_with_us
with ended_with_us():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    print(child.pid, flush=True)
    if sys.argv[1:] != ["over"]:
        time.sleep(600)
"""


@pytest.mark.parametrize("end", ["over", "interrupted", "killed"])
def test_orphaned_processes_end_with_the_tests(end):
    test = subprocess.Popen(
        [sys.executable, "-c", TEST, end],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert test.stdout is not None
    started = int(test.stdout.readline())
    if end != "over":
        test.send_signal(signal.SIGINT if end == "interrupted" else signal.SIGKILL)
    test.wait(300)
    test.stdout.close()
    wait_for(lambda: not is_running(started))
