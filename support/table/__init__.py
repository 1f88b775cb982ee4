"""Tables of columns, and Parquet files of them, read by row group and column; PyArrow is their storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._faces import exports_of

if TYPE_CHECKING:
    from ._frame import frame_bytes as frame_bytes
    from ._parquet import ParquetFile as ParquetFile
    from ._parquet import ParquetWriter as ParquetWriter

__all__ = ["ParquetFile", "ParquetWriter", "frame_bytes"]

__getattr__ = exports_of(__name__, __file__)
