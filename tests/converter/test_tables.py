"""The writer of tables: whatever it writes, Parquet's own library reads."""

import io
from itertools import chain

import hypothesis.strategies as st
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from chakrascope.converter._native import ParquetWriter
from chakrascope.converter.chakra import TextColumn

BOUNDS = {"int64": (-(2**63), 2**63 - 1), "int16": (-(2**15), 2**15 - 1), "uint8": (0, 255), "bool": (0, 1)}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


def values(dtype: str, rows: int) -> st.SearchStrategy:
    if dtype == "str":
        return st.lists(TEXTS, min_size=rows, max_size=rows)
    least, most = BOUNDS[dtype]
    some = st.integers(least, most) | st.integers(max(least, -2), min(most, 3))
    # Long runs of neighbours, as real columns have them, pack into fewer bits than what lies around them.
    start = st.integers(least, most)
    run = start.map(lambda first: [min(most, first + i) for i in range(rows)])
    return st.lists(some, min_size=rows, max_size=rows) | run


@st.composite
def row_groups(draw: st.DrawFn) -> tuple[list[str], list[list[list]]]:
    dtypes = draw(st.lists(st.sampled_from([*BOUNDS, "str"]), min_size=1, max_size=4))
    sizes = draw(st.lists(st.sampled_from([0, 1, 7, 8, 31, 32, 33, 128, 129, 130, 300]), max_size=3))
    return dtypes, [[draw(values(dtype, rows)) for dtype in dtypes] for rows in sizes]


def written(dtypes: list[str], groups: list[list[list]]) -> bytes:
    writer = ParquetWriter([(f"c{number}", dtype) for number, dtype in enumerate(dtypes)])
    parts = []
    for group in groups:
        for dtype, column in zip(dtypes, group, strict=True):
            if dtype == "str":
                parts.append(writer.texts(*TextColumn.of(column).encoded()))
            else:
                parts.append(writer.integers(np.array(column, dtype=np.int64)))
    return b"".join([*parts, writer.finish()])


@given(row_groups())
def test_what_is_written_is_read(table):
    dtypes, groups = table
    read = pq.read_table(io.BytesIO(written(dtypes, groups)))
    wanted = [[*chain.from_iterable(group[place] for group in groups)] for place in range(len(dtypes))]
    assert [column.to_pylist() for column in read.columns] == wanted
    kinds = {"str": "string"}
    assert [str(field.type) for field in read.schema] == [kinds.get(dtype, dtype) for dtype in dtypes]


def test_texts_that_no_row_has_are_left_out():
    column = TextColumn(np.array([2, 0, 2], dtype=np.int32), ["often", "never", "twice"])
    writer = ParquetWriter([("c", "str")])
    data = writer.texts(*column.encoded()) + writer.finish()
    assert pq.read_table(io.BytesIO(data))["c"].to_pylist() == ["twice", "often", "twice"]
    assert b"never" not in data


@pytest.mark.parametrize("columns", [1000, 15])
def test_tables_may_be_wide(columns):
    data = written(["int64"] * columns, [[[number] for number in range(columns)]])
    assert pq.read_table(io.BytesIO(data)).num_columns == columns


def test_columns_come_in_order_and_in_one_length():
    writer = ParquetWriter([("c", "int64"), ("d", "str")])
    numbers = np.zeros(2, dtype=np.int64)
    writer.integers(numbers)
    with pytest.raises(ValueError, match="texts is due"):
        writer.integers(numbers)
    with pytest.raises(ValueError, match="differ in length"):
        writer.texts(*TextColumn.of(["one"]).encoded())
    with pytest.raises(ValueError, match="columns are missing"):
        writer.finish()
    with pytest.raises(ValueError, match="no column is written as float"):
        ParquetWriter([("c", "float")])
