"""SQL over a run: correct results, no writes, no access to files or the network, bounded time and memory."""

import importlib
import inspect
import signal
import subprocess
import sys
import threading
from functools import partial
from importlib.util import find_spec

import command_line
import pandas as pd
import pytest
from studies import make_study

from chakrascope.errors import BackendTimeout, BackendUnavailable, Cancelled, UsageError
from chakrascope.runner.analysis import (
    SQL_EXAMPLES,
    SQL_TABLES,
    analyse_run,
    query_run,
    slack_table,
    sql_columns,
)
from chakrascope.runner.analysis.sql import _query
from chakrascope.support import end_with_parent
from chakrascope.support.table import csv_text

# Found, but not imported: most tests use only the process that answers queries.
pytestmark = pytest.mark.skipif(find_spec("duckdb") is None, reason="SQL is an extra")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    made = make_study(tmp_path_factory.mktemp("sql") / "study")
    return analyse_run(made.study, made.run_a)


def test_answers_are_those_of_the_tables(run):
    answer = query_run(run, "SELECT sum(duration_ns) AS total_ns FROM critical_path")
    assert answer.table["total_ns"].tolist() == [run.result.makespan_ns]
    joined = query_run(
        run,
        "SELECT r.rank, count(*) AS edges FROM edges e JOIN ranks r ON r.program = e.program GROUP BY ALL "
        "ORDER BY r.rank",
    ).table
    assert joined.to_dict("list") == {"rank": [0, 1], "edges": [len(g.edges) for g in run.workload.graphs]}
    some = query_run(run, "SELECT unnest([9007199254740993, NULL]) AS some_ns, 'x' AS text").table
    assert csv_text(some) == "some_ns,text\n9007199254740993,x\n,x\n"
    assert query_run(run, "SELECT 1 AS a, 2 AS a").table.columns.tolist() == ["a", "a_2"]
    assert query_run(run, "SELECT 9223372036854775807::HUGEINT * 4 AS big").table["big"][0] == 4 * (2**63 - 1)


@pytest.mark.parametrize("title", SQL_EXAMPLES)
def test_every_example_works(run, title):
    assert len(query_run(run, SQL_EXAMPLES[title]).table.columns)


ASKED = [
    ("SELECT rank, count(*) AS n FROM nodes GROUP BY rank ORDER BY n, rank", ["rank"]),
    ("SELECT count(*) FROM nodes", ["rank"]),
    ('SELECT n."Name" FROM main.nodes AS n WHERE n.start_ns > 5', ["rank", "start_ns", "name"]),
    ("WITH t AS (SELECT node_id AS z FROM nodes) SELECT max(z) FROM t", ["rank", "node_id"]),
    ("SELECT kind FROM nodes JOIN ranks USING (rank) ORDER BY kind", ["rank", "kind"]),
    ("SELECT max(slack_ns) FROM slack", ["rank", "slack_ns"]),
    ("FROM nodes", None),
    ("TABLE slack", None),
    ("SELECT * EXCLUDE (rank) FROM nodes", None),
    ("SELECT COLUMNS('.*_ns') FROM nodes", None),
    ("SELECT #3 FROM nodes", None),
    ("SELECT n FROM nodes n", None),
    ("SELECT count(*) FROM nodes NATURAL JOIN slack", None),
    ("SELECT b FROM nodes AS n(a, b)", None),
    ("SUMMARIZE nodes", None),
    ("EXPLAIN SELECT rank FROM nodes", None),
    ("SELECT * FROM query('FROM nodes')", None),
]


@pytest.fixture(scope="module")
def worker():
    """Return the program of the process that answers queries, as a module."""
    return importlib.import_module("chakrascope.runner.analysis.sql._worker")


@pytest.fixture(scope="module")
def connection(worker):
    return worker.duckdb.connect(":memory:")


@pytest.mark.parametrize(("sql", "columns"), ASKED, ids=lambda value: value if isinstance(value, str) else "")
def test_a_question_needs_only_the_columns_that_it_may_read(worker, connection, sql, columns):
    tables = {name: table.names for name, table in SQL_TABLES.items() if table.names and name in sql}
    assert tables
    needed = worker._needed(connection, sql, tables)
    assert needed == ({} if columns is None else dict.fromkeys(tables, columns))


def test_only_needed_columns_are_made(run, monkeypatch):
    made = []

    def noted(table, run, names):
        made.append([*names])
        return table.make(run, names)

    told = {
        name: table._replace(make=partial(noted, table) if table.names else table.make)
        for name, table in _query.SQL_TABLES.items()
    }
    monkeypatch.setattr(_query, "SQL_TABLES", told)
    query_run(run, "SELECT max(slack_ns) FROM slack")
    query_run(run, "FROM nodes")
    assert made == [["rank", "slack_ns"], [*told["nodes"].names]]


def test_nodes_and_slack_are_the_tables_of_the_run(run):
    for name, table in (("nodes", run.nodes.copy()), ("slack", slack_table(run.nodes, run.slack_ns))):
        table["name"] = table["name"].str[:10_000]  # longer texts are cut
        found = query_run(run, f"SELECT * FROM {name}", rows=len(table)).table
        pd.testing.assert_frame_equal(found, table, check_dtype=False)


def test_rows_are_bounded_and_said_to_be(run):
    some = query_run(run, "SELECT * FROM nodes", rows=5)
    assert (len(some.table), some.more) == (5, True)
    every = query_run(run, "SELECT * FROM nodes", rows=len(run.nodes))
    assert (len(every.table), every.more) == (len(run.nodes), False)


def test_every_column_has_its_type_and_times_their_unit(run):
    told = sql_columns(run)
    assert set(told["table"]) <= set(SQL_TABLES)
    assert set(told.loc[told["column"].str.endswith("_ns"), "unit"]) == {"ns", "bytes/ns (GB/s)"}
    for name in ("nodes", "groups", "runs"):
        columns = told[told["table"] == name]
        found = query_run(run, f"SELECT * FROM {name}", rows=1)
        assert found.table.columns.tolist() == columns["column"].tolist()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_parquet('https://example.org/x.parquet')",
        "SELECT getenv('PATH')",
        "SELECT * FROM run",
        "COPY nodes TO '/tmp/nodes.csv'",
    ],
)
def test_queries_with_side_effects_are_refused(run, sql):
    with pytest.raises(UsageError):
        query_run(run, sql)


@pytest.mark.parametrize(
    "sql",
    [
        "ATTACH '/tmp/x.db'",
        "SET enable_external_access = true",
        "CREATE TABLE t AS SELECT 1",
        "UPDATE nodes SET rank = 1",
        "SELECT 1; SELECT 2",
    ],
)
def test_only_a_single_select_is_run(worker, connection, sql):
    assert "write" in worker._answer(connection, sql, 5)["refused"]


def test_wrong_names_lead_to_right_ones(run):
    with pytest.raises(UsageError, match="did you mean 'nodes'"):
        query_run(run, "SELECT * FROM noods")
    with pytest.raises(UsageError, match='"name"'):
        query_run(run, "SELECT nam FROM nodes")


def test_time_is_bounded(run):
    with pytest.raises(BackendTimeout, match=r"longer than 0\.5 s"):
        query_run(run, "SELECT count(*) FROM range(10000000000) a, range(1000) b", timeout_s=0.5)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT length(repeat(repeat('x', 100000), 10000))",  # DuckDB's own limit does not count it
        "SELECT string_agg(i::VARCHAR || repeat('x', 1000), ',') FROM range(3000000) t(i)",
    ],
)
def test_memory_is_bounded(run, sql):
    with pytest.raises(BackendTimeout, match="MiB"):
        query_run(run, sql, memory_bytes=200 << 20)


def test_a_query_can_be_cancelled(run):
    def soon(worker):
        threading.Timer(0.3, worker.kill).start()

    with pytest.raises(Cancelled):
        query_run(run, "SELECT count(*) FROM range(10000000000) a, range(1000) b", watch=soon)


def test_missing_duckdb_names_the_package(run, monkeypatch):
    monkeypatch.setattr(_query, "find_spec", lambda name: None)
    with pytest.raises(BackendUnavailable, match=r"chakrascope\[query\]"):
        query_run(run, "SELECT 1")


def test_the_command(run, capsys):
    study = str(run.study.path)
    sql = "SELECT kind, sum(duration_ns) AS total_ns FROM critical_path GROUP BY ALL ORDER BY kind"
    assert command_line.run("query", study, "--run", run.info.id, sql, "--format", "csv") == 0
    assert capsys.readouterr().out.splitlines()[0] == "kind,total_ns"
    assert command_line.run("query", study, "--tables", "--format", "json") == 0
    assert '"unit": "ns"' in capsys.readouterr().out.replace('":"', '": "')
    assert command_line.run("query", study, "--examples") == 0
    assert command_line.run("query", study) == 2
    assert command_line.run("query", study, "DELETE FROM nodes") == 2
    assert "DELETE" in capsys.readouterr().err


def test_a_worker_without_its_parent_ends_before_it_has_imported_everything(worker):
    command = [
        sys.executable,
        "-I",
        "-X",
        "importtime",
        worker.__file__,
        "1",
        inspect.getfile(end_with_parent),
    ]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, timeout=300)
    assert ended.returncode == -signal.SIGKILL
    assert "duckdb" not in ended.stderr
