"""The table of jobs: each change of a job's state is one transaction of SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from ...errors import StudyError
from ._job import Job

__all__ = ["Database"]

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
# The migration of a store of version 1, which had only simulations, to version 2.
_FROM_VERSION_1 = """
ALTER TABLE jobs ADD COLUMN kind TEXT NOT NULL DEFAULT 'simulation';
ALTER TABLE jobs RENAME COLUMN ranks_done TO done;
ALTER TABLE jobs RENAME COLUMN ranks TO total;
"""
_CHANGES = {0: _SCHEMA, 1: _FROM_VERSION_1}
_COLUMNS = ", ".join(item.name for item in fields(Job))


class Database:
    """The jobs of one study, in a file that any number of processes may use at the same time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Open the file for a transaction; processes take turns.

        Raises `StudyError` if the file is damaged, of another version, or not writable.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # Transactions are managed here, not by the module.
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
                f"The job store {self.path} cannot be used ({error}); if it is damaged, delete it: finished "
                "runs are kept elsewhere."
            ) from error

    def _prepare(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == _VERSION:
            return
        if version not in _CHANGES:
            raise StudyError(f"The job store {self.path} is of another version; use a newer chakrascope.")
        for statement in _CHANGES[version].split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {_VERSION}")

    def jobs(self, where: str = "1", *values: Any) -> list[Job]:
        """Return the jobs that meet the SQL condition *where*, oldest first."""
        if not self.path.is_file():
            return []
        with self.transaction() as connection:
            return select(connection, where, *values)

    def update(self, identity: int, where: str = "1", /, **values: Any) -> bool:
        """Set columns of the job *identity* if *where* holds, and return whether it did."""
        with self.transaction() as connection:
            return update(connection, identity, where, **values)


def select(connection: sqlite3.Connection, where: str, *values: Any) -> list[Job]:
    """Return the jobs for which *where* holds, inside a transaction."""
    rows = connection.execute(f"SELECT {_COLUMNS} FROM jobs WHERE {where} ORDER BY id", values)
    return [Job(*row) for row in rows]


def update(connection: sqlite3.Connection, identity: int, where: str = "1", /, **values: Any) -> bool:
    """Set columns of a job if *where* holds, inside a transaction."""
    columns = ", ".join(f"{name} = ?" for name in values)
    changed = connection.execute(
        f"UPDATE jobs SET {columns} WHERE id = ? AND {where}", (*values.values(), identity)
    )
    return changed.rowcount == 1
