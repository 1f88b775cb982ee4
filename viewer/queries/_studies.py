"""List the studies of a shelf, and find among them."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ...runner import Shelf

__all__ = ["study_table"]


def study_table(shelf: Shelf, find: str = "") -> pd.DataFrame:
    """Return a row a study of *shelf* that has *find* in any of its texts, as `Shelf.table` has them."""
    table = shelf.table()
    wanted = find.casefold()
    held = [any(wanted in str(value).casefold() for value in row) for row in table.itertuples(index=False)]
    kept: pd.DataFrame = table[np.array(held, dtype=bool)].reset_index(drop=True)
    return kept
