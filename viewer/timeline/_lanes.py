"""Name the lanes of the timeline: what runs on each stream of a rank."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ...converter import NodeType

__all__ = ["is_communication", "lane_table"]

# Lanes of a captured graph (docs/converter.md): host threads from 0, stream s of device d at
# 1000 x (d + 1) + s.
_DEVICE = 1000


def is_communication(types: pd.Series) -> pd.Series:
    """Return which node types communicate."""
    found: pd.Series = types >= int(NodeType.COMM_SEND)
    return found


def lane_table(keys: pd.DataFrame) -> pd.DataFrame:
    """Return ``rank``, ``label`` and ``measured`` of each lane; *keys* has a row a lane, in their order.

    Its columns are ``rank``, ``measured``, ``comm`` and ``stream``.
    """
    table = keys.reset_index(drop=True)
    on_device = (table["stream"] >= _DEVICE) & ~table["comm"]
    has_device = on_device.groupby(table["rank"]).transform("any")
    plain = np.where(has_device, "host thread", "compute")
    name = np.where(table["comm"], "communication", np.where(on_device, "stream", plain))
    number = np.where(on_device, table["stream"] % _DEVICE, table["stream"])
    same = table.assign(name=name).groupby(["rank", "measured", "name"])["stream"]
    number = np.where(table["comm"], same.rank().astype(int), number)
    numbered = (same.transform("size") > 1) | on_device
    labels = [
        f"{text} {which}" if shown else text
        for text, which, shown in zip(name, number, numbered, strict=True)
    ]
    lanes: pd.DataFrame = pd.DataFrame(
        {"rank": table["rank"], "label": labels, "measured": table["measured"]}
    )
    return lanes
