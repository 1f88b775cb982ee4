"""Describe the sends and receives on a critical path: bytes, bandwidth and waiting time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...converter import NodeType
from .._result import Result
from ._critical_path import CriticalPath

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["messages_on_path"]

_KEYS = ["rank", "node_id"]
_COLUMNS = {
    "name": "object", "size_bytes": "int64", "count": "int64", "transfer_ns": "float64",
    "waited_ns": "float64", "bytes_per_ns": "float64",
}  # fmt: skip


def messages_on_path(result: Result, nodes: pd.DataFrame, path: CriticalPath) -> pd.DataFrame:
    """Return a row per kind and size of message on *path*, with the path's ``name``.

    Columns: ``name, size_bytes, count, transfer_ns, waited_ns, bytes_per_ns``. *nodes* has ``type`` and
    ``comm_size_bytes`` of ``rank, node_id``. ``waited_ns`` is the calls' time until the peer arrived, if
    the backend records it, ``transfer_ns`` the rest of their time; ``bytes_per_ns`` is that of the fastest.
    """
    import pandas as pd  # noqa: PLC0415 - of few runs messages are on the path

    names = path.unreasoned[[*_KEYS, "collective"]].drop_duplicates(_KEYS).astype({"rank": "int64"})
    facts = nodes.loc[
        nodes["type"].isin([NodeType.COMM_SEND, NodeType.COMM_RECV]), [*_KEYS, "comm_size_bytes"]
    ]
    if facts.empty:
        nothing: pd.DataFrame = pd.DataFrame(columns=[*_COLUMNS]).astype(_COLUMNS)
        return nothing
    calls = names.merge(facts, on=_KEYS)
    own = _read(result, calls[_KEYS], ["start_ns", "end_ns", "origin_rank", "origin_node"])
    calls = calls.merge(own, on=_KEYS)
    origins = calls[["origin_rank", "origin_node"]].drop_duplicates().set_axis(_KEYS, axis=1)
    peers = _read(result, origins, ["start_ns"]).rename(columns={"start_ns": "peer_ns"})
    calls = calls.merge(
        peers, left_on=["origin_rank", "origin_node"], right_on=_KEYS, how="left", suffixes=("", "_peer")
    )
    begun = calls[["start_ns", "peer_ns"]].max(axis=1).clip(upper=calls["end_ns"])
    size = calls["comm_size_bytes"].clip(lower=0)
    calls = calls.assign(
        size_bytes=size, waited_ns=begun - calls["start_ns"], transfer_ns=calls["end_ns"] - begun
    )
    calls["bytes_per_ns"] = size / calls["transfer_ns"].clip(lower=1)
    table: pd.DataFrame = calls.groupby("collective", as_index=False).agg(
        size_bytes=("size_bytes", "max"),
        count=("size_bytes", "size"),
        transfer_ns=("transfer_ns", "sum"),
        waited_ns=("waited_ns", "sum"),
        bytes_per_ns=("bytes_per_ns", "max"),
    )
    named: pd.DataFrame = table.rename(columns={"collective": "name"})
    return named


def _read(result: Result, places: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Return some columns of the executed nodes at *places* (``rank, node_id``)."""
    import pandas as pd  # noqa: PLC0415 - of few runs messages are on the path

    wanted = {int(str(rank)): part.to_numpy(np.int64) for rank, part in places.groupby("rank")["node_id"]}
    parts = []
    for rank, columns in result.table("nodes").by_rank(names, wanted.__contains__):
        rows = np.flatnonzero(np.isin(columns["node_id"], wanted[rank]))
        parts.append(pd.DataFrame({"rank": rank, **{name: column[rows] for name, column in columns.items()}}))
    messages: pd.DataFrame = (
        pd.concat(parts) if parts else pd.DataFrame(columns=[*_KEYS, *names], dtype="int64")
    )
    return messages
