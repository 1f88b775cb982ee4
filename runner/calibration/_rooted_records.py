"""The transfers of captured broadcasts, reduces, gathers and scatters, with corrected clocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ...converter import CollectiveType
from ...support import count_text, duration_text
from ._records import ROOTED, Call, Transfer

__all__ = ["rooted_calls", "rooted_transfers"]

_FEWEST = 3  # collectives without a root of the same ranks, whose ends give the clock offsets
_CLEAR = 4  # the least ratio of a transfer to the clock error
# Chakra's files store these as other types; the operator names the collective of gloo or NCCL.
_WRITTEN_AS_OTHERS = {"c10d::gather_": CollectiveType.GATHER, "c10d::scatter_": CollectiveType.SCATTER}


def rooted_calls(calls: pd.DataFrame) -> pd.Series[bool]:
    """Return which of *calls* have a root, so that one rank may leave before another has arrived."""
    rooted: pd.Series[bool] = calls["comm_type"].isin(ROOTED) | calls["operator"].isin(_WRITTEN_AS_OTHERS)
    return rooted


def rooted_transfers(
    calls: pd.DataFrame,
    rooted: pd.Series[bool],
    groups: Mapping[int, Sequence[int]],
    everyone: tuple[int, ...],
) -> tuple[list[Transfer], list[str]]:
    """Return the transfers of the *rooted* ones of *calls*, and sentences on omitted ones.

    A transfer begins when the last rank has arrived and ends when the last one leaves. The clock offset
    between ranks is the median difference of the ends of other collectives, which end everywhere at about the
    same time.
    """
    calls = calls.assign(
        end=calls["measured_start_ns"] + calls["duration_ns"],
        rooted=rooted,
        known=calls["measured_start_ns"].ge(0),
    )
    transfers: list[Transfer] = []
    blind = unclear = 0
    worst = 0.0
    for group, own in calls.groupby("group", sort=True):
        part = own[own["rooted"]]
        if part.empty:
            continue
        members = tuple(groups.get(int(str(group))) or everyone)
        clocks = _clocks(own[~own["rooted"] & own["known"]], members)
        tables = _tables(part[part["known"]], members)
        lost = len(part) - len(tables) * len(members)
        if clocks is None:
            blind += len(part)
            continue
        blind += lost
        ahead, spread = clocks
        for call, table in tables:
            starts, ends = table["measured_start_ns"].to_numpy() - ahead, table["end"].to_numpy() - ahead
            took = int(ends.max() - starts.max())
            if took < _CLEAR * spread or took <= 0:
                unclear += 1
                worst = max(worst, spread)
                continue
            transfers.append(Transfer(members, (call,), took, int(starts.max() - starts.min())))
    return transfers, _left_out(blind, unclear, worst)


def _clocks(mutual: pd.DataFrame, members: tuple[int, ...]) -> tuple[np.ndarray, float] | None:
    """Return each member's clock offset to the first member, and its error, in ns.

    A difference within its own spread counts as 0: one clock may serve all members.
    """
    tables = _tables(mutual, members)
    if len(tables) < _FEWEST:
        return None
    ends = np.stack([table["end"].to_numpy(np.int64) for _, table in tables])
    offsets = ends - ends[:, :1]
    low, ahead, high = np.quantile(offsets, (0.25, 0.5, 0.75), axis=0)
    error = (high - low) / np.sqrt(len(tables))
    known = np.where(np.abs(ahead) > high - low, ahead, 0.0)
    return known.round().astype(np.int64), float(error.max())


def _tables(calls: pd.DataFrame, members: tuple[int, ...]) -> list[tuple[Call, pd.DataFrame]]:
    """Return each collective that all *members* have, with their rows in order of rank."""
    found = []
    for (_, kind, _), table in calls.groupby(["operator", "comm_type", "turn"], sort=True):
        if tuple(sorted(table["rank"])) != tuple(sorted(members)) or table["comm_size_bytes"].nunique() != 1:
            continue
        ordered = table.set_index("rank").loc[list(members)]
        named = _WRITTEN_AS_OTHERS.get(str(ordered["operator"].iloc[0]), CollectiveType(int(str(kind))))
        found.append((Call(named.name.lower(), int(ordered["comm_size_bytes"].iloc[0])), ordered))
    return found


def _left_out(blind: int, unclear: int, spread: float) -> list[str]:
    sentences = []
    if blind:
        sentences.append(
            f"{count_text(blind, 'record')} of broadcasts and other collectives with a root: fewer than "
            f"{_FEWEST} all-reduces or the like of the same ranks tell how far their clocks are apart, or "
            "some rank lacks them"
        )
    if unclear:
        sentences.append(
            f"{count_text(unclear, 'collective')} with a root, shorter than {_CLEAR} times what clocks may "
            f"be off by ({duration_text(spread)})"
        )
    return sentences
