"""Describe the sends and receives on a critical path: bytes, bandwidth and waiting time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...converter import NodeType
from ._critical_path import CriticalPath

if TYPE_CHECKING:
    import pandas as pd

_KEYS = ["rank", "node_id"]
_COLUMNS = {
    "name": "object", "size_bytes": "int64", "count": "int64", "transfer_ns": "float64",
    "waited_ns": "float64", "bytes_per_ns": "float64",
}  # fmt: skip


def messages_on_path(nodes: pd.DataFrame, path: CriticalPath) -> pd.DataFrame:
    """Return a row per kind and size of message on *path*, with the path's ``name``.

    Columns: ``name, size_bytes, count, transfer_ns, waited_ns, bytes_per_ns``. *nodes* has ``type`` and
    ``comm_size_bytes`` of ``rank, node_id``. ``waited_ns`` is the calls' time until the peer arrived, if
    it is recorded, ``transfer_ns`` the rest of their time; ``bytes_per_ns`` is that of the fastest.
    """
    import pandas as pd  # noqa: PLC0415 - of few runs messages are on the path

    facts = nodes.loc[
        nodes["type"].isin([NodeType.COMM_SEND, NodeType.COMM_RECV]), [*_KEYS, "comm_size_bytes"]
    ]
    if facts.empty:
        nothing: pd.DataFrame = pd.DataFrame(columns=[*_COLUMNS]).astype(_COLUMNS)
        return nothing
    steps = path.steps
    calls = path.unreasoned[[*_KEYS, "collective"]].assign(
        waited_ns=steps["start_ns"] - steps["own_start_ns"],
        transfer_ns=steps["end_ns"] - steps["start_ns"],
    )
    calls = calls.drop_duplicates(_KEYS).astype({"rank": "int64"}).merge(facts, on=_KEYS)
    size = calls["comm_size_bytes"].clip(lower=0)
    calls = calls.assign(size_bytes=size, bytes_per_ns=size / calls["transfer_ns"].clip(lower=1))
    table: pd.DataFrame = calls.groupby("collective", as_index=False).agg(
        size_bytes=("size_bytes", "max"),
        count=("size_bytes", "size"),
        transfer_ns=("transfer_ns", "sum"),
        waited_ns=("waited_ns", "sum"),
        bytes_per_ns=("bytes_per_ns", "max"),
    )
    named: pd.DataFrame = table.rename(columns={"collective": "name"})
    return named
