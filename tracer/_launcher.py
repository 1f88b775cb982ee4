"""Run an unmodified training command under capture."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from ..errors import CaptureError
from ..support import Lifeline, count_text
from ._agent.process import ENVIRONMENT_KEY, signals_handled
from ._checks import check_command, prepare_folder
from ._merge import merge, read_statuses
from ._trace_set import TraceSet

INJECT = Path(__file__).resolve().parent / "_inject"
FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
POLL_SECONDS = 0.25
FLIGHT_RECORDER_ENTRIES = "20000"
FIRST_RANK = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
}


def trace(
    command: Sequence[str],
    out: str | Path,
    *,
    warmup: int = 3,
    steps: int = 3,
    modules: bool = True,
    stacks: bool = True,
    fake_world: int = 0,
    on_status: Callable[[str], None] | None = None,
) -> TraceSet:
    """Run the unchanged *command* and capture *steps* training steps of every rank into folder *out*.

    The command keeps its arguments, working directory, terminal, output and signals. A terminating signal to
    this process is forwarded to the command. If *steps* is 0, only the times of all steps are recorded.
    *warmup* steps run unprofiled first. With *warmup* 0, all work of the script is captured from the start,
    even if the script takes no step. If *stacks* is true, the Python stacks of all threads are sampled during
    the whole run. If *fake_world* is not 0, the command is one process that acts as rank 0 of *fake_world*
    ranks, with torch's fake process groups. *on_status* receives a sentence when a rank starts and ends
    recording. If the command fails, the capture until the failure is still returned: see
    ``TraceSet.exit_code`` and ``TraceSet.partial``.

    Raises:
        UsageError: no command, a number of steps or ranks out of range, or a launcher in a fake world.
        CaptureError: the command or script does not exist, or *out* already contains a trace set or cannot be
            written to.
        NothingCaptured: the command ran, but no step was recorded.
        CommandFailed: no step was recorded, and the command failed with ``exit_code``.

    """
    folder = Path(out).absolute()
    check_command(command, warmup, steps, fake_world)
    prepare_folder(folder)
    options = {
        "warmup": warmup,
        "steps": steps,
        "modules": modules,
        "stacks": stacks,
        "fake_world": fake_world,
    }
    with contextlib.closing(Lifeline()) as lifeline:
        process = _start(command, _environment(folder, options), lifeline)
        with signals_handled(Lifeline.SIGNALS, functools.partial(_forward, lifeline)):
            code = _wait(process, folder, on_status)
            return merge(folder, command, 128 - code if code < 0 else code, options)


def environment_with_agent(**options: Any) -> dict[str, str]:
    """Return the environment of a process that loads the agent with *options*."""
    inherited = os.environ.get("PYTHONPATH")
    path = f"{INJECT}{os.pathsep}{inherited}" if inherited else str(INJECT)
    return {**os.environ, "PYTHONPATH": path, ENVIRONMENT_KEY: json.dumps(options)}


def _environment(folder: Path, options: dict[str, Any]) -> dict[str, str]:
    environment = environment_with_agent(out=str(folder), **options)
    environment.setdefault("TORCH_FR_BUFFER_SIZE", FLIGHT_RECORDER_ENTRIES)
    if options["fake_world"]:
        environment.update(FIRST_RANK, WORLD_SIZE=str(options["fake_world"]))
    return environment


def _start(
    command: Sequence[str], environment: dict[str, str], lifeline: Lifeline
) -> subprocess.Popen[bytes]:
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        return lifeline.start(command, foreground=True, env=environment)
    except FileNotFoundError:
        raise CaptureError(
            f"There is no command '{command[0]}'. Check its spelling, or activate its environment."
        ) from None
    except OSError as error:
        raise CaptureError(
            f"'{command[0]}' cannot be run: {error.strerror}. To run a script, put `python` before it; "
            "'chakrascope summary' reads a trace."
        ) from None


def _wait(process: subprocess.Popen[bytes], folder: Path, on_status: Callable[[str], None] | None) -> int:
    """Wait for the end of the command, report the ranks' progress, and return the raw exit status."""
    reported: dict[int, str] = {}
    while True:
        try:
            code = process.wait(timeout=POLL_SECONDS if on_status else None)
        except subprocess.TimeoutExpired:
            code = None
        if on_status is not None:
            _report(folder, reported, on_status)
        if code is not None:
            return code


def _report(folder: Path, reported: dict[int, str], on_status: Callable[[str], None]) -> None:
    for status in read_statuses(folder):
        rank = status.rank
        if rank is None:
            continue
        if rank.device_trace is None:
            sentence = f"rank {rank.rank}: recording after {count_text(status.steps_seen, 'step')}"
        else:
            sentence = f"rank {rank.rank}: captured {count_text(len(rank.steps), 'step')}"
        if reported.get(status.pid) != sentence:
            reported[status.pid] = sentence
            on_status(sentence)


def _forward(lifeline: Lifeline, number: int, _frame: FrameType | None) -> None:
    """Forward a signal of this process to the command under *lifeline*.

    Ctrl-C in a terminal reaches the whole foreground group, including the command, so it is not forwarded.
    """
    if not (number in FROM_TERMINAL and _in_foreground()):
        lifeline.send(number)


def _in_foreground() -> bool:
    """Return whether this process belongs to its terminal's foreground group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
