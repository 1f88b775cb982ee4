"""Refuse invalid captures before the command runs."""

from __future__ import annotations

import difflib
import re
import socket
from collections.abc import Sequence
from pathlib import Path

from ..errors import CaptureError, UsageError
from ._agent.install import LAUNCHERS
from ._trace_set import MANIFEST_NAME, MAX_RANKS

# Python's short options that end with a module, code or a value, even if combined in one word (-um).
_NO_SCRIPT_NEXT = re.compile(r"-[A-Za-z]*[mcXW]")


def check_command(command: Sequence[str], warmup: int, steps: int, fake_world: int) -> None:
    """Check that *command* can be run and captured.

    Raises:
        UsageError: no command, a number out of range, or a launcher of several processes in a fake world.
        CaptureError: the script does not exist.

    """
    if not command:
        raise UsageError(
            "There is no command to run. Give it after `--`: chakrascope trace -o OUT -- python train.py"
        )
    if steps < 0 or warmup < 0:
        raise UsageError(
            f"--steps {steps} --warmup {warmup}: neither number can be negative. Next: use, for "
            "example, --steps 2 --warmup 3."
        )
    if steps == 0 and fake_world:
        raise UsageError("--steps 0 needs real ranks: in a fake world, no rank waits.")
    launcher = _launcher(command)
    if not 0 <= fake_world <= MAX_RANKS or (fake_world and launcher):
        raise UsageError(
            f"A fake world of {fake_world} ranks is one process: give --fake-world a number from 1 to "
            f"{MAX_RANKS}, and start the script by python, not by a launcher: "
            "chakrascope trace --fake-world 64 -- python train.py"
        )
    script = _launched_script(command) if launcher else _script(command)
    if script is not None and not Path(script).exists():
        raise CaptureError(_no_script(script))


def prepare_folder(folder: Path) -> None:
    """Prepare *folder* for a capture, and test in advance that it is writable."""
    if (folder / MANIFEST_NAME).exists():
        raise CaptureError(
            f"{folder} already contains a trace set. Choose another folder, or delete this one."
        )
    probe = folder / f".{socket.gethostname()}.probe"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"." * 4096)
        probe.unlink()
        for stale in (folder / "status").glob(f"{socket.gethostname()}.*.json"):
            stale.unlink()
    except OSError as error:
        raise CaptureError(
            f"The folder {folder} cannot be written to: {error.strerror}. Choose another with -o."
        ) from None


def _launcher(command: Sequence[str]) -> str | None:
    """Return the multi-process launcher that *command* uses, if any."""
    first = Path(command[0]).name
    if first in LAUNCHERS:
        return first
    if first.startswith("python") and "-m" in command:
        module = command[command.index("-m") + 1 : command.index("-m") + 2]
        return module[0] if module and module[0] in LAUNCHERS else None
    return None


def _launched_script(command: Sequence[str]) -> str | None:
    """Return the script that a launcher runs: the first argument that names a Python file."""
    return next((word for word in command[1:] if word.endswith(".py") and not word.startswith("-")), None)


def _script(command: Sequence[str]) -> str | None:
    """Return the script of ``python [-u ...] SCRIPT``; None for other commands."""
    if not Path(command[0]).name.startswith("python"):
        return None
    for word in command[1:]:
        if word == "-" or _NO_SCRIPT_NEXT.match(word):
            return None
        if not word.startswith("-"):
            return word
    return None


def _no_script(script: str) -> str:
    folder = Path(script).parent
    scripts = [str(file) for file in sorted(folder.glob("*.py"))] if folder.is_dir() else []
    close = difflib.get_close_matches(script, scripts, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    return (
        f"There is no script {script} in {Path.cwd()}.{hint} Check the path; it is relative to the folder in "
        "which you start the command."
    )
