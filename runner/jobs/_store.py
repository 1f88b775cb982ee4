"""The jobs of a study: their database, and the processes that run them."""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import IO, Any, Protocol

from ...converter import Finding
from ...errors import ConfigError, StudyError
from ...support import load_json
from .._experiment import Experiment
from ..study import Study, check_name
from ._job import ACTIVE, ImportRequest, Job, SweepRequest, read_request, request_of

_VERSION = 2
_WAIT_S = 30.0
_SCHEMA = """
CREATE TABLE jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL DEFAULT 'simulation',
    experiment TEXT NOT NULL,
    label TEXT NOT NULL,
    workload TEXT NOT NULL,
    backend TEXT NOT NULL,
    network TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'done', 'failed', 'cancelled')),
    message TEXT NOT NULL DEFAULT '',
    attempts INTEGER NOT NULL DEFAULT 0,
    cancel_asked REAL NOT NULL DEFAULT 0,
    pid INTEGER NOT NULL DEFAULT 0,
    simulated_ns INTEGER NOT NULL DEFAULT 0,
    done INTEGER NOT NULL DEFAULT 0,
    total INTEGER NOT NULL DEFAULT 0,
    created REAL NOT NULL DEFAULT 0,
    started REAL NOT NULL DEFAULT 0,
    ended REAL NOT NULL DEFAULT 0,
    request TEXT NOT NULL
);
CREATE UNIQUE INDEX one_active_job_an_experiment ON jobs (experiment) WHERE state IN ('queued', 'running');
CREATE INDEX jobs_by_state ON jobs (state);
"""
_COLUMNS = ", ".join(item.name for item in fields(Job))
_KINDS: Mapping[str, type | tuple[type, ...]] = {"int": int, "float": (int, float), "str": str}
_LEAST_BYTES = 512  # the smallest page of SQLite


class Database:
    """The table of a study's jobs, in a file that many processes may use at the same time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run the block as one transaction; transactions of several processes run one at a time.

        Raises `StudyError` for a file that is damaged, has another version, or is not writable.
        """
        self._refuse_other_file()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # isolation_level=None: sqlite3 must not begin transactions by itself.
            with closing(sqlite3.connect(self.path, timeout=_WAIT_S, isolation_level=None)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    self._prepare(connection)
                    yield connection
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise StudyError(
                f"The job store {self.path} cannot be used ({error}). Next: free some disk space, or check "
                "its permissions. If it is damaged, delete it; finished runs are stored elsewhere."
            ) from error

    def _refuse_other_file(self) -> None:
        """Raise `StudyError` for a file that SQLite would wait for or overwrite.

        The file must not be opened: closing it would release the locks of this process's transactions.
        """
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            if not os.path.islink(self.path):
                return
            problem = "it is a link to a missing file"
        except OSError as error:
            problem = error.strerror or str(error)
        else:
            is_short = 0 < found.st_size < _LEAST_BYTES
            problem = "it is not an SQLite file" * (is_short or not stat.S_ISREG(found.st_mode))
        if problem:
            raise StudyError(
                f"The job store {self.path} is damaged ({problem}); delete it; the runs are kept."
            )

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == _VERSION:
            return
        if version != 0:
            raise StudyError(f"The job store {self.path} has a newer version; use a newer chakrascope.")
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {_VERSION}")

    def jobs(self, where: str = "1", *values: Any) -> list[Job]:
        """Return the jobs for which the SQL condition *where* holds, oldest first."""
        if not os.path.lexists(self.path):
            return []
        with self.transaction() as connection:
            return select(connection, where, *values)

    def check(self) -> None:
        """Raise `StudyError` if the file is damaged; writes nothing."""
        self._refuse_other_file()
        if not self.path.is_file():
            return
        try:
            address = f"{self.path.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(address, timeout=_WAIT_S, uri=True)) as connection:
                problem, pages, page_bytes = (
                    connection.execute(f"PRAGMA {name}").fetchone()[0]
                    for name in ("quick_check", "page_count", "page_size")
                )
                select(connection, "1")
            if self.path.stat().st_size < pages * page_bytes:  # SQLite would pad a truncated last page
                problem = "its end is missing"
        except sqlite3.Error as error:
            if "locked" in str(error):  # the database is in use, not damaged
                return
            problem = str(error)
        if problem != "ok":
            raise StudyError(
                f"The job store {self.path} is damaged ({problem}); delete it; the runs are kept."
            )

    def update(self, identity: int, where: str = "1", /, **values: Any) -> bool:
        """Set columns of the job *identity* if the SQL condition *where* holds; return whether it held."""
        with self.transaction() as connection:
            return update(connection, identity, where, **values)


def select(connection: sqlite3.Connection, where: str, *values: Any) -> list[Job]:
    """Return the jobs for which *where* holds, within a transaction."""
    rows = connection.execute(f"SELECT {_COLUMNS} FROM jobs WHERE {where} ORDER BY id", values)
    return [_job(row) for row in rows]


def _job(row: Sequence[Any]) -> Job:
    for item, value in zip(fields(Job), row, strict=True):
        if not isinstance(value, _KINDS[str(item.type)]):
            raise sqlite3.DatabaseError(f"{item.name} of a job is {value!r:.80}")
    return Job(*row)


def update(connection: sqlite3.Connection, identity: int, where: str = "1", /, **values: Any) -> bool:
    """Set columns of a job if *where* is true, within a transaction; return whether it was true."""
    columns = ", ".join(f"{name} = ?" for name in values)
    changed = connection.execute(
        f"UPDATE jobs SET {columns} WHERE id = ? AND {where}", (*values.values(), identity)
    )
    return changed.rowcount == 1


class Launch(Protocol):
    """Starts the process of a job, passes the job's lock to the process, and returns the process id."""

    def __call__(self, study: Path, job: int, slots: int, lock: IO[bytes], log: Path) -> int:
        """Start the process, which inherits *lock* (the caller may close it) and writes to *log*."""
        ...


def take_lock(path: Path) -> IO[bytes] | None:
    """Open and lock *path*; return None if another process has the lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def launch_process(study: Path, job: int, slots: int, lock: IO[bytes], log: Path) -> int:
    """Start a Python process that outlives this one, in its own process group."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.worker", str(study.resolve()), str(job), str(slots)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[lock.fileno()],
            start_new_session=True,
        )
    # Without a wait, the ended process would remain as a zombie.
    threading.Thread(target=child.wait, daemon=True).start()
    return child.pid


MAX_ATTEMPTS = 3
_GRACE_S = 5.0
_LOG_BYTES = 20_000
_POLL_S = 0.1


class JobStore:
    """The jobs of *study*; at most *slots* run at a time, oldest first.

    The jobs are in ``STUDY/jobs/jobs.sqlite``, and their output is in ``STUDY/jobs/logs``. Any number of
    processes may use one study's store. A job that ends starts the next one, so `resume` is only needed
    after a crash. *launch* starts a job's process.
    """

    def __init__(self, study: Study, slots: int = 1, launch: Launch = launch_process) -> None:
        self.study = study
        self.slots = slots
        self.folder = study.jobs_dir
        self.database = Database(self.folder / "jobs.sqlite")
        self._launch = launch

    def submit(self, experiment: Experiment, *, label: str = "", workload: str | None = None) -> Job:
        """Submit *experiment* of the study's *workload* (default: the newest); return its job.

        Returns the existing job if the experiment is queued or running. If the study already has
        the run, the new job is done at once. Raises `ConfigError` for an experiment that the study
        alone cannot reproduce.
        """
        name = self.study.workload_prefix(workload).parent.name
        request = request_of(self.study, experiment, name)
        if read_request(self.study, request).content_hash != experiment.content_hash:
            raise ConfigError(
                f"The experiment does not use the workload '{name}' of the study {self.study.path}; add "
                "the workload to the study and prepare the experiment from it."
            )
        done = self.study.has_run(experiment)
        return self._submit({
            "kind": "simulation",
            "experiment": experiment.content_hash,
            "label": label,
            "workload": name,
            "backend": experiment.backend,
            "network": experiment.network.title,
            "state": "done" if done else "queued",
            "message": "The study already had this run." if done else "",
            "total": experiment.workload.num_ranks,
            "ended": time.time() if done else 0.0,
            "request": request,
        })  # fmt: skip

    def submit_sweep(self, request: SweepRequest, *, label: str = "") -> Job:
        """Submit a sweep; return its job, or the existing job if the sweep is queued or running."""
        name = self.study.workload_prefix(request.workload).parent.name
        if request.name:
            check_name(request.name, "a sweep")
        request.arguments()
        return self._submit({
            "kind": "sweep",
            "experiment": request.content_hash,
            "label": label,
            "workload": name,
            "backend": request.backend,
            "network": request.network_name,
            "total": request.points,
            "request": request.to_json(),
        })  # fmt: skip

    def submit_import(self, request: ImportRequest, *, label: str = "") -> Job:
        """Submit the check or import of an item; return the job.

        Raises `StudyError` for an invalid workload name.
        """
        if request.name:
            check_name(request.name, "a workload")
        return self._submit({
            "kind": "import" if request.name else "check",
            "experiment": request.content_hash,
            "label": label,
            "workload": request.name,
            "backend": "",
            "network": "",
            "request": request.to_json(),
        })  # fmt: skip

    def findings(self, request: ImportRequest) -> list[Finding] | None:
        """Return the findings of a check, or None until they are stored."""
        file = self.study.findings_file(request.item)
        try:
            return [Finding(**found) for found in load_json(file)]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise StudyError(f"The findings {file} cannot be read ({error}); delete the file.") from error

    def step_names(self, request: ImportRequest) -> list[str]:
        """Return the annotations that mark steps, as found by a check; empty if there are none."""
        try:
            names = load_json(self.study.step_names_file(request.item))
            return [str(name) for name in names]
        except (OSError, ValueError, TypeError):
            return []  # the names are only suggestions

    def _submit(self, values: dict[str, Any]) -> Job:
        """Add a job unless an equal job is queued or running, and start jobs if slots are free."""
        with self.database.transaction() as connection:
            running = select(
                connection, "experiment = ? AND state IN ('queued', 'running')", values["experiment"]
            )
            identity = running[0].id if running else self._insert(connection, values)
        self.start_queued()
        return self.job(identity)

    @staticmethod
    def _insert(connection: sqlite3.Connection, values: dict[str, Any]) -> int:
        values = {"state": "queued", "created": time.time()} | values
        marks = ", ".join("?" * len(values))
        cursor = connection.execute(
            f"INSERT INTO jobs ({', '.join(values)}) VALUES ({marks})", tuple(values.values())
        )
        return int(cursor.lastrowid or 0)

    def jobs(self) -> list[Job]:
        """Return every job, oldest first."""
        return self.database.jobs()

    def job(self, identity: int) -> Job:
        """Return the job *identity*; raises `StudyError` if there is none."""
        rows = self.database.jobs("id = ?", identity)
        if not rows:
            raise StudyError(f"The study {self.study.path} has no job {identity}; list its jobs.")
        return rows[0]

    def request(self, identity: int) -> str:
        """Return the request that the job's process executes."""
        with self.database.transaction() as connection:
            row = connection.execute("SELECT request FROM jobs WHERE id = ?", (identity,)).fetchone()
        return str(row[0])

    def log(self, identity: int) -> str:
        """Return the end of the output of the job's processes."""
        file = self._log_file(self.job(identity).id)
        text = file.read_bytes()[-_LOG_BYTES:] if file.is_file() else b""
        return text.decode("utf-8", "replace")

    def cancel(self, identity: int) -> Job:
        """Cancel the job *identity*; return its state.

        A queued job ends at once. A running job has five seconds to stop, after which `resume` or
        another `cancel` kills it.
        """
        job = self.job(identity)
        now = time.time()
        waited = "state = 'queued'"
        if not self.database.update(
            job.id, waited, state="cancelled", message="Cancelled before it began.", ended=now
        ):
            self.database.update(job.id, "state = 'running' AND cancel_asked = 0", cancel_asked=now)
            self._notice(self.job(job.id))
        return self.job(job.id)

    def resume(self) -> list[Job]:
        """Detect dead processes, start queued jobs, and return the jobs that have not ended.

        A job whose process died is queued again, or fails after the third time.
        """
        for job in self.database.jobs("state = 'running'"):
            self._notice(job)
        self.start_queued()
        return self.database.jobs("state IN ('queued', 'running')")

    def wait(self, identity: int, timeout_s: float) -> Job:
        """Wait for the job to end; raises `StudyError` after *timeout_s* seconds."""
        deadline = time.monotonic() + timeout_s
        while (job := self.job(identity)).state in ACTIVE:
            if time.monotonic() > deadline:
                raise StudyError(
                    f"The job {identity} has not ended within {timeout_s:g} seconds; wait longer."
                )
            self.resume()
            time.sleep(_POLL_S)
        return job

    def start_queued(self) -> None:
        """Start the oldest queued jobs in the free slots."""
        while (claimed := self._claim()) is not None:
            job, lock = claimed
            with lock:
                try:
                    pid = self._launch(self.study.path, job.id, self.slots, lock, self._log_file(job.id))
                except OSError as error:
                    text = f"Its process could not be started ({error}); submit it again."
                    self.database.update(job.id, state="failed", message=text, ended=time.time())
                    continue
                self.database.update(job.id, "state = 'running' AND pid = 0", pid=pid)

    def _claim(self) -> tuple[Job, IO[bytes]] | None:
        """Mark the oldest queued job as running if a slot is free; return it with its lock."""
        with self.database.transaction() as connection:
            if len(select(connection, "state = 'running'")) >= self.slots:
                return None
            for job in select(connection, "state = 'queued'"):
                lock = self.lock(job.id)
                if lock is not None:
                    values = {"simulated_ns": 0, "done": 0, "pid": 0, "started": time.time()}
                    update(connection, job.id, state="running", attempts=job.attempts + 1, **values)
                    return job, lock
        return None

    def lock(self, identity: int) -> IO[bytes] | None:
        """Take the lock of a job's process; return None while that process is alive."""
        return take_lock(self.folder / "alive" / str(identity))

    def _log_file(self, identity: int) -> Path:
        return self.folder / "logs" / f"{identity}.txt"

    def _notice(self, job: Job) -> None:
        """Requeue, fail or cancel a running job whose process died or must be killed."""
        lock = self.lock(job.id)
        if lock is None:
            if job.cancel_asked and time.time() - job.cancel_asked > _GRACE_S and job.pid > 1:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(job.pid, signal.SIGKILL)
            return
        with lock, self.database.transaction() as connection:
            # With the lock, no other process can start the job, but the job may have ended normally just
            # before.
            for current in select(connection, "id = ? AND state = 'running'", job.id):
                self.study.discard_unfinished_run(current.experiment, current.pid)
                update(connection, job.id, **self._after_death(current))

    def _after_death(self, job: Job) -> dict[str, Any]:
        ended: dict[str, Any] = {"ended": time.time()}
        if self.study.has_run_id(job.experiment):
            return ended | {"state": "done", "message": ""}
        if job.cancel_asked:
            return ended | {"state": "cancelled", "message": "Cancelled."}
        if job.attempts < MAX_ATTEMPTS:
            return {"state": "queued", "message": "The process of the job died; it will be restarted."}
        text = (
            f"The process of the job died {job.attempts} times, perhaps from lack of memory. Next: see the "
            "log of the job."
        )
        return ended | {"state": "failed", "message": text}
