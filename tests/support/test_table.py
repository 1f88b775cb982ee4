"""Tables and their columns: writing, reading, comparison and errors."""

from __future__ import annotations

import io
import itertools
import pickle
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from chakrascope.support.table import (
    ParquetFile,
    ParquetWriter,
    Table,
    TableField,
    TextColumn,
    frame_bytes,
    frame_of,
)

DATA = Path(__file__).parents[1] / "data" / "support"
KINDS = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float32",
    "float64",
)
TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=8)), min_size=1, max_size=40)


def written(path, *groups, kinds=None):
    """Return *path*, a file with these *groups* of columns."""
    kinds = kinds or {name: column.dtype.name for name, column in groups[0].items()}
    with ParquetWriter(path, kinds) as writer:
        for group in groups:
            writer.write(group)
    return path


def saved(path, content):
    path.write_bytes(content)
    return path


def assert_same(read, columns):
    assert list(read) == list(columns)
    for name, column in columns.items():
        assert read[name].dtype == column.dtype
        np.testing.assert_array_equal(read[name], column)


@given(data=st.data(), lengths=st.lists(st.integers(0, 300), min_size=1, max_size=3))
def test_columns_come_back_by_row_group(tmp_path_factory, data, lengths):
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    columns = {f"{i} {kind}": data.draw(arrays.arrays(kind, sum(lengths))) for i, kind in enumerate(kinds)}
    ends = np.cumsum([0, *lengths])
    groups = [
        {name: column[start:end] for name, column in columns.items()}
        for start, end in itertools.pairwise(ends)
    ]
    path = written(tmp_path_factory.getbasetemp() / "ours.parquet", *groups)
    content = path.read_bytes()
    file = ParquetFile(path)
    assert file.rows == tuple(lengths)
    assert_same(file.read(), columns)
    assert_same(file.read(groups=[len(groups) - 1]), groups[-1])
    assert written(path, *groups).read_bytes() == content


def test_a_file_of_the_writer_of_earlier_versions_is_read():
    file = ParquetFile(DATA / "own_writer.parquet")
    rows = np.arange(100)
    assert file.rows == (100, 100)
    assert file.bounds("rank") == [(0, 0), (1, 1)]
    read = file.read(groups=[1])
    assert_same(
        {name: read[name] for name in ("rank", "node_id", "cause_node", "cause_is_dependency", "queue_ns")},
        {
            "rank": np.full(100, 1, np.int32),
            "node_id": rows * 3 + 1,
            "cause_node": rows - 1,
            "cause_is_dependency": rows % 3 == 0,
            "queue_ns": np.full(100, (1 << 62) + 1),
        },
    )
    np.testing.assert_array_equal(read["share"], rows / 7)
    np.testing.assert_array_equal(read["size"], np.where(rows % 4 > 0, rows % 5, np.nan))
    names = ["gemm", "all-reduce", "ü"]
    assert read["name"].tolist() == [names[row % 3] if row % 7 else None for row in range(100)]


@given(texts=TEXTS, in_dictionary=st.booleans())
def test_texts_of_other_writers_are_read(tmp_path_factory, texts, in_dictionary):
    path = tmp_path_factory.getbasetemp() / "texts.parquet"
    table = pa.table({"text": pa.array(texts, pa.string())})
    pq.write_table(pa.table([table["text"].dictionary_encode()], ["text"]) if in_dictionary else table, path)
    assert ParquetFile(path).kinds == {"text": "text"}
    assert ParquetFile(path).read()["text"].tolist() == texts
    assert ParquetFile(path).records() == [{"text": text} for text in texts]


def test_missing_numbers_are_not_numbers(tmp_path):
    table = pa.table({"i": [1, None, 3] * 9, "b": [None, True, False] * 9, "none": pa.nulls(27)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    file = ParquetFile(tmp_path / "a.parquet")
    np.testing.assert_array_equal(file.read()["i"], [1, np.nan, 3] * 9)
    np.testing.assert_array_equal(file.read()["b"], [np.nan, 1, 0] * 9)
    assert file.records()[1] == {"i": None, "b": True, "none": None}


def test_those_of_duckdb_are_read_and_ours_by_it(tmp_path):
    columns = {
        "n": np.arange(5000) * 3,
        "f": np.linspace(0, 1, 5000),
        "r": np.repeat(np.arange(5, dtype="int32"), 1000),
    }
    path = written(tmp_path / "ours.parquet", columns)
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT * FROM '{path}'").fetchnumpy()
        assert_same({name: np.asarray(column) for name, column in found.items()}, columns)
        connection.execute(f"COPY (SELECT *, 't' || n AS t FROM '{path}') TO '{tmp_path / 'duck.parquet'}'")
    read = ParquetFile(tmp_path / "duck.parquet").read()
    assert read.pop("t").tolist() == [f"t{n}" for n in columns["n"]]
    assert_same(read, columns)


def test_bounds_of_integers_are_those_of_each_row_group(tmp_path):
    groups = [
        {"r": np.array([3, -5], "int32"), "f": np.ones(2)},
        {"r": np.array([7], "int32"), "f": np.ones(1)},
    ]
    file = ParquetFile(written(tmp_path / "a.parquet", *groups))
    assert file.bounds("r") == [(-5, 3), (7, 7)]
    assert file.bounds("f") is None
    assert_same(file.read(["r"], [1]), {"r": groups[1]["r"]})


def test_tables_of_pandas_keep_numbers_and_write_the_rest_as_text(tmp_path):
    frame = pd.DataFrame({
        "Int64": pd.array([1, None, -3], "Int64"), "Float64": pd.array([1.5, None, np.inf], "Float64"),
        "boolean": pd.array([True, None, False], "boolean"), "float": [1.0, np.nan, 3.0], "int": [1, 2, 3],
        "str": pd.Series(["a", None, "ü"], dtype="str"), "category": pd.Categorical(["x", None, "x"]),
        "objects": pd.Series([True, None, False], dtype=object),
        "whole": pd.Series([1, None, 2], dtype=object), "large": pd.Series([1 << 70, 1, 2], dtype=object),
        "mixed": pd.Series([1, "a", None], dtype=object), "uint8": np.array([1, 2, 255], "uint8"),
        "list": pd.Series([[1], None, [2]], dtype=object), "date": pd.to_datetime(["2026-01-01"] * 3),
    })  # fmt: skip
    path = saved(tmp_path / "a.parquet", frame_bytes(frame))
    expected = {
        name: [None if pd.isna(value) else value for value in frame[name].astype(object)]
        for name in frame
        if name not in ("large", "mixed", "list", "date")
    } | {
        "large": [str(1 << 70), "1", "2"],
        "mixed": ["1", "a", None],
        "list": ["[1]", None, "[2]"],
        "date": ["2026-01-01 00:00:00"] * 3,
    }
    rows = ParquetFile(path).records()
    assert {name: [row[name] for row in rows] for name in frame} == expected
    assert [*pd.read_parquet(path)] == [*frame]
    assert ParquetFile(path).kinds["uint8"] == "uint8"


def test_tables_without_rows_or_columns_are_files(tmp_path):
    for frame in (pd.DataFrame({"a": np.empty(0, "int64"), "t": pd.Series([], dtype="str")}), pd.DataFrame()):
        file = ParquetFile(saved(tmp_path / "a.parquet", frame_bytes(frame)))
        assert [*file.read()] == [*frame]
        assert file.records() == []
    dates = pd.DataFrame({"d": pd.to_datetime([]), "a": np.empty(0, "int8")})
    pq.ParquetWriter(tmp_path / "b.parquet", pa.Schema.from_pandas(dates)).close()
    file = ParquetFile(tmp_path / "b.parquet")
    assert file.rows == ()
    assert {name: column.dtype for name, column in file.read().items()} == {"d": object, "a": np.int8}


@pytest.mark.parametrize(("table", "message"), [
    ({"d": pd.to_datetime(["2026-01-01"])}, "column d contains neither"),
    ({"l": [[1, 2]]}, "column l contains neither"),
    ({"s": [{"x": 1, "y": 2}]}, "only flat tables can be read"),
])  # fmt: skip
def test_columns_that_are_not_read_are_named(tmp_path, table, message):
    pq.write_table(pa.Table.from_pandas(pd.DataFrame(table)), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=message):
        ParquetFile(tmp_path / "a.parquet").read()


def test_a_column_that_is_absent_is_named(tmp_path):
    file = ParquetFile(written(tmp_path / "a.parquet", {"a": np.arange(3)}))
    with pytest.raises(ValueError, match="no column b"):
        file.read(["a", "b"])


@pytest.mark.parametrize("name", ["n\udcff", "s3:/bucket/n", "file:n", "a b%20"])
@pytest.mark.parametrize("stays_open", [True, False])
def test_any_name_of_a_file_is_a_name_of_this_machine(tmp_path, monkeypatch, name, stays_open):
    monkeypatch.chdir(tmp_path)
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with ParquetWriter(path, {"a": "int64"}) as writer:
        writer.write({"a": np.arange(3)})
    assert ParquetFile(path, stays_open=stays_open).read()["a"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"PAR1PAR1", b"PAR1\xff\xff\xff\xffPAR1", b"PAR1" + bytes(50) + b"PARE"]
)
def test_what_is_not_parquet_is_an_error(tmp_path, content):
    with pytest.raises(ValueError, match=r"."):
        ParquetFile(saved(tmp_path / "a.parquet", content))


def test_a_file_that_is_absent_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        ParquetFile(tmp_path / "a.parquet")


def test_columns_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(ValueError, match="length"):
        written(tmp_path / "a.parquet", {"a": np.arange(3), "b": np.arange(4)})
    with pytest.raises(ValueError, match="does not fit"):
        written(tmp_path / "a.parquet", {"a": np.array([300])}, kinds={"a": "int8"})


def small_file(path, writer):
    """Write a small file with *writer*; PyArrow's own default has no checksums."""
    columns = {
        "n": np.arange(40) * 1000,
        "r": np.repeat(np.arange(4, dtype="int32"), 10),
        "b": np.arange(40) % 3 == 0,
    }
    if writer == "arrow":
        content = io.BytesIO()
        table = pa.table(columns | {"t": [f"text {n % 5}" for n in range(40)]})
        pq.write_table(table, content, row_group_size=25)
        return content.getvalue()
    return written(
        path, {name: column[:25] for name, column in columns.items()}, {n: c[25:] for n, c in columns.items()}
    ).read_bytes()


@pytest.mark.parametrize("writer", ["ours", "arrow"])
def test_a_file_that_was_cut_off_is_an_error(tmp_path, writer):
    content = small_file(tmp_path / "a.parquet", writer)
    for size in [*range(0, len(content) - 256, 7), *range(len(content) - 256, len(content))]:
        with pytest.raises(ValueError, match=r"."):
            ParquetFile(saved(tmp_path / "a.parquet", content[:size])).read()


def test_a_damaged_page_is_an_error(tmp_path):
    """Pages have checksums: a byte that changed in one is an error, or in none of the values."""
    content = small_file(tmp_path / "a.parquet", "ours")
    whole = ParquetFile(saved(tmp_path / "a.parquet", content)).read()
    pages_end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    refused = 0
    for place in range(4, pages_end):
        changed = bytearray(content)
        changed[place] ^= 16
        try:
            read = ParquetFile(saved(tmp_path / "a.parquet", bytes(changed))).read()
        except ValueError:
            refused += 1
            continue
        assert_same(read, whole)
    assert refused > pages_end / 2


def test_reading_and_writing_numbers_imports_no_pandas(tmp_path):
    code = (
        "import sys, numpy as np; from chakrascope.support.table import ParquetFile, ParquetWriter\n"
        "with ParquetWriter(sys.argv[1], {'a': 'int64', 'b': 'bool'}) as writer:\n"
        "    writer.write({'a': np.arange(3), 'b': np.arange(3) > 1})\n"
        "print(ParquetFile(sys.argv[1]).read()['b'].tolist(), 'pandas' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.parquet")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[0] == "[False, False, True] False"


def test_texts_and_a_note_are_read_as_they_were_written(tmp_path):
    columns = {"name": np.array(["mm", "", "Größe", "mm"], object), "time_ns": np.arange(4)}
    with ParquetWriter(tmp_path / "a.parquet", {"name": "text", "time_ns": "int64"}, "made of b") as writer:
        writer.write(columns)
    file = ParquetFile(tmp_path / "a.parquet")
    assert file.note == "made of b"
    read = file.read()
    assert read["name"].tolist() == columns["name"].tolist()
    assert read["name"][0] is read["name"][3]  # each string is in memory once
    assert read["time_ns"].tolist() == [0, 1, 2, 3]


# Columns of strings are read as arrays of strings, however the strings are numbered.

words = st.lists(st.sampled_from(["", "a", "b", "cc"]), max_size=8)


@st.composite
def columns(draw):
    """Return a column and its strings; some strings may be unused or duplicate."""
    texts = [*draw(words), "", "a"]
    numbers = draw(st.lists(st.integers(0, len(texts) - 1), max_size=12))
    return TextColumn(np.array(numbers, np.int32), texts), [texts[number] for number in numbers]


@given(columns())
def test_a_column_reads_as_the_array_of_its_texts(pair):
    column, texts = pair
    array = np.array([*texts, None], object)[:-1]
    assert column.tolist() == [*column] == np.asarray(column).tolist() == texts
    assert (column == "a").tolist() == (array == "a").tolist()
    assert (column != "a").tolist() == (array != "a").tolist()
    assert np.isin(column, ["a", "cc"]).tolist() == [text in ("a", "cc") for text in texts]
    assert column[array == "a"].tolist() == array[array == "a"].tolist()
    assert column[1:] == TextColumn.of(texts[1:])
    assert frame_of({"text": column})["text"].tolist() == texts
    if texts:
        assert column[0] == texts[0]
        assert column[np.int64(len(texts) - 1)] == texts[-1]


@given(columns())
def test_a_compact_column_has_each_text_once_in_order_of_first_rows(pair):
    column, texts = pair
    assert column.compact() == column
    assert column.compact().texts == [*dict.fromkeys(texts)]


@given(columns(), words)
def test_columns_are_filled_mapped_and_placed(pair, other):
    column, texts = pair
    others = [*other, *["z"] * len(texts)][: len(texts)]
    filled = column.filled(TextColumn.of(others))
    assert filled.tolist() == [own or spare for own, spare in zip(texts, others, strict=True)]
    assert column.mapped(str.upper).tolist() == [text.upper() for text in texts]
    assert column.passes(str.isalpha).tolist() == [text.isalpha() for text in texts]
    placed = column.placed(np.arange(len(texts)) + 1, len(texts) + 2, "idle")
    assert placed.tolist() == ["idle", *texts, "idle"]


def test_a_test_is_called_for_the_texts_in_use_alone():
    asked = []
    TextColumn(np.array([1, 1]), ["a", "b", "c"]).passes(lambda text: bool(asked.append(text)))
    assert asked == ["b"]


def test_a_column_compares_with_nothing_but_texts_and_columns():
    column = TextColumn.of(["a"])
    assert column != ["a"]
    assert column != 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(column)


# Tables in memory and in files, whole and by rank.

COLUMNS_KINDS = {"rank": "int32", "node_id": "int64", "start_ns": "int64"}


def columns_of(ranks, ids):
    ids = np.array(ids)
    return {"rank": np.array(ranks, np.int32), "node_id": ids, "start_ns": ids * 10}


def in_file(path, *groups):
    with ParquetWriter(path, COLUMNS_KINDS) as writer:
        for group in groups:
            writer.write(group)
    return Table(ParquetFile(path))


ORDERED = columns_of([0, 0, 1, 1], [1, 2, 1, 3]), columns_of([2, 3], [5, 6])
SPLIT = columns_of([0, 1], [1, 1]), columns_of([1, 3], [3, 6])
SHUFFLED = (columns_of([3, 0, 3], [6, 1, 2]),)


@pytest.mark.parametrize("groups", [ORDERED, SPLIT, SHUFFLED])
@pytest.mark.parametrize("in_memory", [True, False])
def test_ranks_are_the_same_from_memory_and_from_a_file(tmp_path, groups, in_memory):
    whole = {name: np.concatenate([group[name] for group in groups]) for name in COLUMNS_KINDS}
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


def test_unwanted_ranks_are_not_read(tmp_path, monkeypatch):
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
    for value in (frame, {"rank": np.array([0]), "name": np.array(["a"], object)}, Table.of(frame)):
        record = Record(value)
        assert record.nodes["name"].tolist() == ["a"]
        assert record.nodes is record.nodes
        assert record.links.empty
        assert record.links["src"].dtype == "int32"
        assert replace(record, links=frame).nodes is record.nodes
        assert pickle.loads(pickle.dumps(record)).nodes.equals(record.nodes)
    assert Record(frame).nodes is frame
    with pytest.raises(TypeError, match="nodes"):
        Record()


def test_table_is_mutable_but_not_its_columns():
    column = np.arange(3)
    column.flags.writeable = False
    frame = frame_of({"a": column})
    frame.loc[0, "a"] = 5
    assert frame["a"].tolist() == [5, 1, 2]
    assert column.tolist() == [0, 1, 2]
