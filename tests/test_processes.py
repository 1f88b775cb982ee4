"""Processes that tests start end with the tests."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import is_running, wait_for

# Starts a process that outlives it, as the process of a job does, says which, and works on.
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
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)},
    )
    assert test.stdout is not None
    started = int(test.stdout.readline())
    if end != "over":
        test.send_signal(signal.SIGINT if end == "interrupted" else signal.SIGKILL)
    test.wait(300)
    test.stdout.close()
    wait_for(lambda: not is_running(started))
