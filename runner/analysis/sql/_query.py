"""Query a run's tables with SQL in a separate process, with limits on time and memory."""

from __future__ import annotations

import inspect
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from ....converter.chakra import TextColumn
from ....errors import BackendTimeout, BackendUnavailable, Cancelled, UsageError, did_you_mean
from ....support import bytes_text, end_with_parent
from .._run import RunAnalysis
from ._tables import SQL_TABLES, Made

_WORKER = Path(__file__).with_name("_worker.py")
_WORD = re.compile(r"[A-Za-z_]+")
_UNKNOWN = re.compile(r"Table with name (\w+) does not exist")
Watch = Callable[["subprocess.Popen[bytes]"], None]


@dataclass(frozen=True, eq=False)
class Answer:
    """The rows of a query; *more* means that the query has further rows."""

    table: pd.DataFrame
    more: bool


def query_run(
    run: RunAnalysis,
    sql: str,
    *,
    rows: int = 1_000,
    timeout_s: float = 30.0,
    memory_bytes: int = 1 << 30,
    watch: Watch | None = None,
) -> Answer:
    """Return up to *rows* rows of *sql*, one SELECT over the tables of *run* in `SQL_TABLES`.

    The process has no access to files and network; *watch* receives it, so that the caller can end
    it. Raises `UsageError` for SQL that is invalid or would change data, `BackendTimeout` beyond
    the limit of time or memory, `BackendUnavailable` without DuckDB, and `Cancelled`.
    """
    if find_spec("duckdb") is None:
        raise BackendUnavailable("SQL queries need DuckDB. Next: pip install 'chakrascope[query]'")
    words = {word.lower() for word in _WORD.findall(sql)}
    names = list(SQL_TABLES) if words & {"show", "duckdb_tables", "information_schema"} else words
    chosen = [name for name in SQL_TABLES if name in names]
    head = {"sql": sql, "rows": rows, "memory_bytes": memory_bytes}
    ask = partial(_answer, timeout_s=timeout_s, watch=watch, memory_bytes=memory_bytes)
    answer = ask(
        head | {"columns": {name: SQL_TABLES[name].names for name in chosen if SQL_TABLES[name].names}},
        partial(_tables, run, chosen),
    )
    if answer.get("error") and answer["partial"]:  # DuckDB cannot suggest columns of unsent tables
        answer = ask(head | {"columns": {}}, partial(_tables, run, chosen))
    if "refused" in answer:
        raise UsageError(
            f"The query is not a single SELECT: {answer['refused']}. Tables: {', '.join(SQL_TABLES)}."
        )
    if answer.get("memory"):
        raise BackendTimeout(_too_much(memory_bytes))
    if "error" in answer:
        raise UsageError(_explained(str(answer["error"])))
    rows_found = answer["rows"]
    table = pd.DataFrame(rows_found[:rows], columns=_distinct(answer["columns"]))
    for place, dtype in enumerate(table.dtypes):
        values = [row[place] for row in rows_found[:rows]]
        if dtype.kind == "f" and not any(isinstance(value, float) for value in values):
            table.isetitem(place, pd.Series(values, dtype=object))  # keeps integers in a column with NULL
    return Answer(table, len(rows_found) > rows)


def _tables(run: RunAnalysis, names: Sequence[str], columns: Mapping[str, Sequence[str]]) -> dict[str, bytes]:
    """Return the tables *names* as Arrow streams with the requested *columns*."""
    streams = {}
    for name in names:
        table = SQL_TABLES[name]
        asked = (columns.get(name, table.names),) if table.names else ()
        streams[name] = _stream(table.make(run, *asked))
    return streams


def _stream(made: Made | pd.DataFrame) -> bytes:
    """Encode columns, whose texts become dictionaries, or a table without its index as an Arrow stream."""
    import pyarrow as pa  # noqa: PLC0415 - takes 0.1 s

    if isinstance(made, pd.DataFrame):
        texts = {str(name): made[name].astype("str") for name in made if made[name].dtype.kind == "O"}
        arrow = pa.Table.from_pandas(made.assign(**texts), preserve_index=False)
    else:
        arrays = [
            pa.DictionaryArray.from_arrays(column.numbers, pa.array(column.texts, pa.string()))
            if isinstance(column, TextColumn)
            else pa.array(column)
            for column in made.values()
        ]
        arrow = pa.Table.from_arrays(arrays, names=[*made])
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, arrow.schema) as writer:
        writer.write_table(arrow)
    return sink.getvalue()


def _answer(
    head: Mapping[str, Any],
    tables: Callable[[Mapping[str, Sequence[str]]], dict[str, bytes]],
    *,
    timeout_s: float,
    watch: Watch | None,
    memory_bytes: int,
) -> dict[str, Any]:
    """Send the query and the columns that the worker requests; return its answer."""
    command = [sys.executable, "-I", str(_WORKER), str(os.getpid()), inspect.getfile(end_with_parent)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env={}, stdin=pipe, stdout=pipe, stderr=pipe) as worker:
        if watch is not None:
            watch(worker)
        try:
            needed = _needed(worker, head)
            loaded = tables(needed) if needed is not None else {}
            sizes = json.dumps([(name, len(data)) for name, data in loaded.items()]).encode() + b"\n"
            out, err = worker.communicate(b"".join([sizes, *loaded.values()]), timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            worker.kill()
            raise BackendTimeout(
                f"The query took longer than {timeout_s:g} s and was cancelled. Next: query less data, or "
                "allow more time."
            ) from error
        except BaseException:
            worker.kill()
            raise
    if worker.returncode == 0:
        answer: dict[str, Any] = json.loads(out)
        return answer
    if worker.returncode == -9:
        raise Cancelled("The query was cancelled.")
    last = err.decode("utf-8", "replace").strip().rpartition("\n")[2]
    if worker.returncode < 0 or "alloc" in last or "MemoryError" in last:
        raise BackendTimeout(_too_much(memory_bytes))
    raise UsageError(f"The query failed: {last[:500]}")


def _needed(worker: subprocess.Popen[bytes], head: Mapping[str, Any]) -> dict[str, list[str]] | None:
    """Return the columns that the worker needs, or None if it has ended."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    with suppress(BrokenPipeError):
        worker.stdin.write(json.dumps(head).encode() + b"\n")
        worker.stdin.flush()
    line = worker.stdout.readline()
    return json.loads(line) if line else None


def _too_much(memory_bytes: int) -> str:
    return (
        f"The query needed more than {bytes_text(memory_bytes)} in addition to the tables. Next: query less "
        "data at a time."
    )


def _explained(error: str) -> str:
    """Return DuckDB's *error* in our words; for an unknown table, with suggestions."""
    unknown = _UNKNOWN.search(error)
    if unknown is not None:
        return f"There is no table '{unknown[1]}'{did_you_mean(unknown[1], SQL_TABLES)}"
    return f"DuckDB says: {error.strip()}"


def _distinct(names: list[str]) -> list[str]:
    """Return *names* with repeated ones numbered."""
    return [name if name not in names[:place] else f"{name}_{place + 1}" for place, name in enumerate(names)]
