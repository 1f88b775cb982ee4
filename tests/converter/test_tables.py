"""The tables beside the files: they hold the same, whatever happens to them or to the files."""

import zipfile

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

from chakrascope.converter import EdgeKind, Graph, Workload, convert
from chakrascope.converter.chakra import NODE_COLUMNS, saved_columns
from chakrascope.converter.chakra import _tables as tables
from chakrascope.errors import WorkloadFormatError

MOST = {"int64": 2**63 - 1, "int16": 2**15 - 1, "uint8": 255}


@pytest.fixture(scope="module")
def workload(data_dir):
    return convert(data_dir / "converter" / "mlp_2")


@pytest.fixture
def prefix(workload, tmp_path):
    workload.save(tmp_path / "w")
    return tmp_path / "w"


def _tables(prefix):
    return prefix.with_name("w.tables.npz")


def _value(name, dtype):
    if dtype == "str":
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
    if dtype == "bool":
        return st.booleans()
    if name in ("type", "comm_type", "group", "duration_ns"):  # what the file would refuse
        return st.integers(0, 7)
    return st.integers(-1, MOST[dtype] if name == "comm_size_bytes" else min(MOST[dtype], 2**31 - 1))


_NODE = st.fixed_dictionaries(
    {name: _value(name, dtype) for name, (dtype, _) in NODE_COLUMNS.items() if name != "node_id"}
)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.lists(_NODE, min_size=1, max_size=4), min_size=1, max_size=3))
def test_what_is_written_is_read(tmp_path_factory, programs):
    prefix = tmp_path_factory.mktemp("tables") / "w"
    graphs = tuple(
        Graph.build(
            rank,
            [{**node, "node_id": 3 * number} for number, node in enumerate(nodes)],
            [(3 * number, 3 * number + 3, 1 + number) for number in range(len(nodes) - 1)],
        )
        for rank, nodes in enumerate(programs)
    )
    made = Workload(graphs, np.arange(len(graphs), dtype=np.int32), {}, {})
    made.save(prefix)
    loaded = Workload.load(prefix)
    assert [loaded.graph_of(rank).as_rank(rank) for rank in range(len(graphs))] == [*graphs]


def test_one_workload_makes_the_same_bytes_whenever_it_is_saved(workload, prefix, tmp_path):
    workload.save(tmp_path / "again" / "w")
    assert _tables(prefix).read_bytes() == _tables(tmp_path / "again" / "w").read_bytes()


def test_reasons_survive_where_the_tables_no_longer_hold_the_file(workload, prefix, tmp_path):
    other = [
        graph.with_columns(duration_ns=graph.node_columns["duration_ns"] + 1) for graph in workload.graphs
    ]
    Workload(tuple(other), workload.program_of_rank, workload.groups, {}).save(tmp_path / "other" / "w")
    for rank in range(2):
        (tmp_path / f"w.{rank}.et").write_bytes((tmp_path / "other" / f"w.{rank}.et").read_bytes())
    for loaded, graph in zip(Workload.load(prefix).graphs, other, strict=True):
        assert loaded == graph
        assert EdgeKind.CTRL not in loaded.edge_columns["kind"]


def test_without_tables_the_files_load(workload, prefix):
    _tables(prefix).unlink()
    for loaded, graph in zip(Workload.load(prefix).graphs, workload.graphs, strict=True):
        pd.testing.assert_frame_equal(loaded.nodes, graph.nodes)
        assert set(loaded.edge_columns["kind"].tolist()) <= {EdgeKind.DATA, EdgeKind.CTRL}


@pytest.mark.parametrize("damage", [b"", b"no archive", b"PK\x03\x04", "cut", "flipped"])
def test_damaged_tables_are_named(prefix, damage):
    whole = _tables(prefix).read_bytes()
    middle = len(whole) // 2
    damages = {"cut": whole[:middle], "flipped": whole[:middle] + b"\xff" * 64 + whole[middle + 64 :]}
    _tables(prefix).write_bytes(damage if isinstance(damage, bytes) else damages[damage])
    with pytest.raises(WorkloadFormatError, match=r"w\.tables\.npz is damaged"):
        Workload.load(prefix)


def _rewritten(prefix, **changed):
    with np.load(_tables(prefix)) as archive:
        arrays = dict(archive)
    arrays |= {name: change(arrays.get(name)) for name, change in changed.items()}
    np.savez(_tables(prefix), **{name: array for name, array in arrays.items() if array is not None})


@pytest.mark.parametrize(
    "changed",
    [
        {"step": lambda column: None},
        {"step": lambda column: column[:-1]},
        {"step": lambda column: column.astype(float)},
        {"step": lambda column: column.reshape(1, -1)},
        {"name": lambda column: column.astype(np.int64) + 10_000},
        {"name": lambda column: column.astype(np.int64) - 1},
        {"name_texts": lambda data: data + 200},
        {"node_ends": lambda ends: ends[::-1]},
        {"node_ends": lambda ends: ends - 10_000},
        {"node_ends": lambda ends: ends[:0]},
        {"edge_ends": lambda ends: ends[:1]},
        {"ranks": lambda ranks: ranks[:1]},
        {"edge_kind": lambda column: column[1:]},
    ],
)
def test_hostile_tables_are_refused(prefix, changed):
    _rewritten(prefix, **changed)
    with pytest.raises(WorkloadFormatError, match=r"w\.tables\.npz is damaged"):
        Workload.load(prefix)


def test_tables_hold_no_pickles(prefix):
    _rewritten(prefix, step=lambda column: column.astype(object))
    with pytest.raises(WorkloadFormatError, match="pickle"):
        Workload.load(prefix)


def test_saved_columns_are_read_without_the_files(workload, prefix, monkeypatch):
    (prefix.with_name("w.1.et")).unlink()
    table = workload.node_table()
    for rows in (1, 3, 1 << 20):
        monkeypatch.setattr(tables, "_ROWS_AT_ONCE", rows)
        pieces = [*saved_columns(prefix, ["comm_size_bytes"])]
        assert max(len(piece["rank"]) for piece in pieces) <= rows
        for name in ("rank", "comm_size_bytes"):
            assert np.concatenate([piece[name] for piece in pieces]).tolist() == table[name].tolist()
    _tables(prefix).write_bytes(b"")
    assert saved_columns(prefix, ["comm_size_bytes"]) is None


def test_the_archive_is_plain_numpy(prefix):
    with zipfile.ZipFile(_tables(prefix)) as archive:
        assert archive.testzip() is None
        assert all(name.endswith(".npy") for name in archive.namelist())


def test_edges_of_a_workload_of_0_1_keep_their_reasons(workload, prefix):
    """Version 0.1 kept them as Parquet; without them every edge would be plain control or data."""
    _tables(prefix).unlink()
    parts = [graph.edges.assign(rank=graph.rank)[["rank", "src", "dst", "kind"]] for graph in workload.graphs]
    old = prefix.with_name("w.edges.parquet")
    pd.concat(parts, ignore_index=True).to_parquet(old)
    assert Workload.load(prefix).graphs == workload.graphs
    old.write_bytes(old.read_bytes()[:100])
    with pytest.raises(WorkloadFormatError, match="damaged"):
        Workload.load(prefix)
