"""Calls every command and option with hostile arguments, on full disks, read-only folders and closed pipes.

    python tests/fuzz/commands.py --calls 5000           all commands
    python tests/fuzz/commands.py --only run --again 17  call 17 of that selection once more, with its output

Each call runs in a separate process, forked from one that imported every command, in a fresh copy of a
small study. A fault is a traceback, an undocumented exit code, a failure without a message, a signal,
`LIMIT_S` seconds, `MEMORY` bytes, a temporary file or helper process that stays, or a change outside the
working folder. The same ``--seed`` makes the same calls.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import faulthandler
import os
import random
import resource
import select
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import click

_HERE = Path(__file__).parent
sys.path[:0] = [str(_HERE), str(_HERE.parent)]

from calls import ROOM_BYTES, Call, commands_of, import_packages, make_call, make_template  # noqa: E402 - beside this file

LIMIT_S = 20.0
MEMORY = 2 << 30
EXIT_CODES = {0, 1, 2, 10, 11, 20, 21, 30, 31, 32, 40, 50, 51, 52, 53, 60, 70, 71, 130, 141}
_CRASHED = 250
_MEMORY_DISK = next(filter(os.path.isdir, ("/dev/shm",)), None)  # otherwise calls wait for the disk
_SET_SECURE_BITS, _NO_ROOT = 28, 3  # of prctl(2): programs that root starts gain nothing
_CAPABILITIES = 0x20080522  # the version of capset(2) with 64 capabilities
_LONGEST_MESSAGE = 20_000
_SIGNS = ("Traceback (most recent", "Exception ignored", "nanobind: leaked", "Fatal Python error")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a call: exit code, standard error, and the fault ("" for none)."""

    code: int
    stderr: str
    fault: str


def run_call(call: Call, template: Path) -> Outcome:
    """Run *call* in a fresh copy of *template* and return how it ended."""
    with tempfile.TemporaryDirectory(prefix="chakrascope-fuzz-", dir=_MEMORY_DISK) as name:
        folder = Path(name)
        shutil.copytree(template, folder / "work", symlinks=True)
        victim = folder / "victim"
        victim.mkdir()
        (victim / "file").write_text("unchanged", encoding="utf-8")
        if call.mode == "read-only":
            for path in [folder / "work", *(folder / "work").rglob("*")]:
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode & 0o555)
        run = sorted(path.name for path in (template / "study" / "runs").iterdir())[0]
        call = Call(tuple(word.replace("RUN", run) for word in call.arguments), call.mode)
        code, text, stderr, ended = _forked(call, folder / "work")
        fault = fault_of(code, text, stderr) if ended else f"ran {LIMIT_S:g} s, or left a helper behind"
        kept = [str(path) for path in folder.rglob("*.tmp") if path.name.startswith(".")]
        if not fault and kept:
            fault = f"left {kept[0]}"
        if not (victim / "file").is_file():
            fault = "removed what is outside the working folder"
        for path in folder.rglob("*"):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
    return Outcome(code, stderr, fault)


def _forked(call: Call, work: Path) -> tuple[int, str, str, bool]:
    """Return exit code, both outputs, and whether the call and all its helpers ended in time."""
    reading, writing = os.pipe()
    out_reading, out_writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.setsid()
        os.close(reading)
        os.close(out_reading)
        _child(call, work, out_writing, writing)
    os.close(writing)
    os.close(out_writing)
    if call.mode == "pipe":
        os.close(out_reading)
    texts: dict[int, bytearray] = {reading: bytearray()}
    if call.mode != "pipe":
        texts[out_reading] = bytearray()
    ended = _drain(texts, time.monotonic() + LIMIT_S + 5)
    with contextlib.suppress(ProcessLookupError):
        if not ended:
            os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    text, stderr = (texts.get(each, b"").decode("utf-8", "replace") for each in (out_reading, reading))
    for descriptor in texts:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(status), text, stderr, ended and "Timeout (0:" not in stderr


def _drain(texts: dict[int, bytearray], until: float) -> bool:
    """Read all pipes of *texts* to their ends; return False if the time limit passes first."""
    pending = set(texts)
    while pending:
        ready, _, _ = select.select(list(pending), [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return False
        for descriptor in ready:
            piece = os.read(descriptor, 1 << 16)
            texts[descriptor] += piece[: max(0, (1 << 20) - len(texts[descriptor]))]
            if not piece:
                pending.remove(descriptor)
    return True


def _child(call: Call, work: Path, out: int, err: int) -> None:
    """Run the call in this process and end it."""
    from chakrascope.cli import main

    code = _CRASHED
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.closerange(3, 256)
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - until the end
            for number, mode in ((0, "r"), (1, "w"), (2, "w"))
        )
        os.chdir(work)
        os.environ |= {"HOME": str(work), "COLUMNS": "100"}
        faulthandler.dump_traceback_later(LIMIT_S, exit=True, file=sys.stderr)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        if call.mode == "full":
            # Python writes the part that fits, and reads it next time; helpers inherit the environment.
            sys.dont_write_bytecode = True
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
            resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM_BYTES, ROOM_BYTES))
        _give_up_capabilities()
        main([os.fsdecode(argument) for argument in call.arguments])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    try:
        sys.stdout.flush()
    except OSError:
        code = 120  # as Python itself does
    os._exit(code)


def _give_up_capabilities() -> None:
    """Drop root's capabilities, so that file permissions apply to root."""
    libc = ctypes.CDLL(None)
    libc.prctl(_SET_SECURE_BITS, _NO_ROOT, 0, 0, 0)
    libc.capset((ctypes.c_uint32 * 2)(_CAPABILITIES, 0), (ctypes.c_uint32 * 6)())


def fault_of(code: int, stdout: str, stderr: str) -> str:
    """Return the fault of a call, or "" for none."""
    for sign in _SIGNS:
        if sign in stderr:
            frames = [line.strip() for line in stderr.splitlines() if line.strip().startswith("File ")]
            last = stderr.strip().splitlines()[-1]
            return f"{last[:160]} [{frames[-1] if frames else ''}]"
    if code < 0:
        return f"killed by signal {-code}"
    if code not in EXIT_CODES:
        return f"exit code {code}"
    if code not in {0, 141} and not (stdout + stderr).strip():
        return f"exit code {code} without a message"
    if len(stderr) > _LONGEST_MESSAGE:
        return f"a message of {len(stderr)} characters"
    return ""


def main() -> int:
    """Make the calls, print each fault once and the counts; return 1 if there is a fault."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0, help="number of the first call")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="commands, with commas between")
    parser.add_argument("--again", type=int, metavar="NUMBER", help="one call, with its output")
    asked = parser.parse_args()
    import_packages()
    commands = commands_of(asked.only.split(",") if asked.only else [])
    with tempfile.TemporaryDirectory(prefix="chakrascope-fuzz-") as name:
        os.chmod(name, 0o755)
        template = Path(name, "template")
        if not make_template(template):
            return 2
        if asked.again is not None:
            call = make_call(commands, random.Random(f"{asked.seed} {asked.again}"))
            end = run_call(call, template)
            print(f"{text_of(call)}\nexit code {end.code} {end.fault}\n{end.stderr}")
            return bool(end.fault)
        numbers = range(asked.first, asked.first + asked.calls)
        return _fuzz(commands, template, numbers, asked.seed)


def _fuzz(commands: dict[str, click.Command], template: Path, numbers: range, seed: int) -> int:
    codes: Counter[int] = Counter()
    faults: Counter[str] = Counter()
    for number in numbers:
        call = make_call(commands, random.Random(f"{seed} {number}"))
        end = run_call(call, template)
        codes[end.code] += 1
        if end.fault:
            faults[end.fault] += 1
            if faults[end.fault] == 1:
                print(f"fault: {end.fault}\n  call {number}: {text_of(call)}", flush=True)
    counts = ", ".join(f"{code}: {count}" for code, count in sorted(codes.items()))
    print(f"{len(numbers)} calls, {faults.total()} faults; exit codes {counts}")
    return bool(faults)


def text_of(call: Call) -> str:
    """Return *call* as it would be typed."""
    words = [os.fsencode(word).decode("utf-8", "backslashreplace") for word in call.arguments]
    shown = shlex.join(word if len(word) < 200 else f"{word[:80]}...({len(word)})" for word in words)
    return f"[{call.mode}] chakrascope {shown}"


if __name__ == "__main__":
    sys.exit(main())
