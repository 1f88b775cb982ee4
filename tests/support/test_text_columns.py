"""Columns of texts read as arrays of texts, however the texts are numbered."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakrascope.support.table import TextColumn, frame_of

words = st.lists(st.sampled_from(["", "a", "b", "cc"]), max_size=8)


@st.composite
def columns(draw):
    """Return a column and its texts; some texts may be unused, or stand twice."""
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
