"""Tables of importable items, and names of their workloads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from .._names import safe_name
from ._find import ImportItem

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["item_table", "proposed_name"]

_COLUMNS = ["id", "place", "kind", "ranks", "files", "size_bytes", "problem"]


def item_table(items: Sequence[ImportItem]) -> pd.DataFrame:
    """Return a row per item; ``ranks`` is None until it has been read."""
    import pandas as pd  # noqa: PLC0415 - the process of a job starts without it

    rows = [
        vars(item)
        | {
            "ranks": item.ranks or None,
            "files": sum(map(len, (item.files, item.host_files, item.capture_files))),
        }
        for item in items
    ]
    table: pd.DataFrame = pd.DataFrame(rows, columns=_COLUMNS).astype({"ranks": object})
    known: pd.DataFrame = table.assign(ranks=table["ranks"].where(table["ranks"].notna(), None))
    return known


def proposed_name(item: ImportItem) -> str:
    """Return a name for the item's workload, made of letters and digits of its place."""
    path = PurePosixPath(item.place)
    text = path.parent.name if item.kind in ("traces", "logs") and path.parent.name else path.name
    text = re.sub(r"(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?$", "", text)
    if item.kind == "archive":
        text = re.sub(r"\.(?:zip|tgz|tar(?:\.\w+)?)$", "", text)
    return safe_name(text, "imported")
