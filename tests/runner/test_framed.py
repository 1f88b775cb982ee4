"""Tables held as columns: pandas' when asked for, summed by key."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakrascope.runner import Result
from chakrascope.runner._framed import coded, rows_of, sums_by
from chakrascope.support.table import TextColumn


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 3), st.integers(0, 1 << 60)), max_size=30))
def test_sums_are_those_of_pandas(rows):
    frame = pd.DataFrame(rows, columns=["a", "b", "ns"]).astype({"a": object, "b": "int64", "ns": object})
    frame["ns"] = frame["ns"].astype("int64") % (1 << 55)
    sums = sums_by(frame["ns"].to_numpy(), frame["a"].to_numpy(), frame["b"].to_numpy())
    assert [*sums.items()] == [*frame.groupby(["a", "b"])["ns"].sum().items()]


@given(
    st.lists(st.tuples(st.integers(0, 3) | st.integers(-(1 << 60), 1 << 60), st.integers(0, 3)), max_size=30)
)
def test_integers_are_coded_as_objects_are(rows):
    columns = [np.array([row[place] for row in rows], np.int64) for place in (0, 1)]
    for keys in (columns[:1], columns):
        numbers, names = coded(*keys)
        expected_numbers, expected_names = coded(*(key.astype(object) for key in keys))
        assert numbers.tolist() == expected_numbers.tolist()
        assert names == expected_names


@pytest.fixture
def result():
    names = ["finish_ns", "exposed_comm_ns", "compute_ns", "comm_ns", "overlap_ns"]
    ranks = {"rank": np.array([0, 1]), **{name: np.array([1, 2]) for name in names}}
    return Result("fake", 7, ranks)


def test_a_result_given_columns_has_tables(result):
    assert rows_of(result.columns("ranks"))[1]["rank"] == 1
    assert isinstance(result.ranks, pd.DataFrame)
    assert result.columns("ranks")["finish_ns"].tolist() == [1, 2]
    assert result.links.empty
    assert result.links["bytes"].dtype == "int64"
    assert replace(result, makespan_ns=9).ranks.equals(result.ranks)
    assert pickle.loads(pickle.dumps(result)).ranks.equals(result.ranks)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int64", "uint64"])
def test_the_extremes_of_integers_are_coded(kind):
    limits = np.iinfo(kind)
    keys = np.array([limits.max, limits.min, limits.max, 3] * 70, kind)
    numbers, names = coded(keys, keys)
    assert numbers.tolist() == [0, 1, 0, 2] * 70
    assert names == [(int(limits.max),) * 2, (int(limits.min),) * 2, (3, 3)]


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 3)), max_size=30))
def test_columns_of_texts_are_coded_as_objects_are(rows):
    texts = [text for text, _ in rows]
    numbers = np.array([number for _, number in rows], np.int64)
    objects = np.array([*texts, None], object)[:-1]
    for keys, others in (
        ([TextColumn.of(texts)], [objects]),
        ([TextColumn.of(texts), numbers], [objects, numbers]),
    ):
        indices, names = coded(*keys)
        expected_indices, expected_names = coded(*others)
        assert indices.tolist() == expected_indices.tolist()
        assert names == expected_names
