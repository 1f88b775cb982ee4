"""Tables held as columns until somebody asks for them as pandas': importing that takes its time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from ._recorded_nodes import Columns

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["coded", "columns_of", "frame_of", "framed", "later", "rows_of", "sums_by", "typed"]

Owner = TypeVar("Owner")


class _Framed:
    """An attribute that holds columns or a table, and is read as a table."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object | None, owner: type) -> Any:
        if instance is None:
            return self
        held = vars(instance).get(self._name)
        if held is None:
            raise AttributeError(self._name)
        if isinstance(held, dict):
            held = vars(instance)[self._name] = frame_of(held)
        return held

    def __set__(self, instance: object, value: pd.DataFrame | Columns) -> None:
        vars(instance)[self._name] = value


def framed(*names: str) -> Callable[[type[Owner]], type[Owner]]:
    """Let the attributes *names* of a dataclass be columns (see `later`), too; they are read as tables."""

    def decorate(owner: type[Owner]) -> type[Owner]:
        for name in names:
            setattr(owner, name, _Framed(name))
        return owner

    return decorate


def later(columns: Columns) -> pd.DataFrame:
    """Return *columns*, for an attribute that is `framed`."""
    return cast("pd.DataFrame", columns)


def typed(columns: Columns, kinds: Mapping[str, str]) -> Columns:
    """Return the columns that *kinds* names, in its order, each of the type that it says."""
    return {name: np.asarray(columns[name], kind) for name, kind in kinds.items()}


def columns_of(table: pd.DataFrame | Columns) -> Columns:
    """Return the columns of a table."""
    return table if isinstance(table, dict) else {str(name): table[name].to_numpy() for name in table.columns}


def frame_of(columns: Columns) -> pd.DataFrame:
    """Return *columns* as a table of pandas."""
    import pandas as pd  # noqa: PLC0415 - what this module is for

    # Given as they are, texts would be looked through and stored in another way first.
    series = {
        name: pd.Series(column if column.flags.writeable else column.copy(), dtype=column.dtype)
        for name, column in columns.items()
    }
    table: pd.DataFrame = pd.DataFrame(series, copy=False)
    return table


def rows_of(columns: Columns) -> list[dict[str, Any]]:
    """Return *columns* as rows of plain values."""
    values = [column.tolist() for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def coded(*keys: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], list[Any]]:
    """Return the keys there are, in order of their first row, and for each row which of them it has.

    Of several columns a key is the tuple of their values.
    """
    columns = [column.tolist() for column in keys]
    number_of: dict[Hashable, int] = {}
    told = columns[0] if len(columns) == 1 else zip(*columns, strict=True)
    numbers = [number_of.setdefault(key, len(number_of)) for key in told]
    return np.array(numbers, np.int64), list(number_of)


def sums_by(values: npt.NDArray[np.int64], *keys: npt.NDArray[Any]) -> dict[Any, int]:
    """Return the sum of *values* by key (see `coded`), in ascending order of keys."""
    numbers, names = coded(*keys)
    sums = np.zeros(len(names), np.int64)
    np.add.at(sums, numbers, values)
    return dict(sorted(zip(names, sums.tolist(), strict=True)))
