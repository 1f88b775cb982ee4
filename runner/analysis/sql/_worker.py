"""Answer one query in a process that receives only the requested tables.

The process reads a header and Arrow tables from standard input, writes the answer as JSON, and opens no
file and no connection. The operating system limits its memory beyond the tables, because DuckDB's own limit
does not count all strings.
"""

from __future__ import annotations

import json
import resource
import runpy
import sys
from collections.abc import Iterator
from typing import Any

# The imports below take seconds on a busy machine, and the parent may end during this time.
if __name__ == "__main__":
    runpy.run_path(sys.argv[2])["end_with_parent"](int(sys.argv[1]))  # this script is not part of a package

import duckdb
import pyarrow as pa

_MAX_TEXT = 10_000
_SETTINGS = (
    "temp_directory=''",
    "python_enable_replacements=false",
    "enable_external_access=false",
    "lock_configuration=true",
)


def main() -> None:
    """Read the query, run it, and write the answer."""
    stream = sys.stdin.buffer
    head = json.loads(stream.readline())
    apart = dict.fromkeys(("autoinstall_known_extensions", "autoload_known_extensions"), "false")
    connection = duckdb.connect(":memory:", config={"threads": 2, **apart})
    needed = _needed(connection, head["sql"], head["columns"])
    sys.stdout.write(json.dumps(needed) + "\n")
    sys.stdout.flush()
    for name, size in json.loads(stream.readline()):
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
    json.dump(answer | {"partial": bool(needed)}, sys.stdout, default=_plain)


def _needed(
    connection: duckdb.DuckDBPyConnection, sql: str, columns: dict[str, list[str]]
) -> dict[str, list[str]]:
    """Return the columns that *sql* may read, or an empty dict if it may read all.

    A column counts if its name occurs anywhere in the query. All columns count if the query may use columns
    without naming them: by ``*``, by position, as whole rows, or by an unknown expression.
    """
    try:
        ((text,),) = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()
        tree = json.loads(text)
    except (duckdb.Error, RecursionError, ValueError):
        return {}
    parts = [*_parts(tree)]
    sources = [part for part in parts if "class" not in part]
    tables = {part.get(key, "").lower() for part in sources for key in ("table_name", "alias")} | {*columns}
    if tree.get("error") or any(_takes_all(part, tables) for part in parts):
        return {}
    words = {text.lower() for part in parts for text in _texts(part)}
    return {
        table: [name for name in names if name in words or name == "rank"] for table, names in columns.items()
    }


def _parts(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every mapping in the serialised query *tree*."""
    left = [tree]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            yield part
            left += part.values()
        elif isinstance(part, list):
            left += part


def _texts(part: dict[str, Any]) -> Iterator[str]:
    for value in part.values():
        yield from (text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str))


def _takes_all(part: dict[str, Any], tables: set[str]) -> bool:
    """Return whether *part* of a query may use columns without naming them."""
    if part.get("class") == "COLUMN_REF":
        return part["column_names"][-1].lower() in tables
    return (
        part.get("class") in ("STAR", "POSITIONAL_REFERENCE")
        or part.get("type") in ("SHOW_REF", "TABLE_FUNCTION", "PIVOT")
        or part.get("ref_type") in ("NATURAL", "POSITIONAL")
        or bool(part.get("column_name_alias"))
    )


def _limit(memory_bytes: int) -> None:
    """Limit the additional memory of this process, and disable core dumps."""
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2 * memory_bytes, used + 2 * memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _answer(connection: duckdb.DuckDBPyConnection, sql: str, rows: int) -> dict[str, Any]:
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        return {"refused": f"it has {len(statements)} statements; write one"}
    if statements[0].type not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
        kind = str(statements[0].type).rpartition(".")[2]
        return {"refused": f"{kind} may change data; write a SELECT"}
    cursor = connection.execute(statements[0])
    columns = [str(column[0]) for column in cursor.description or ()]
    fetched = cursor.fetchmany(rows + 1)
    return {"columns": columns, "rows": [[_cut(value) for value in row] for row in fetched]}


def _cut(value: Any) -> Any:
    return value[:_MAX_TEXT] if isinstance(value, str) else value


def _plain(value: Any) -> Any:
    """Convert a value without a JSON type (decimal, date, bytes) to text."""
    return str(value)[:_MAX_TEXT]


if __name__ == "__main__":
    main()
