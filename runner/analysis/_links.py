"""Use of links over time, traffic between ranks, and messages on the critical path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...converter import NodeType
from .._result import Result
from ..config import Failure, NetworkConfig
from ._critical_path import CriticalPath

if TYPE_CHECKING:
    import pandas as pd


TRAFFIC = ("busy_ns", "bytes", "flows")
"""The contents of a traffic matrix: busy time or bytes per hop, or the end-to-end bytes of flows."""
_LOADS = ("rank", "direction", "busy_ns", "bytes", "share")
_MATRIX_CELLS = 64


@dataclass(frozen=True)
class Matrix:
    """A matrix of values with labels for its rows and columns."""

    rows: list[str]
    columns: list[str]
    values: npt.NDArray[np.float64]


def end_names(result: Result) -> Callable[[int], str]:
    """Return a function that names the end of a link: ``rank 3`` or a switch."""
    ranks, names = len(result.ranks), _devices(result)

    def name(number: int) -> str:
        if number < ranks:
            return f"rank {number}"
        return names[number] if number < len(names) else f"switch {number - ranks}"

    return name


def failures_of(result: Result) -> list[tuple[Failure, str]]:
    """Return the failures in the network of *result*, each with a sentence about it."""
    network = result.provenance.get("network", {})
    if not network.get("failures"):
        return []
    read = NetworkConfig.from_mapping(network, "The network of the result")
    return [(failure, read.failure_text(failure)) for failure in read.failures]


def _devices(result: Result) -> list[str]:
    return [*result.provenance.get("network", {}).get("devices", ())]


def link_table(result: Result) -> pd.DataFrame:
    """Return a row per link, the busiest first.

    ``share`` is the fraction of the step in which the link carries data, and ``bytes_per_ns`` its mean rate
    during that time. ``queue_ns`` is the total time that messages wait for the link.
    """
    name, links = end_names(result), result.links
    table: pd.DataFrame = links.assign(
        source=[name(number) for number in links["src"]],
        target=[name(number) for number in links["dst"]],
        dimension=_dimension_of(result),
        share=links["busy_ns"] / max(1, result.makespan_ns),
        bytes_per_ns=links["bytes"] / links["busy_ns"].clip(lower=1),
    )
    ordered: pd.DataFrame = table.sort_values(
        ["busy_ns", "src", "dst"], ascending=[False, True, True], ignore_index=True
    )
    return ordered


def link_dimensions(links: pd.DataFrame) -> pd.DataFrame:
    """Return the traffic, busiest share and queueing of each network dimension, from a :func:`link_table`."""
    return links.groupby("dimension", as_index=False).agg(
        links=("bytes", "size"),
        bytes=("bytes", "sum"),
        busiest=("share", "max"),
        mean=("share", "mean"),
        queue_ns=("queue_ns", "sum"),
    )


def _dimension_of(result: Result) -> npt.NDArray[np.int64]:
    """Return the dimension (from 1) in which the ranks at the ends of each link differ.

    A link of a rank to itself belongs to the first. The dimension is 0 for links that several dimensions
    share, such as a link from a rank to its NIC, and for networks of unknown shape.
    """
    links = result.links
    sizes = np.array(result.provenance.get("network", {}).get("npus_count", []), np.int64)
    if len(sizes) < 2:
        return np.full(len(links), len(sizes), np.int64)
    ends = links[["src", "dst"]].to_numpy(np.int64).T
    low, high = _joined_ranks(ends, len(result.ranks), sizes)
    source, target = ends
    differs = np.maximum(high[source], high[target]) > np.minimum(low[source], low[target])
    is_switch = (low != high).any(axis=1)
    single = (differs.sum(axis=1) == 1) & ~(is_switch[source] & is_switch[target])
    dimensions: npt.NDArray[np.int64] = np.where(single, differs.argmax(axis=1) + 1, source == target)
    return dimensions


def _joined_ranks(
    ends: npt.NDArray[np.int64], ranks: int, sizes: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the least and greatest coordinates of the ranks joined by each device.

    A rank, or a device linked to a single rank, joins only that rank.
    """
    devices = max(ranks, int(ends.max(initial=-1)) + 1)
    first, last = np.full(devices, devices), np.full(devices, -1)
    first[:ranks] = last[:ranks] = np.arange(ranks)
    for device, rank in (ends, ends[::-1]):
        own = (device >= ranks) & (rank < ranks)
        np.minimum.at(first, device[own], rank[own])
        np.maximum.at(last, device[own], rank[own])
    is_known = first == last
    places = first[:, None] // np.cumprod([1, *sizes[:-1]]) % sizes
    low = np.where(is_known[:, None], places, devices)
    high = np.where(is_known[:, None], places, -1)
    for device, other in (ends, ends[::-1]):
        own = ~is_known[device] & is_known[other]
        np.minimum.at(low, device[own], places[other[own]])
        np.maximum.at(high, device[own], places[other[own]])
    return low, high


def switch_loads(result: Result) -> pd.DataFrame | None:
    """Return each rank's traffic to and from its switches, or None if ranks are linked directly.

    The columns are ``rank``, ``direction`` (sends, receives), ``busy_ns``, ``bytes`` and ``share``
    of the step.
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


def load_table(result: Result) -> pd.DataFrame:
    """Return each rank's traffic to and from its switches; empty if ranks are linked directly."""
    import pandas as pd  # noqa: PLC0415 - most callers do not need pandas

    loads = switch_loads(result)
    return pd.DataFrame(columns=list(_LOADS)) if loads is None else loads


def traffic(result: Result, of: str) -> Matrix:
    """Return the traffic matrix *of* one of :data:`TRAFFIC`; a large network is shown in blocks of ranks."""
    links, ranks = result.flows if of == "flows" else result.links, len(result.ranks)
    ends = max(ranks, int(links[["src", "dst"]].to_numpy().max()) + 1 if len(links) else 0)
    block = -(-ends // _MATRIX_CELLS)
    size = -(-ends // block) if ends else 0
    values = np.zeros((size, size))
    np.add.at(values, (links["src"] // block, links["dst"] // block), links["bytes" if of == "flows" else of])
    name = end_names(result)
    labels = [_block_label(first, block, ends, name) for first in range(0, ends, block)]
    return Matrix([f"from {label}" for label in labels], [f"to {label}" for label in labels], values)


def traffic_table(result: Result, of: str) -> pd.DataFrame:
    """Return the :func:`traffic` matrix as a table: a row per sender (``from``), a column per receiver."""
    import pandas as pd  # noqa: PLC0415 - most callers do not need pandas

    matrix = traffic(result, of)
    ends = [label.removeprefix("to ") for label in matrix.columns]
    table: pd.DataFrame = pd.DataFrame(matrix.values.astype(np.int64), columns=ends)
    table.insert(0, "from", [label.removeprefix("from ") for label in matrix.rows])
    return table


def _block_label(first: int, block: int, ends: int, name: Callable[[int], str]) -> str:
    last = min(first + block, ends) - 1
    return name(first) if last == first else f"{name(first)}-{last}"


@dataclass(frozen=True)
class Use:
    """The rates of links in GB/s: a row per link, and a column per interval of *length_ns*."""

    rows: list[str]
    starts_ns: npt.NDArray[np.int64]
    length_ns: int
    rates: npt.NDArray[np.float64]


def use_over_time(result: Result, most: int = 40) -> Use | None:
    """Return the rates over time of the *most* busiest links; None if link use was not recorded."""
    if result.link_use.empty:
        return None
    name = end_names(result)
    length = result.link_use["end_ns"] - result.link_use["start_ns"]
    use = result.link_use.assign(rate=result.link_use["bytes"] / length.clip(lower=1))
    largest = use.groupby(["src", "dst"])["bytes"].sum().nlargest(most).index
    table = use.pivot_table(index=["src", "dst"], columns="start_ns", values="rate", fill_value=0.0)
    table = table.reindex(index=largest, columns=_stretches(use), fill_value=0.0)
    rows = [f"{name(src)} to {name(dst)}" for src, dst in table.index]
    return Use(rows, table.columns.to_numpy(np.int64), int(length.max()), table.to_numpy(dtype=float))


def _stretches(use: pd.DataFrame) -> list[int]:
    """Return the start (ns) of each interval of link use, including those without traffic."""
    length = int((use["end_ns"] - use["start_ns"]).max())
    starts = sorted(use["start_ns"].unique().tolist())
    every = list(range(starts[0] % length, starts[-1] + 1, length)) if length > 0 else starts
    return every if set(starts) <= set(every) else starts


_KEYS = ["rank", "node_id"]
_COLUMNS = {
    "name": "object", "size_bytes": "int64", "count": "int64", "transfer_ns": "float64",
    "waited_ns": "float64", "bytes_per_ns": "float64",
}  # fmt: skip


def messages_on_path(nodes: pd.DataFrame, path: CriticalPath) -> pd.DataFrame:
    """Return a row per kind and size of message on *path*, with its ``name`` there.

    The columns are ``name, size_bytes, count, transfer_ns, waited_ns, bytes_per_ns``. *nodes* has ``type``
    and ``comm_size_bytes`` of ``rank, node_id``. ``waited_ns`` is the time that the calls waited for their
    peers, if arrivals are recorded. ``transfer_ns`` is the remaining time. ``bytes_per_ns`` is the rate of
    the fastest call.
    """
    import pandas as pd  # noqa: PLC0415 - few runs have messages on the path

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
