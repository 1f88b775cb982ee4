"""The tables next to the `.et` files: same content, even after either is changed or damaged."""

import json

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from chakrascope.converter import EdgeKind, Graph, Workload, microbenchmark
from chakrascope.converter.chakra import EDGE_COLUMNS, NODE_COLUMNS
from chakrascope.converter.chakra import _tables as tables
from chakrascope.errors import WorkloadFormatError

MOST = {"int64": 2**63 - 1, "int16": 2**15 - 1, "uint8": 255}


@pytest.fixture
def prefix(captured, tmp_path):
    captured.save(tmp_path / "w")
    return tmp_path / "w"


TABLES = ("nodes", "edges")


def _table(prefix, of="nodes"):
    return prefix.with_name(f"w.{of}.parquet")


def _read(prefix):
    """Return the captured workload with all its columns read."""
    loaded = Workload.load(prefix)
    loaded.node_table()
    loaded.edge_table()
    return loaded


def _value(name, dtype):
    if dtype == "str":
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
    if dtype == "bool":
        return st.booleans()
    if name in ("type", "comm_type", "group", "duration_ns"):  # which the file would refuse
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


def test_one_workload_makes_the_same_bytes_whenever_it_is_saved(captured, prefix, tmp_path):
    captured.save(tmp_path / "again" / "w")
    Workload.load(prefix).save(tmp_path / "loaded" / "w")
    for of in TABLES:
        for other in ("again", "loaded"):
            assert _table(prefix, of).read_bytes() == _table(tmp_path / other / "w", of).read_bytes()


def test_reasons_survive_where_the_tables_no_longer_hold_the_file(captured, prefix, tmp_path):
    other = [
        graph.with_columns(duration_ns=graph.node_columns["duration_ns"] + 1) for graph in captured.graphs
    ]
    Workload(tuple(other), captured.program_of_rank, captured.groups, {}).save(tmp_path / "other" / "w")
    for rank in range(2):
        (tmp_path / f"w.{rank}.et").write_bytes((tmp_path / "other" / f"w.{rank}.et").read_bytes())
    for loaded, graph in zip(Workload.load(prefix).graphs, other, strict=True):
        assert loaded == graph
        assert EdgeKind.CTRL not in loaded.edge_columns["kind"]


def test_loaded_workload_ignores_replaced_files(captured, prefix):
    loaded = Workload.load(prefix)
    microbenchmark("all-reduce", 2, 8).save(prefix)
    assert loaded.graphs == captured.graphs


def test_without_tables_the_files_load(captured, prefix):
    for of in TABLES:
        _table(prefix, of).unlink()
    for loaded, graph in zip(Workload.load(prefix).graphs, captured.graphs, strict=True):
        pd.testing.assert_frame_equal(loaded.nodes, graph.nodes)
        assert set(loaded.edge_columns["kind"].tolist()) <= {EdgeKind.DATA, EdgeKind.CTRL}


@pytest.mark.parametrize("of", TABLES)
@pytest.mark.parametrize("damage", [b"", b"no table", b"PAR1", "cut", "flipped"])
def test_damaged_tables_are_named(prefix, of, damage):
    whole = _table(prefix, of).read_bytes()
    middle = len(whole) // 2
    damages = {"cut": whole[:middle], "flipped": whole[:middle] + b"\xff" * 64 + whole[middle + 64 :]}
    _table(prefix, of).write_bytes(damage if isinstance(damage, bytes) else damages[damage])
    with pytest.raises(WorkloadFormatError, match=r"damaged.* Delete"):
        _read(prefix)


def _with_column(name, change):
    return lambda table: table.set_column(table.column_names.index(name), name, change(table.column(name)))


def _with_note(change):
    def changed(table):
        note = json.loads(table.schema.metadata[b"chakrascope"])
        change(note)
        return table.replace_schema_metadata({b"chakrascope": json.dumps(note).encode()})

    return changed


@pytest.mark.parametrize(
    "changed",
    [
        lambda table: table.drop_columns(["step"]),
        lambda table: table.slice(1),
        lambda table: table.append_column("more", table.column("step")),
        lambda table: table.replace_schema_metadata({b"chakrascope": b"no note"}),
        _with_column("step", lambda column: column.cast("double")),
        _with_column("step", lambda column: column.cast("string")),
        _with_column("name", lambda column: column.cast("string").cast("binary")),
        _with_note(lambda note: note["programs"].reverse()),
        _with_note(lambda note: note["programs"].pop()),
        _with_note(lambda note: note["programs"][0].update(nodes=-1)),
        _with_note(lambda note: note["programs"][0].update(nodes=1 << 40)),
        _with_note(lambda note: note["programs"][0].pop("digest")),
    ],
)
def test_hostile_tables_are_refused(prefix, changed):
    table = pq.read_table(_table(prefix), read_dictionary=["name"])
    pq.write_table(changed(table), _table(prefix))
    with pytest.raises(WorkloadFormatError, match="damaged"):
        _read(prefix)


def test_tables_of_two_workloads_are_refused(captured, prefix, tmp_path):
    Workload(captured.graphs[:1], np.zeros(2, np.int32)).save(tmp_path / "other" / "w")
    _table(prefix, "edges").write_bytes(_table(tmp_path / "other" / "w", "edges").read_bytes())
    with pytest.raises(WorkloadFormatError, match="different workloads"):
        Workload.load(prefix)


@pytest.mark.parametrize(("least", "most"), [(1, 100), (1, 1 << 20), (1 << 16, 1 << 20)])
def test_a_workload_is_saved_in_groups_of_any_size(captured, prefix, monkeypatch, least, most):
    monkeypatch.setattr(tables, "_MIN_ROWS", least)
    monkeypatch.setattr(tables, "_MAX_ROWS", most)
    captured.save(prefix)
    assert Workload.load(prefix).graphs == captured.graphs


def _before_0_3(captured, prefix):
    """Remove from the tables the data that versions before 0.3 lack; return all edges with their rank."""
    for of in TABLES:
        _table(prefix, of).unlink()
    parts = [graph.edges.assign(rank=graph.rank)[["rank", *EDGE_COLUMNS]] for graph in captured.graphs]
    return pd.concat(parts, ignore_index=True)


def _save_0_2(captured, prefix):
    edges = _before_0_3(captured, prefix)
    ends = {"node_ends": [graph.num_nodes for graph in captured.graphs]}
    ends["edge_ends"] = [graph.num_edges for graph in captured.graphs]
    np.savez(
        prefix.with_name("w.tables.npz"),
        ranks=np.array([graph.rank for graph in captured.graphs]),
        **{name: np.cumsum(counts) for name, counts in ends.items()},
        **{f"edge_{name}": edges[name].to_numpy() for name in EDGE_COLUMNS},
    )
    return prefix.with_name("w.tables.npz")


def _save_0_1(captured, prefix):
    _before_0_3(captured, prefix).to_parquet(prefix.with_name("w.edges.parquet"))
    return prefix.with_name("w.edges.parquet")


@pytest.mark.parametrize("save", [_save_0_1, _save_0_2])
def test_edges_of_old_workloads_keep_their_reasons(captured, prefix, save):
    """Versions 0.1 and 0.2 stored them; without them, every edge would have the kind control or data."""
    old = save(captured, prefix)
    assert Workload.load(prefix).graphs == captured.graphs
    for damage in (old.read_bytes()[:100], b""):
        old.write_bytes(damage)
        with pytest.raises(WorkloadFormatError, match="damaged"):
            Workload.load(prefix)
    captured.save(prefix)
    assert not prefix.with_name("w.tables.npz").exists()
    assert Workload.load(prefix).graphs == captured.graphs
