"""Describe the links of a run: how busy each was, and who sent how much to whom."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...runner import Result
from ...runner.analysis import Matrix, endpoint, link_dimensions, link_table, switch_loads, traffic
from ...support import bytes_text, count_text, duration_text, share_text

__all__ = [
    "TRAFFIC",
    "LinkMap",
    "Matrix",
    "Use",
    "link_dimensions",
    "link_map",
    "link_table",
    "load_table",
    "packet_facts",
    "packet_table",
    "switch_loads",
    "traffic_of",
    "traffic_table",
    "use_over_time",
]

TRAFFIC = ("busy_ns", "bytes", "flows")
"""What a matrix of who sends to whom may hold: hop by hop, or in flows the bytes from end to end."""
_MOST_ENDS = 160
_FEW_LABELS = 40
_NEAR_MIDDLE = 0.05
_LOADS = ("rank", "direction", "busy_ns", "bytes", "share")


@dataclass(frozen=True)
class Use:
    """GB/s of links over time: a row a link, a column a stretch of *length_ns* from each of *starts_ns*."""

    rows: list[str]
    starts_ns: npt.NDArray[np.int64]
    length_ns: int
    rates: npt.NDArray[np.float64]


@dataclass(frozen=True)
class LinkMap:
    """Where to draw a network.

    *ends* has ``name, label, is_switch, x, y``, *links* has ``x0, y0, x1, y1, share, text``.
    """

    ends: pd.DataFrame
    links: pd.DataFrame


def use_over_time(result: Result, most: int = 40) -> Use | None:
    """Return the GB/s of the *most* links that carried most, over time; None if it was not recorded."""
    if result.link_use.empty:
        return None
    ranks = len(result.ranks)
    length = result.link_use["end_ns"] - result.link_use["start_ns"]
    use = result.link_use.assign(rate=result.link_use["bytes"] / length.clip(lower=1))
    largest = use.groupby(["src", "dst"])["bytes"].sum().nlargest(most).index
    table = use.pivot_table(index=["src", "dst"], columns="start_ns", values="rate", fill_value=0.0)
    table = table.reindex(index=largest, columns=_stretches(use), fill_value=0.0)
    rows = [f"{endpoint(src, ranks)} to {endpoint(dst, ranks)}" for src, dst in table.index]
    return Use(rows, table.columns.to_numpy(np.int64), int(length.max()), table.to_numpy(dtype=float))


def traffic_of(result: Result, of: str) -> Matrix:
    """Return from whom to whom what *of* :data:`TRAFFIC` went; big networks as blocks of ranks."""
    if of == "flows":
        return traffic(dataclasses.replace(result, links=result.flows), "bytes")
    return traffic(result, of)


def traffic_table(result: Result, of: str) -> pd.DataFrame:
    """Return :func:`traffic_of` as a table: a row a sender, called ``from``, and a column a receiver."""
    matrix = traffic_of(result, of)
    ends = [label.removeprefix("to ") for label in matrix.columns]
    table: pd.DataFrame = pd.DataFrame(matrix.values.astype(np.int64), columns=ends)
    table.insert(0, "from", [label.removeprefix("from ") for label in matrix.rows])
    return table


def load_table(result: Result) -> pd.DataFrame:
    """Return :func:`switch_loads`, without rows where ranks are linked directly."""
    loads = switch_loads(result)
    return pd.DataFrame(columns=list(_LOADS)) if loads is None else loads


def packet_table(provenance: Mapping[str, Any]) -> pd.DataFrame:
    """Return :func:`packet_facts` as a table: ``figure`` and ``value``."""
    table: pd.DataFrame = pd.DataFrame(packet_facts(provenance), columns=["figure", "value"])
    return table


def link_map(result: Result, links: pd.DataFrame) -> LinkMap | None:
    """Return a map of the network of *links*, as :func:`link_table` returns them; None if it is too large.

    Ranks stand on a circle; a switch stands inward of what is linked to it.
    """
    numbers = np.unique(links[["src", "dst"]].to_numpy())
    if len(numbers) > _MOST_ENDS or links.empty:
        return None
    ranks = len(result.ranks)
    places = _places(numbers, links, ranks)
    ends = pd.DataFrame(
        {
            "name": [endpoint(int(number), ranks) for number in numbers],
            "label": [str(number) if number < ranks <= _FEW_LABELS else "" for number in numbers],
            "is_switch": numbers >= ranks,
            "x": [places[int(number)].real for number in numbers],
            "y": [places[int(number)].imag for number in numbers],
        }
    )
    return LinkMap(ends, _drawn_links(links, places))


def _places(numbers: npt.NDArray[np.int64], links: pd.DataFrame, ranks: int) -> dict[int, complex]:
    """Return where each end stands, x and y as a complex number."""
    count = max(1, ranks)
    places = {int(n): complex(np.exp(0.5j * np.pi - 2j * np.pi * n / count)) for n in numbers if n < ranks}
    several = len(numbers) > ranks + 1
    for switch in (int(number) for number in numbers if number >= ranks):
        near = links.loc[links["src"] == switch, "dst"].unique()
        known = [places[int(end)] for end in near if int(end) in places]
        middle = sum(known) / len(known) if known else 0j
        # A switch stands between the middle and what is linked to it, or near the middle if that is all.
        turn = np.exp(2j * np.pi * (switch - ranks) / max(1, len(numbers) - ranks))
        places[switch] = 0.55 * middle if abs(middle) > _NEAR_MIDDLE else complex(0.2 * several * turn)
    return places


def _drawn_links(links: pd.DataFrame, places: Mapping[int, complex]) -> pd.DataFrame:
    """Return a line for each pair of ends that are linked, by the busier direction, the busiest last."""
    low, high = links[["src", "dst"]].min(axis=1), links[["src", "dst"]].max(axis=1)
    busier = links.assign(low=low, high=high).sort_values("share").groupby(["low", "high"]).tail(1)
    starts, ends = busier["src"].map(places), busier["dst"].map(places)
    texts = [
        f"{row['source']} to {row['target']}: busy {share_text(row['share'])} of the step, "
        f"{bytes_text(int(row['bytes']))}"
        for row in busier.to_dict("records")
    ]
    drawn: pd.DataFrame = pd.DataFrame(
        {
            "x0": [place.real for place in starts],
            "y0": [place.imag for place in starts],
            "x1": [place.real for place in ends],
            "y1": [place.imag for place in ends],
            "share": busier["share"].to_numpy(),
            "text": texts,
        }
    )
    return drawn


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
        facts.append(
            ("Flow completion", f"{count_text(int(flows.get('count', 0)), 'flow')}: {', '.join(parts)}")
        )
    return facts


def _stretches(use: pd.DataFrame) -> list[int]:
    """Return when each stretch of time begins, those included in which no link sent anything."""
    length = int((use["end_ns"] - use["start_ns"]).max())
    known = sorted(use["start_ns"].unique().tolist())
    every = list(range(known[0] % length, known[-1] + 1, length)) if length > 0 else known
    return every if set(known) <= set(every) else known
