"""Tables of columns, stored as Parquet with PyArrow and read by row group and column."""

from typing import TYPE_CHECKING

from .._plugins import exports_of

if TYPE_CHECKING:
    from ._arrow import distinct_parts as distinct_parts
    from ._parquet import ParquetFile as ParquetFile
    from ._parquet import ParquetWriter as ParquetWriter
    from ._table import CodedColumns as CodedColumns
    from ._table import Columns as Columns
    from ._table import Flags as Flags
    from ._table import Floats as Floats
    from ._table import Ints as Ints
    from ._table import Memory as Memory
    from ._table import Table as Table
    from ._table import TableField as TableField
    from ._table import frame_bytes as frame_bytes
    from ._table import frame_of as frame_of
    from ._text import TextColumn as TextColumn
    from ._text import byte_table as byte_table
    from ._text import csv_pieces as csv_pieces
    from ._text import csv_text as csv_text
    from ._text import first_rows as first_rows
    from ._text import frame_pieces as frame_pieces
    from ._text import positions as positions

__getattr__ = exports_of(__name__, __file__)
