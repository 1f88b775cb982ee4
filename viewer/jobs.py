"""Run simulations in processes of their own, so that neither a closed tab nor a restarted viewer ends them.

A job is a folder ``STUDY/jobs/<id>/``: ``request.json`` says what to simulate, ``status.json`` how far it
is, ``log.txt`` what its process printed; a file ``cancel`` asks it to stop. The process holds the lock of the
file ``alive`` as long as it lives, so a job whose process died is never taken for a running one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any

from ..errors import StudyError
from ..runner import Study

__all__ = ["ACTIVE", "Job", "JobStore"]

ACTIVE = ("queued", "running")
_GRACE_S = 5.0
_MOST_ACTIVE = 16
_LOG_BYTES = 20_000


@dataclass(frozen=True)
class Job:
    """How far a job is. *state* is queued, running, done, failed or cancelled; *runs* the ids it made."""

    id: str
    label: str = ""
    state: str = "queued"
    message: str = ""
    backend: str = ""
    backends_done: int = 0
    backends: int = 1
    simulated_ns: int = 0
    ranks_done: int = 0
    ranks: int = 0
    created: float = 0.0
    pid: int = 0
    runs: tuple[str, ...] = ()

    @property
    def is_active(self) -> bool:
        """Whether it waits or works."""
        return self.state in ACTIVE

    @property
    def fraction(self) -> float:
        """The part that is done, by finished ranks and backends."""
        if self.state == "done":
            return 1.0
        inside = self.ranks_done / self.ranks if self.ranks else 0.0
        return min(1.0, (self.backends_done + inside) / max(1, self.backends))


class JobStore:
    """The jobs of one study."""

    def __init__(self, study: Study) -> None:
        self.root = study.path / "jobs"
        self._study = study.path

    def start(self, request: Mapping[str, Any]) -> str:
        """Start the simulation *request* describes (see :mod:`.worker`) and return the job's id.

        It waits its turn: one job of a study works at a time. Raises StudyError if too many wait already.
        """
        if sum(job.is_active for job in self.jobs()) >= _MOST_ACTIVE:
            raise StudyError(f"{_MOST_ACTIVE} jobs wait already; let some finish, or cancel them.")
        identity = f"{time.time_ns():x}-{secrets.token_hex(3)}"
        folder = self.root / identity
        folder.mkdir(parents=True)
        write_json(folder / "request.json", dict(request))
        job = Job(
            identity, str(request.get("label", "")), created=time.time(), backends=len(request["backends"])
        )
        write_status(folder, job)
        child = self._launch(folder)
        # Somebody must take note of its end, or it stays in the system's list of processes.
        threading.Thread(target=child.wait, daemon=True).start()
        return identity

    def _launch(self, folder: Path) -> subprocess.Popen[bytes]:
        with (folder / "log.txt").open("ab") as log, (folder / "alive").open("ab") as alive:
            fcntl.flock(alive, fcntl.LOCK_EX)
            # The child inherits the lock; ours ends with the block.
            return subprocess.Popen(
                [sys.executable, "-m", "chakrascope.viewer.worker", str(self._study.resolve()), folder.name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[alive.fileno()],
                start_new_session=True,
            )

    def jobs(self) -> list[Job]:
        """Return every job, the newest first, each as it is now."""
        folders = sorted(self.root.glob("*/status.json"), reverse=True)
        return [self._now(file.parent) for file in folders]

    def job(self, identity: str) -> Job:
        """Return one job; raises StudyError if there is none of that id."""
        return self._now(self._folder(identity))

    def cancel(self, identity: str) -> None:
        """Ask the job to stop; if it does not within seconds, its process is ended at a later look."""
        (self._folder(identity) / "cancel").touch()

    def log(self, identity: str) -> str:
        """Return the last lines the job's process printed."""
        file = self._folder(identity) / "log.txt"
        text = file.read_bytes()[-_LOG_BYTES:] if file.is_file() else b""
        return text.decode("utf-8", "replace")

    def _folder(self, identity: str) -> Path:
        known = {file.parent.name for file in self.root.glob("*/status.json")}
        if identity not in known:
            raise StudyError("This study has no such job; choose one of those listed.")
        return self.root / identity

    def _now(self, folder: Path) -> Job:
        job = read_status(folder)
        if not job.is_active:
            return job
        cancel = folder / "cancel"
        if _is_alive(folder):
            if cancel.exists() and time.time() - cancel.stat().st_mtime > _GRACE_S and job.pid > 1:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(job.pid, signal.SIGKILL)
            return job
        # Read again: it may have ended properly since the first look.
        job = read_status(folder)
        if job.is_active:
            job = _ended(folder, job, cancelled=cancel.exists())
        return job


def _ended(folder: Path, job: Job, *, cancelled: bool) -> Job:
    text = "Cancelled." if cancelled else "Its process ended unexpectedly; the log may say why. Run it again."
    ended = Job(**{**vars(job), "state": "cancelled" if cancelled else "failed", "message": text})
    write_status(folder, ended)
    return ended


def _is_alive(folder: Path) -> bool:
    """Return whether the job's process lives: nobody else can then have the lock."""
    with (folder / "alive").open("ab") as alive:
        return not try_lock(alive)


def try_lock(file: IO[bytes]) -> bool:
    """Lock *file* if nobody else has, and return whether that was so."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def read_status(folder: Path) -> Job:
    """Return the job in *folder* as its file says."""
    data = json.loads((folder / "status.json").read_text(encoding="utf-8"))
    known = {item.name for item in fields(Job)}
    return Job(**{key: value for key, value in data.items() if key in known} | {"runs": tuple(data["runs"])})


def write_status(folder: Path, job: Job) -> None:
    """Write the state of *job*; a reader sees the old one or the whole new one."""
    write_json(folder / "status.json", vars(job))


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write *data* to *path* at once."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    temporary.write_text(json.dumps(data, default=list), encoding="utf-8")
    temporary.replace(path)
