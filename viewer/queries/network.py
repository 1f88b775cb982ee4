"""Describe the links of a run: how busy each was, and who sent how much to whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...runner import Result
from ..theme import bytes_text, duration_text

__all__ = [
    "Matrix",
    "link_dimensions",
    "link_table",
    "packet_facts",
    "switch_loads",
    "traffic",
    "use_over_time",
]

_MATRIX_CELLS = 64


@dataclass(frozen=True)
class Matrix:
    """Values with a label a row and a column."""

    rows: list[str]
    columns: list[str]
    values: npt.NDArray[np.float64]


def endpoint(number: int, num_ranks: int) -> str:
    """Return what an end of a link is called: numbers beyond the ranks are switches."""
    return f"rank {number}" if number < num_ranks else f"switch {number - num_ranks}"


def link_table(result: Result) -> pd.DataFrame:
    """Return a row a link, the busiest first.

    ``share`` is the part of the step in which it carried data, ``bytes_per_ns`` its mean speed while it did,
    ``queue_ns`` the time messages waited for it, summed over messages.
    """
    ranks, links = len(result.ranks), result.links
    table: pd.DataFrame = links.assign(
        source=[endpoint(number, ranks) for number in links["src"]],
        target=[endpoint(number, ranks) for number in links["dst"]],
        dimension=_dimension_of(result),
        share=links["busy_ns"] / max(1, result.makespan_ns),
        bytes_per_ns=links["bytes"] / links["busy_ns"].clip(lower=1),
    )
    ordered: pd.DataFrame = table.sort_values(
        ["busy_ns", "src", "dst"], ascending=[False, True, True], ignore_index=True
    )
    return ordered


def link_dimensions(links: pd.DataFrame) -> pd.DataFrame:
    """Return a row a network dimension of what :func:`link_table` returns: traffic and the busiest link."""
    table: pd.DataFrame = links.groupby("dimension", as_index=False).agg(
        links=("bytes", "size"),
        bytes=("bytes", "sum"),
        busiest=("share", "max"),
        mean=("share", "mean"),
        queue_ns=("queue_ns", "sum"),
    )
    return table


def _dimension_of(result: Result) -> npt.NDArray[np.int64]:
    """Return the dimension (from 1) each link lies in: the one in which its ends' coordinates differ.

    Links of a switch count to the first dimension; 0 stands for a network whose shape is not known.
    """
    links = result.links
    sizes = [int(size) for size in result.provenance.get("network", {}).get("npus_count", [])]
    if not sizes:
        return np.zeros(len(links), np.int64)
    source, target = links["src"].to_numpy(np.int64), links["dst"].to_numpy(np.int64)
    found = np.ones(len(links), np.int64)
    for dimension, size in enumerate(sizes, start=1):
        found = np.where(source % size != target % size, dimension, found)
        source, target = source // size, target // size
    return found


def switch_loads(result: Result) -> pd.DataFrame | None:
    """Return what each rank sends to and receives from its switches, or None if ranks are linked directly.

    Columns ``rank``, ``direction`` (sends, receives), ``busy_ns``, ``bytes`` and ``share`` of the step.
    """
    links, ranks = result.links, len(result.ranks)
    sends, receives = links["src"] < ranks, links["dst"] < ranks
    if (sends & receives).any() or not len(links):
        return None
    table = links.assign(
        rank=links["src"].where(sends, links["dst"]), direction=np.where(sends, "sends", "receives")
    )[sends | receives]
    sums = table.groupby(["rank", "direction"], as_index=False)[["busy_ns", "bytes"]].sum()
    loads: pd.DataFrame = sums.assign(share=sums["busy_ns"] / max(1, result.makespan_ns))
    return loads


def traffic(result: Result, column: str) -> Matrix:
    """Return the sums of *column* of the links from each end to each; big networks as blocks of ranks."""
    links, ranks = result.links, len(result.ranks)
    ends = max(ranks, int(links[["src", "dst"]].to_numpy().max()) + 1 if len(links) else 0)
    block = -(-ends // _MATRIX_CELLS)
    size = -(-ends // block) if ends else 0
    values = np.zeros((size, size))
    np.add.at(values, (links["src"] // block, links["dst"] // block), links[column])
    labels = [_block_label(first, block, ends, ranks) for first in range(0, ends, block)]
    return Matrix([f"from {label}" for label in labels], [f"to {label}" for label in labels], values)


def use_over_time(result: Result, most: int = 40) -> Matrix | None:
    """Return the GB/s of the *most* links that carried most, over time; None if it was not recorded."""
    if result.link_use.empty:
        return None
    ranks = len(result.ranks)
    use = result.link_use.assign(
        rate=result.link_use["bytes"]
        / (result.link_use["end_ns"] - result.link_use["start_ns"]).clip(lower=1)
    )
    largest = use.groupby(["src", "dst"])["bytes"].sum().nlargest(most).index
    table = use.pivot_table(index=["src", "dst"], columns="start_ns", values="rate", fill_value=0.0)
    table = table.reindex(index=largest, columns=_stretches(use), fill_value=0.0)
    rows = [f"{endpoint(src, ranks)} to {endpoint(dst, ranks)}" for src, dst in table.index]
    return Matrix(rows, [duration_text(start) for start in table.columns], table.to_numpy(dtype=float))


def packet_facts(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a packet-level backend says of queues, pauses and flows, in words; nothing from others."""
    packets = provenance.get("packets")
    if not isinstance(packets, Mapping):
        return []
    counts = (
        ("data_packets", "Data packets"),
        ("pause_frames", "Pause frames"),
        ("drops", "Dropped packets"),
    )
    facts = [(label, f"{int(packets[key]):,}") for key, label in counts if key in packets]
    if "paused_ns" in packets:
        facts.append(("Time paused, all ports", duration_text(int(packets["paused_ns"]))))
    if "largest_queue_bytes" in packets:
        facts.append(("Longest queue", bytes_text(int(packets["largest_queue_bytes"]))))
    flows = packets.get("flow_completion_ns")
    if isinstance(flows, Mapping):
        named = (("median", "median"), ("p99", "99th percentile"), ("max", "longest"))
        parts = [f"{label} {duration_text(float(flows[key]))}" for key, label in named if key in flows]
        facts.append(("Flow completion", f"{int(flows.get('count', 0)):,} flows: {', '.join(parts)}"))
    return facts


def _stretches(use: pd.DataFrame) -> list[int]:
    """Return when each stretch of time begins, those included in which no link sent anything."""
    length = int((use["end_ns"] - use["start_ns"]).max())
    known = sorted(use["start_ns"].unique().tolist())
    every = list(range(known[0] % length, known[-1] + 1, length)) if length > 0 else known
    return every if set(known) <= set(every) else known


def _block_label(first: int, block: int, ends: int, ranks: int) -> str:
    last = min(first + block, ends) - 1
    return endpoint(first, ranks) if last == first else f"{endpoint(first, ranks)}-{last}"
