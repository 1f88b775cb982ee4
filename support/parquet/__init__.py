"""Parquet files of flat tables: numbers, truth values and texts, by row group and column.

Our own, since what reads and writes them elsewhere is larger than all else that Chakrascope needs. Files that
others wrote are read as far as they hold such tables; what is damaged, or something else, is a `ValueError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._faces import exports_of

if TYPE_CHECKING:
    from ._columns import Part as Part
    from ._file import ParquetFile as ParquetFile
    from ._file import ParquetWriter as ParquetWriter
    from ._frame import frame_bytes as frame_bytes
    from ._frame import read_frame as read_frame

__all__ = ["ParquetFile", "ParquetWriter", "Part", "frame_bytes", "read_frame"]

__getattr__ = exports_of(__name__, __file__)
