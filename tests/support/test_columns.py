"""Tables in memory and in files, whole and by rank."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest

from chakrascope.support.table import ParquetFile, ParquetWriter, Table, TableField, frame_of

KINDS = {"rank": "int32", "node_id": "int64", "start_ns": "int64"}


def columns_of(ranks, ids):
    ids = np.array(ids)
    return {"rank": np.array(ranks, np.int32), "node_id": ids, "start_ns": ids * 10}


def in_file(path, *groups):
    with ParquetWriter(path, KINDS) as writer:
        for group in groups:
            writer.write(group)
    return Table(ParquetFile(path))


ORDERED = columns_of([0, 0, 1, 1], [1, 2, 1, 3]), columns_of([2, 3], [5, 6])
SPLIT = columns_of([0, 1], [1, 1]), columns_of([1, 3], [3, 6])
SHUFFLED = (columns_of([3, 0, 3], [6, 1, 2]),)


@pytest.mark.parametrize("groups", [ORDERED, SPLIT, SHUFFLED])
@pytest.mark.parametrize("in_memory", [True, False])
def test_ranks_are_the_same_from_memory_and_from_a_file(tmp_path, groups, in_memory):
    whole = {name: np.concatenate([group[name] for group in groups]) for name in KINDS}
    expected = frame_of(whole).sort_values(["rank", "node_id"])
    table = Table.of(whole) if in_memory else in_file(tmp_path / "t.parquet", *groups)
    assert table.num_rows == len(expected)
    by_rank = dict(table.by_rank(["start_ns"]))
    assert [*by_rank] == sorted({*whole["rank"].tolist()})
    for rank in range(5):
        own = expected[expected["rank"] == rank]
        one = table.of_rank(rank, ["start_ns"])
        assert one["node_id"].tolist() == own["node_id"].tolist()
        assert one["start_ns"].tolist() == own["start_ns"].tolist()
        if rank in by_rank:
            assert by_rank[rank]["start_ns"].tolist() == own["start_ns"].tolist()
    assert [rank for rank, _ in table.by_rank([], lambda rank: rank == 3)] == [3]
    assert table.frame().equals(frame_of(whole))


def test_no_piece_is_read_for_ranks_that_nobody_wants(tmp_path, monkeypatch):
    table, read = in_file(tmp_path / "t.parquet", *ORDERED), []
    reading = ParquetFile.read
    monkeypatch.setattr(ParquetFile, "read", lambda *asked: (read.append(asked[2]), reading(*asked))[1])
    assert [rank for rank, _ in table.by_rank([], lambda rank: rank == 2)] == [2]
    assert table.of_rank(1, ["start_ns"])["node_id"].tolist() == [1, 3]
    assert table.of_rank(0, ["start_ns"])["node_id"].tolist() == [1, 2]
    assert read == [[1], [0]]
    assert not table.in_memory


@dataclass(frozen=True)
class Record:
    nodes: TableField = TableField()
    links: TableField = TableField({"src": "int32"})


def test_a_field_takes_columns_and_tables_and_is_one_of_pandas():
    frame = pd.DataFrame({"rank": [0], "name": ["a"]}, index=[7])
    for given in (frame, {"rank": np.array([0]), "name": np.array(["a"], object)}, Table.of(frame)):
        record = Record(given)
        assert record.nodes["name"].tolist() == ["a"]
        assert record.nodes is record.nodes
        assert record.links.empty
        assert record.links["src"].dtype == "int32"
        assert replace(record, links=frame).nodes is record.nodes
        assert pickle.loads(pickle.dumps(record)).nodes.equals(record.nodes)
    assert Record(frame).nodes is frame
    with pytest.raises(TypeError, match="nodes"):
        Record()


def test_a_table_may_be_changed_where_its_columns_may_not():
    column = np.arange(3)
    column.flags.writeable = False
    frame = frame_of({"a": column})
    frame.loc[0, "a"] = 5
    assert frame["a"].tolist() == [5, 1, 2]
    assert column.tolist() == [0, 1, 2]
