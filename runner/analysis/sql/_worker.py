"""Answer one question in a process of its own, which holds nothing but the tables it was sent.

Run as a script: it reads a header and Arrow tables from standard input, and writes the answer as JSON. It
opens no file and no connection; what it may allocate beyond the tables is limited by the operating system,
because DuckDB's own limit does not count every string.
"""

from __future__ import annotations

import json
import resource
import sys
from typing import Any

import duckdb
import pyarrow as pa

_MOST_TEXT = 10_000
_SETTINGS = (
    "temp_directory=''",
    "autoinstall_known_extensions=false",
    "autoload_known_extensions=false",
    "python_enable_replacements=false",
    "enable_external_access=false",
    "lock_configuration=true",
)


def main() -> None:
    """Read the question, answer it, and write the answer."""
    stream = sys.stdin.buffer
    head = json.loads(stream.readline())
    connection = duckdb.connect(":memory:", config={"threads": 2})
    for name, size in head["tables"]:
        with pa.ipc.open_stream(stream.read(size)) as reader:
            connection.register(name, reader.read_all())
    connection.execute(f"SET memory_limit='{head['memory_bytes']}B'")
    for setting in _SETTINGS:
        connection.execute(f"SET {setting}")
    _limit(head["memory_bytes"])
    try:
        answer = _answer(connection, head["sql"], head["rows"])
    except MemoryError:
        answer = {"error": "", "memory": True}
    except duckdb.OutOfMemoryException as error:
        answer = {"error": str(error), "memory": True}
    except duckdb.Error as error:
        answer = {"error": str(error), "memory": "bad allocation" in str(error)}
    json.dump(answer, sys.stdout, default=_plain)


def _limit(memory_bytes: int) -> None:
    """Let this process allocate so much more, and never leave a core file."""
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2 * memory_bytes, used + 2 * memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _answer(connection: duckdb.DuckDBPyConnection, sql: str, rows: int) -> dict[str, Any]:
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        return {"refused": f"there are {len(statements)} statements; write one"}
    if statements[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
        kind = str(statements[0].type).rpartition(".")[2]
        return {"refused": f"{kind} would change something; write a SELECT"}
    cursor = connection.execute(statements[0])
    columns = [str(column[0]) for column in cursor.description or ()]
    found = cursor.fetchmany(rows + 1)
    return {"columns": columns, "rows": [[_cut(value) for value in row] for row in found]}


def _cut(value: Any) -> Any:
    return value[:_MOST_TEXT] if isinstance(value, str) else value


def _plain(value: Any) -> Any:
    """Return what JSON has no word for: decimals, dates, bytes."""
    return str(value)[:_MOST_TEXT]


if __name__ == "__main__":
    main()
