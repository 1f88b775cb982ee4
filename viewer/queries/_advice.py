"""Say in a table what would help."""

from __future__ import annotations

from dataclasses import asdict, fields

import pandas as pd

from ...runner import Advice, CriticalPath, advice

__all__ = ["advice_table"]

_COLUMNS = [field.name for field in fields(Advice)]


def advice_table(path: CriticalPath, collectives: pd.DataFrame) -> pd.DataFrame:
    """Return a row a cause, the largest first: ``what``, ``how``, ``gain_ns`` at most, and its ``share``."""
    rows = [asdict(item) for item in advice(path, collectives)]
    table: pd.DataFrame = pd.DataFrame(rows, columns=_COLUMNS)
    return table
