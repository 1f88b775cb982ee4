"""Read pickles of plain values only, which neither call nor import anything."""

from __future__ import annotations

import io
import pickle
import struct
from typing import Any, ClassVar

__all__ = ["NotPlain", "plain_values"]

# What PyTorch's own pickler, and Python's, write of containers, texts, numbers, None and truth values. What
# is absent could import or call something (GLOBAL, REDUCE, BUILD), or ask for memory that the file does not
# hold (BYTEARRAY8).
_PLAIN = frozenset(
    {
        "APPEND", "APPENDS", "BINBYTES", "BINFLOAT", "BINGET", "BININT", "BININT1", "BININT2", "BINPUT",
        "BINUNICODE", "DICT", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "FRAME", "LIST", "LONG1",
        "LONG_BINGET", "LONG_BINPUT", "MARK", "MEMOIZE", "NEWFALSE", "NEWTRUE", "NONE", "POP", "POP_MARK",
        "PROTO", "SETITEM", "SETITEMS", "SHORT_BINBYTES", "SHORT_BINUNICODE", "STOP", "TUPLE", "TUPLE1",
        "TUPLE2", "TUPLE3",
    }
)  # fmt: skip
_PLAIN_CODES = frozenset(getattr(pickle, name)[0] for name in _PLAIN)
_DAMAGES = (
    pickle.UnpicklingError, EOFError, IndexError, KeyError, ValueError, TypeError, AttributeError,
    OverflowError, MemoryError, RecursionError, struct.error,
)  # fmt: skip


class NotPlain(Exception):
    """The pickle has more than plain values, or is damaged."""


def plain_values(data: bytes) -> Any:
    """Return the value of *data*, a pickle of containers, strings, numbers, None and booleans.

    Raises `NotPlain` for any other pickle, before anything in it is called or imported.
    """
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except _DAMAGES as error:
        raise NotPlain(str(error) or type(error).__name__) from None


def _refused(unpickler: Any) -> None:
    raise pickle.UnpicklingError("it asks for more than plain values, which no flight recorder writes")


class _Unpickler(pickle._Unpickler):  # type: ignore[name-defined,misc,unused-ignore]
    """Python's own unpickler in Python: its table of what each byte does can be cut, and its memo is a dict.

    (That in C takes as much memory as the highest memo number that a file of ten bytes may name.)
    """

    dispatch: ClassVar[dict[int, Any]] = {
        code: action if code in _PLAIN_CODES else _refused
        for code, action in pickle._Unpickler.dispatch.items()  # type: ignore[attr-defined,unused-ignore]
    }

    def find_class(self, module: str, name: str) -> Any:
        """Refuse every class and function."""
        raise pickle.UnpicklingError(f"it asks for {module[:40]}.{name[:40]}, which no flight recorder needs")

    def persistent_load(self, pid: Any) -> Any:
        """Refuse persistent ids."""
        raise pickle.UnpicklingError("it refers to something outside the file")
