"""Convert columns between NumPy and Arrow without copies.

PyArrow's own conversions would import pandas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ._text import TextColumn, byte_table

TEXT = "text"
_NUMBERS = (
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float32",
    "float64",
)
_TEXTS = pa.dictionary(pa.int32(), pa.string())
_KINDS = {pa.from_numpy_dtype(np.dtype(name)): name for name in ("bool", *_NUMBERS)} | {
    pa.string(): TEXT,
    pa.large_string(): TEXT,
    pa.null(): TEXT,
}


def kind_of(arrow: pa.DataType) -> str:
    """Return the NumPy name of an Arrow type, ``text``, or ``other`` for types that columns cannot hold."""
    while pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    return _KINDS.get(arrow, "other")


def schema_of(kinds: Mapping[str, str]) -> pa.Schema:
    """Return the Arrow schema of columns of the given *kinds* (NumPy types or ``text``), none nullable."""
    types = {
        name: _TEXTS if kind == TEXT else pa.from_numpy_dtype(np.dtype(kind)) for name, kind in kinds.items()
    }
    return pa.schema([pa.field(name, arrow, nullable=False) for name, arrow in types.items()])


def to_arrow(column: npt.NDArray[Any] | TextColumn) -> pa.Array:
    """Return *column* as an Arrow array; numbers are not copied, and objects must be strings."""
    if isinstance(column, TextColumn) or column.dtype == object:
        texts = (column if isinstance(column, TextColumn) else TextColumn.of(column)).compact()
        encoded, ends = byte_table([text.encode("utf-8", "replace") for text in texts.texts])
        offsets = pa.py_buffer(np.concatenate([[0], ends]).astype(np.int32))
        strings = pa.StringArray.from_buffers(len(ends), offsets, pa.py_buffer(encoded))
        return pa.DictionaryArray.from_arrays(to_arrow(texts.numbers), strings)
    arrow = pa.from_numpy_dtype(column.dtype)
    if column.dtype == np.bool_:
        data = pa.py_buffer(np.packbits(column, bitorder="little"))
    else:
        data = pa.py_buffer(np.ascontiguousarray(column))
    return pa.Array.from_buffers(arrow, len(column), [None, data])


def to_texts(column: pa.ChunkedArray) -> TextColumn:
    """Return a dictionary-encoded Arrow *column* as texts; raises `ValueError` if a string is null."""
    parts = []
    for chunk in column.chunks:
        if not pa.types.is_dictionary(chunk.type) or chunk.null_count:
            raise ValueError("a string is null")
        numbers, texts = _values(chunk.indices, kind_of(chunk.indices.type)), chunk.dictionary.to_pylist()
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(texts):
            raise ValueError("the index of a string is out of range")
        parts.append(TextColumn(numbers, texts))
    return TextColumn.joined(parts) if len(parts) > 1 else parts[0] if parts else TextColumn.of([])


def to_numpy(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return the values of an Arrow *column*; texts become objects, and missing ones None.

    Numbers with missing values become floats, with NaN for those.
    """
    kind = kind_of(column.type)
    if not len(column):
        return np.empty(0, object if kind in (TEXT, "other") else kind)
    parts = [_part(chunk, kind) for chunk in column.chunks]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _part(chunk: pa.Array, kind: str) -> npt.NDArray[Any]:
    if kind == TEXT:
        return _texts(chunk)
    if pa.types.is_dictionary(chunk.type):
        return _part(chunk.dictionary_decode(), kind)
    values = _values(chunk, kind)
    if not chunk.null_count:
        return values
    return np.where(_values(chunk.is_valid(), "bool"), values.astype(np.float64), np.nan)


def _values(chunk: pa.Array, kind: str) -> npt.NDArray[Any]:
    data = chunk.buffers()[1]
    if data is None:
        return np.empty(0, kind)
    if kind == "bool":
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        return bits[chunk.offset : chunk.offset + len(chunk)].view(np.bool_)
    return np.frombuffer(data, kind, len(chunk), chunk.offset * np.dtype(kind).itemsize)


def _texts(chunk: pa.Array) -> npt.NDArray[Any]:
    if not pa.types.is_dictionary(chunk.type):
        return np.array([*chunk.to_pylist(), None], object)[:-1]
    texts = np.array([*chunk.dictionary.to_pylist(), None], object)
    indices = chunk.indices.fill_null(len(texts) - 1) if chunk.null_count else chunk.indices
    found: npt.NDArray[Any] = texts[_values(indices, kind_of(indices.type))]
    return found


def distinct_parts(
    content: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], pattern: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], list[bytes]]:
    """Return the distinct parts of *content* that match a regular expression, without a loop over parts.

    Part i stops at ``ends[i]``. The result is the index of each matching part, the number of its content, and
    the contents. Each character of *pattern* stands for a byte.
    """
    import pyarrow.compute as pc  # noqa: PLC0415 - few graphs have other attributes

    offsets = pa.py_buffer(np.concatenate([[0], ends]).astype(np.int64))
    parts = pa.Array.from_buffers(pa.large_binary(), len(ends), [None, offsets, pa.py_buffer(content)])
    rows = np.flatnonzero(_values(pc.match_substring_regex(parts, pattern), "bool"))
    encoded = parts.take(to_arrow(rows)).dictionary_encode()
    return rows, _values(encoded.indices, "int32"), encoded.dictionary.to_pylist()
