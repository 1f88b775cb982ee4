"""Columns become the same CSV as a table of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from chakrascope.converter.chakra import TextColumn
from chakrascope.runner.analysis import csv_pieces, csv_text

TEXTS = st.text(st.sampled_from(' ,"\n\r\t=+-@a1é'), max_size=5)
ROW = st.tuples(TEXTS, st.integers(-(1 << 62), 1 << 62), st.floats(allow_infinity=False), st.booleans())


@given(st.lists(ROW, min_size=1, max_size=12), st.data())
def test_columns_are_written_as_their_table_is(rows, data):
    text, number, share, flag = zip(*rows, strict=True)
    columns = {
        "=name": TextColumn.of(text),
        "number": np.array(number, np.int64),
        "share": np.array(share),
        "flag": np.array(flag),
    }
    order = np.array(data.draw(st.permutations(range(len(rows)))))
    frame = pd.DataFrame({"=name": pd.Series(text, dtype=object), **{
        name: columns[name] for name in ("number", "share", "flag")
    }})  # fmt: skip
    assert "".join(csv_pieces(columns, order)) == csv_text(frame.iloc[order])
