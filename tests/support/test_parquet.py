"""Parquet files: ours read by others, those of others read by us, tables of pandas, and damaged ones."""

from __future__ import annotations

import contextlib
import io
import itertools
import subprocess
import sys

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from chakrascope.support.parquet import ParquetFile, ParquetWriter, Part, frame_bytes, read_frame

KINDS = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
)
TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=8)), min_size=1, max_size=40)
ARROW_WAYS = (
    {},
    {"use_dictionary": False},
    {"data_page_version": "2.0"},
    {"data_page_version": "2.0", "use_dictionary": False},
    {"compression": "none", "version": "2.4"},
    {"row_group_size": 7},
    {"data_page_size": 64, "write_batch_size": 8},
    {"write_page_checksum": True},
)


def written(*groups, optional=(), kinds=None):
    """Return the bytes of a file with these *groups* of columns."""
    file = io.BytesIO()
    kinds = kinds or {name: column.dtype.name for name, column in groups[0].items()}
    with ParquetWriter(file, kinds, optional=optional) as writer:
        for group in groups:
            writer.write(group)
    return file.getvalue()


def saved(folder, content, name="file.parquet"):
    path = folder / name
    path.write_bytes(content)
    return path


def assert_same(read, columns):
    assert list(read) == list(columns)
    for name, column in columns.items():
        assert read[name].dtype == column.dtype
        np.testing.assert_array_equal(read[name], column)


def drawn_columns(data, length):
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    fill = st.one_of(st.nothing(), st.just(0))
    return {
        f"{place} {kind}": data.draw(
            arrays.arrays(kind, length, fill=data.draw(st.sampled_from([None, fill])))
        )
        for place, kind in enumerate(kinds)
    }


@given(data=st.data(), lengths=st.lists(st.integers(0, 300), min_size=1, max_size=3))
def test_ours_are_read_as_they_were_written_by_us_and_by_arrow(tmp_path_factory, data, lengths):
    columns = drawn_columns(data, sum(lengths))
    ends = np.cumsum([0, *lengths])
    groups = [
        {name: column[start:end] for name, column in columns.items()}
        for start, end in itertools.pairwise(ends)
    ]
    content = written(*groups)
    assert content == written(*groups)
    file = ParquetFile(saved(tmp_path_factory.getbasetemp(), content))
    assert file.rows == tuple(lengths)
    assert_same(file.read(), columns)
    arrow = pq.read_table(io.BytesIO(content), page_checksum_verification=True)
    assert_same({name: arrow[name].to_numpy() for name in arrow.column_names}, columns)


@given(data=st.data(), way=st.sampled_from(ARROW_WAYS))
def test_arrows_are_read_as_arrow_reads_them(tmp_path_factory, data, way):
    columns = drawn_columns(data, data.draw(st.integers(0, 300)))
    path = tmp_path_factory.getbasetemp() / "arrow.parquet"
    pq.write_table(pa.table(columns), path, **way)
    assert_same(ParquetFile(path).read(), columns)


@pytest.mark.parametrize("kind", ["int32", "int64", "uint32", "uint64"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_differences_are_read(tmp_path, kind, version):
    """As results of 0.2.0 have them, and of extremes, whose differences wrap."""
    limits = np.iinfo(kind)
    extremes = np.repeat(np.array([limits.min, limits.max], kind), 150)
    drawn = np.random.default_rng(7).integers(limits.min, limits.max, 777, kind)
    for values in (np.arange(1000), extremes, drawn):
        columns = {"a": values.astype(kind)}
        pq.write_table(
            pa.table(columns), tmp_path / "a.parquet", use_dictionary=False,
            column_encoding={"a": "DELTA_BINARY_PACKED"}, data_page_version=version,
        )  # fmt: skip
        assert_same(ParquetFile(tmp_path / "a.parquet").read(), columns)
        assert_same(ParquetFile(saved(tmp_path, written(columns))).read(), columns)


@given(texts=TEXTS, way=st.sampled_from(ARROW_WAYS))
def test_texts_pass_both_ways(tmp_path_factory, texts, way):
    folder = tmp_path_factory.getbasetemp()
    frame = pd.DataFrame({"text": pd.Series(texts, dtype=object)})
    path = saved(folder, frame_bytes(frame))
    assert ParquetFile(path).read()["text"].tolist() == texts
    assert pq.read_table(path)["text"].to_pylist() == texts
    pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), folder / "arrow.parquet", **way)
    assert ParquetFile(folder / "arrow.parquet").read()["text"].tolist() == texts


@pytest.mark.parametrize("way", ARROW_WAYS)
def test_missing_numbers_of_others_are_not_made_up(tmp_path, way):
    table = pa.table({"i": [1, None, 3] * 9, "b": [None, True, False] * 9, "none": pa.nulls(27)})
    pq.write_table(table, tmp_path / "a.parquet", **way)
    read = ParquetFile(tmp_path / "a.parquet").read()
    np.testing.assert_array_equal(read["i"], [1, np.nan, 3] * 9)
    np.testing.assert_array_equal(read["b"], [np.nan, 1, 0] * 9)
    assert read_frame(tmp_path / "a.parquet")["i"].tolist() == [1, pd.NA, 3] * 9


def test_those_of_duckdb_are_read_and_ours_by_it(tmp_path):
    columns = {
        "n": np.arange(5000) * 3,
        "f": np.linspace(0, 1, 5000),
        "r": np.repeat(np.arange(5, dtype="int32"), 1000),
    }
    path = saved(tmp_path, written(columns))
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT * FROM '{path}'").fetchnumpy()
        assert_same({name: np.asarray(column) for name, column in found.items()}, columns)
        assert connection.execute(f"SELECT count(*) FROM '{path}' WHERE r = 3").fetchall() == [(1000,)]
        connection.execute(f"COPY (SELECT *, 't' || n AS t FROM '{path}') TO '{tmp_path / 'duck.parquet'}'")
    read = ParquetFile(tmp_path / "duck.parquet").read()
    assert read.pop("t").tolist() == [f"t{n}" for n in columns["n"]]
    assert_same(read, columns)


def test_bounds_of_signed_numbers_are_told_by_row_group(tmp_path):
    groups = [
        {"r": np.array([3, -5], "int32"), "f": np.ones(2)},
        {"r": np.array([7], "int32"), "f": np.ones(1)},
    ]
    file = ParquetFile(saved(tmp_path, written(*groups)))
    assert file.bounds("r") == [(-5, 3), (7, 7)]
    assert file.bounds("f") is None
    assert_same(file.read(["r"], [1]), {"r": groups[1]["r"]})
    statistics = pq.ParquetFile(tmp_path / "file.parquet").metadata.row_group(0).column(0).statistics
    assert (statistics.min, statistics.max) == (-5, 3)


def test_many_rows_take_several_pages(tmp_path):
    rows = (1 << 20) + 5
    part = Part(np.arange(rows) % 3, np.arange(rows) % 7 > 0, ("x", "y", "z"))
    content = written({"n": np.arange(rows), "t": part}, kinds={"n": "int64", "t": "text"}, optional=["t"])
    read = ParquetFile(saved(tmp_path, content)).read()
    arrow = pq.read_table(tmp_path / "file.parquet")
    assert_same({"n": read["n"]}, {"n": np.arange(rows)})
    assert read["t"].tolist() == arrow["t"].to_pylist()
    assert arrow["n"].to_numpy()[-1] == rows - 1


def plain(column):
    return [None if missing else value for value, missing in zip(column, column.isna(), strict=True)]


def test_tables_of_pandas_come_back(tmp_path):
    frame = pd.DataFrame({
        "Int64": pd.array([1, None, -3], "Int64"), "Float64": pd.array([1.5, None, np.inf], "Float64"),
        "boolean": pd.array([True, None, False], "boolean"), "float": [1.0, np.nan, 3.0], "int": [1, 2, 3],
        "str": pd.Series(["a", None, "ü"], dtype="str"), "category": pd.Categorical(["x", None, "x"]),
        "objects": pd.Series([True, None, False], dtype=object),
        "whole": pd.Series([1, None, 2], dtype=object),
        "mixed": pd.Series([1, "a", None], dtype=object), "uint8": np.array([1, 2, 255], "uint8"),
    })  # fmt: skip
    path = saved(tmp_path, frame_bytes(frame))
    by_pandas, by_us = pd.read_parquet(path), read_frame(path)
    for read in (by_pandas, by_us):
        assert [*read] == [*frame]
        for name in frame:
            expected = plain(frame[name])
            if name == "mixed":
                expected = ["1", "a", None]
            assert plain(read[name]) == expected, name
    assert by_us["Int64"].dtype == "Int64"
    assert by_us["uint8"].dtype == "uint8"


def test_an_empty_table_and_one_without_columns_are_files(tmp_path):
    for frame in (pd.DataFrame({"a": np.empty(0, "int64"), "t": pd.Series([], dtype="str")}), pd.DataFrame()):
        path = saved(tmp_path, frame_bytes(frame))
        assert [*read_frame(path)] == [*frame]
        assert pq.read_table(path).num_rows == 0


def test_of_a_table_without_rows_all_columns_are_read(tmp_path):
    dates = pd.DataFrame({"d": pd.to_datetime([]), "a": np.empty(0, "int8")})
    pq.ParquetWriter(tmp_path / "a.parquet", pa.Schema.from_pandas(dates)).close()
    file = ParquetFile(tmp_path / "a.parquet")
    assert file.rows == ()
    assert {name: column.dtype for name, column in file.read().items()} == {"d": object, "a": np.int8}


SPLIT = {"use_dictionary": False, "column_encoding": {"f": "BYTE_STREAM_SPLIT"}}


@pytest.mark.parametrize(("table", "way", "said"), [
    ({"d": pd.to_datetime(["2026-01-01"])}, {}, "column d holds what is not read here"),
    ({"l": [[1, 2]]}, {}, "only flat tables are read"),
    ({"a": [1] * 999}, {"compression": "zstd"}, "codec 6; write it with snappy"),
    ({"f": [1.5, 2.5]}, SPLIT, "encoding 9"),
])  # fmt: skip
def test_what_is_not_read_is_named(tmp_path, table, way, said):
    pq.write_table(pa.Table.from_pandas(pd.DataFrame(table)), tmp_path / "a.parquet", **way)
    with pytest.raises(ValueError, match=said):
        ParquetFile(tmp_path / "a.parquet").read()


@pytest.mark.parametrize(
    "content", [b"", b"PAR1", b"PAR1PAR1", b"PAR1\xff\xff\xff\xffPAR1", b"PAR1" + bytes(50) + b"PARE"]
)
def test_what_is_no_parquet_file_is_an_error(tmp_path, content):
    with pytest.raises(ValueError, match=r"Parquet file|encrypted|schema"):
        ParquetFile(saved(tmp_path, content))


def test_columns_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="same length"):
        written({"a": np.arange(3), "b": np.arange(4)})
    with pytest.raises(ValueError, match="does not fit"):
        written({"a": np.array([300])}, kinds={"a": "int8"})
    with pytest.raises(ValueError, match="may lack no values"):
        written({"a": Part(np.arange(2), np.array([True, False]))}, kinds={"a": "int64"})


def small_files():
    """Small files of ours and of Arrow's, these without checksums, and what is in them."""
    columns = {
        "n": np.arange(40) * 1000,
        "r": np.repeat(np.arange(4, dtype="int32"), 10),
        "b": np.arange(40) % 3 == 0,
    }
    ours = written(
        {name: column[:25] for name, column in columns.items()}, {n: c[25:] for n, c in columns.items()}
    )
    arrow = io.BytesIO()
    pq.write_table(pa.table(columns | {"t": [f"text {n % 5}" for n in range(40)]}), arrow, row_group_size=25)
    return {"ours": ours, "arrow": arrow.getvalue()}


@pytest.mark.parametrize("whose", ["ours", "arrow"])
def test_a_file_that_was_cut_off_is_an_error_at_every_byte(tmp_path, whose):
    content = small_files()[whose]
    for size in range(len(content)):
        with pytest.raises(ValueError, match=r"."):
            ParquetFile(saved(tmp_path, content[:size])).read()


def test_a_byte_that_changed_is_an_error_or_changes_nothing(tmp_path):
    """All pages have checksums; of the metadata only what nobody reads, and names, may change."""
    content = small_files()["ours"]
    whole = ParquetFile(saved(tmp_path, content)).read()
    pages_end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    refused = 0
    for place in range(len(content)):
        for bit in (1, 16, 128):
            changed = bytearray(content)
            changed[place] ^= bit
            try:
                read = ParquetFile(saved(tmp_path, bytes(changed))).read()
            except ValueError:
                refused += 1
                continue
            assert place >= pages_end or list(read) == list(whole)
            if place < pages_end:
                assert_same(read, whole)
    assert refused > len(content)


@pytest.mark.parametrize("whose", ["ours", "arrow"])
@given(data=st.data())
def test_whatever_changed_nothing_crashes(tmp_path_factory, whose, data):
    content = bytearray(small_files()[whose])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = saved(tmp_path_factory.getbasetemp(), bytes(content), "changed.parquet")
    with contextlib.suppress(ValueError):
        ParquetFile(path).read()


WITHOUT_ARROW = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyarrow", "duckdb"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Blocked())
from chakrascope.cli import main
for words in sys.argv[1:]:
    sys.argv = ["chakrascope", *words.split("|")]
    try:
        main()
    except SystemExit as end:
        assert not end.code, words
"""


def test_the_base_needs_no_arrow(tmp_path):
    study, report = tmp_path / "study", tmp_path / "report.html"
    commands = [
        f"generate|all-reduce|-o|{tmp_path / 'work'}|--ranks|2",
        f"import|{study}|{tmp_path}|work",
        f"run|{study}|--network|ring-2",
        f"summary|{study}",
        f"critical-path|{study}",
        f"sweep|{study}|--network|ring-2|--over|network.bandwidth=50,100|--name|s",
        f"export|{study}|-o|{tmp_path / 'nodes.parquet'}",
        f"report|{study}|-o|{report}",
    ]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_ARROW, *commands], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert report.is_file()
    assert len(pd.read_parquet(tmp_path / "nodes.parquet")) == 2
