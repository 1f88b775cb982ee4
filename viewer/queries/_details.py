"""Describe nodes and memory in words, and reduce critical paths to few bars."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from ...converter import CollectiveType, NodeType
from ...converter.building import group_name, stand_in_of
from ...converter.chakra import HOST_CAUSES
from ...runner import CriticalPath
from ...runner.analysis import KIND_LABELS, paths_table
from ...support import bytes_text, change_text, duration_text, instant_text
from .._state import OpenRun
from .._theme import EDGE_KINDS, PATH_COLOUR
from ..timeline import TimelineIndex

_NAMED_STAND_INS = 8
_PATH_BARS = 800


def rank_text(rank: int, stand_in: int | None) -> str:
    """Return *rank* as text, with the rank *stand_in* whose program it runs, if any."""
    return str(rank) + ("" if stand_in is None else f", for which rank {stand_in} stands in")


def stand_ins_note(metadata: Mapping[str, Any], num_ranks: int) -> str:
    """Return a note about ranks that other ranks represent; "" if every rank has a trace."""
    pairs = [(rank, other) for rank in range(num_ranks) if (other := stand_in_of(metadata, rank)) is not None]
    if not pairs:
        return ""
    named = ", ".join(f"rank {other} for rank {rank}" for rank, other in pairs[:_NAMED_STAND_INS])
    more = f" and {len(pairs) - _NAMED_STAND_INS:,} more" if len(pairs) > _NAMED_STAND_INS else ""
    return f"* These ranks have no usable traces; another rank stands in: {named}{more}."


def node_details(
    node: Mapping[str, Any],
    slack_ns: int | None = None,
    among: tuple[int, int] = (1, 1),
    metadata: Mapping[str, Any] = MappingProxyType({}),
) -> list[tuple[str, str]]:
    """Return the properties of an executed *node* as (label, text) pairs.

    *among* is the number of a collective's ranks that were measured, and the number that were simulated.
    *metadata* is the workload's metadata.
    """
    comm_type, rank = int(node.get("comm_type", -1)), int(node["rank"])
    # Nodes without known costs have one operation and one byte, as simulators need some.
    has_costs = (_number(node, "num_ops"), _number(node, "tensor_size_bytes")) != (1, 1)
    pairs = [
        ("Name", _text(node, "name")),
        ("Rank", rank_text(rank, stand_in_of(metadata, rank))),
        ("Node", f"{node['node_id']} ({NodeType(int(node.get('type', 0))).name})"),
        ("Kind", KIND_LABELS.get(_text(node, "kind"), _text(node, "kind"))),
        ("Cause", _host_cause(node)),
        *_times(node, among),
        ("Slack", "" if slack_ns is None else slack_text(slack_ns)),
        ("Operator", _text(node, "operator")),
        ("Module", _text(node, "module")),
        ("Phase", _text(node, "phase")),
        ("Collective", CollectiveType(comm_type).name.lower() if comm_type >= 0 else ""),
        ("Message size", _size(node, "comm_size_bytes")),
        ("Group", group_name(metadata, int(node.get("group", 0))) if comm_type >= 0 else ""),
        ("From, to", _ends(node)),
        ("Operations", f"{_number(node, 'num_ops'):,}" if has_costs and _number(node, "num_ops") > 0 else ""),
        ("Tensors", _size(node, "tensor_size_bytes") if has_costs else ""),
        ("Stream", _known(node, "stream")),
        ("Step", _known(node, "step")),
        ("Waited for", _cause(node)),
    ]
    return [(label, text) for label, text in pairs if text]


def slack_text(slack_ns: int) -> str:
    """Return the slack of a node in ns as text."""
    return "none: any delay here delays the step" if slack_ns == 0 else f"{duration_text(slack_ns)} to spare"


def flows(
    edges: pd.DataFrame, index: TimelineIndex, node: Mapping[str, Any], count: int = 24
) -> list[dict[str, Any]]:
    """Return the positions of up to *count* dependencies and *count* dependents of *node*.

    ``before`` is true for dependencies. The dependencies of a collective include the rank that arrived last.
    """
    found = []
    rank, number = int(node["rank"]), int(node["node_id"])
    for here, there, before in (("dst", "src", True), ("src", "dst", False)):
        near = edges[edges[here] == number].head(count)
        for other, kind in zip(near[there].tolist(), near["kind"].tolist(), strict=True):
            colour = EDGE_KINDS.get(int(kind), EDGE_KINDS[8])[1]
            found.append((index.lane_of(rank, int(other)), before, colour))
    origin = int(node["origin_rank"])
    if origin != rank:
        lane, start, _ = index.lane_of(origin, int(node["origin_node"]))
        # Other ranks wait until the late rank's node starts, so the arrow begins there.
        found.append(((lane, start, start), True, PATH_COLOUR))
    return [
        {"lane": lane, "start_ns": start, "end_ns": end, "before": before, "colour": colour}
        for (lane, start, end), before, colour in found
        if lane >= 0
    ]


def _times(node: Mapping[str, Any], among: tuple[int, int]) -> list[tuple[str, str]]:
    simulated, measured = int(node["end_ns"] - node["start_ns"]), _number(node, "duration_ns")
    began = _number(node, "measured_start_ns")
    at = f" from {instant_text(began)}" if began >= 0 else ""
    change = (simulated - measured) / measured if measured > 0 else 0.0
    changed = f" ({change_text(change)} simulated)" if abs(change) >= 0.0005 else ""
    if among[0] != among[1]:
        changed = f" (not comparable: among {among[0]:,} ranks, simulated among {among[1]:,})"
    return [
        ("Simulated", f"{duration_text(simulated)} from {instant_text(int(node['start_ns']))}"),
        ("Measured", f"{duration_text(measured)}{at}{changed}" if measured > 0 else ""),
    ]


def _ends(node: Mapping[str, Any]) -> str:
    source, target, tag = (_number(node, f"comm_{name}") for name in ("src", "dst", "tag"))
    if source < 0 and target < 0:
        return ""
    return f"rank {source} to rank {target}" + (f", tag {tag}" if tag >= 0 else "")


def _size(node: Mapping[str, Any], key: str) -> str:
    return bytes_text(_number(node, key)) if _number(node, key) >= 0 else ""


def _number(node: Mapping[str, Any], key: str) -> int:
    return int(node.get(key, -1))


def _known(node: Mapping[str, Any], key: str) -> str:
    return str(_number(node, key)) if _number(node, key) >= 0 else ""


def _text(node: Mapping[str, Any], key: str) -> str:
    value = node.get(key, "")
    return value if isinstance(value, str) else ""


def _host_cause(node: Mapping[str, Any]) -> str:
    cause, place = HOST_CAUSES.get(_text(node, "cause"), ""), _text(node, "place")
    return f"{cause} in {place}" if cause and place else cause


def _cause(node: Mapping[str, Any]) -> str:
    cause = int(node.get("cause_node", -1))
    if cause < 0:
        return "nothing: it started at time 0"
    why = "a dependency" if node.get("cause_is_dependency") else "its lane was busy"
    origin = int(node.get("origin_rank", node["rank"]))
    late = f"; rank {origin} arrived last and determined its end" if origin != int(node["rank"]) else ""
    return f"node {cause} ({why}){late}"


def strip(path: CriticalPath, bars: int = 1200) -> pd.DataFrame:
    """Return the critical path as at most about *bars* bars.

    Consecutive segments of a rank within a pixel are joined. The columns are rank, and kind, name and
    node_id of the longest segment, start_ns, duration_ns, and count.
    """
    pixel_ns = max(1.0, path.makespan_ns / bars)
    return _joined(path.segments, pixel_ns, ["rank"], ["rank", "kind", "name", "node_id"])


def paths_strip(base: CriticalPath, other: CriticalPath) -> pd.DataFrame:
    """Return two critical paths as bars over time.

    ``path`` is 0 for *base* and 1 for *other*, and ``apart`` is true for segments on only one path. ``rank``,
    ``node_id`` and ``name`` describe the longest segment; ``start_ns`` and ``duration_ns`` are in ns.
    Consecutive segments with equal ``apart`` within a pixel are joined.
    """
    pixel_ns = max(1.0, max(base.makespan_ns, other.makespan_ns) / _PATH_BARS)
    parts = paths_table(base, other).groupby("path")
    facts = ["rank", "node_id", "name", "apart"]
    joined = [_joined(own, pixel_ns, ["apart"], facts).assign(path=path) for path, own in parts]
    both: pd.DataFrame = pd.concat(joined, ignore_index=True)
    return both


def _joined(segments: pd.DataFrame, pixel_ns: float, by: list[str], facts: list[str]) -> pd.DataFrame:
    """Join consecutive *segments* within a pixel that have equal *by*.

    A joined segment has the *facts* of its longest part.
    """
    keys = segments[by].assign(pixel=(segments["start_ns"] / pixel_ns).astype(np.int64))
    group = (keys != keys.shift()).any(axis=1).cumsum()
    longest = segments.loc[segments.groupby(group)["duration_ns"].idxmax()].reset_index(drop=True)
    sums = segments.groupby(group)
    joined: pd.DataFrame = longest[facts].assign(
        start_ns=sums["start_ns"].min().to_numpy(),
        duration_ns=sums["duration_ns"].sum().to_numpy(),
        count=sums.size().to_numpy(),
    )
    return joined


def fullest_curve(run: OpenRun) -> Mapping[str, Any] | None:
    """Return the fullest rank's memory over time as a `MemoryCurve`; None without a prediction."""
    curves = run.result.provenance.get("memory_over_time") or []
    return max(curves, key=lambda curve: int(curve["peak_bytes"]), default=None)


def memory_facts(run: OpenRun) -> str:
    """Describe the peak memory of the fullest rank; "" without a prediction."""
    curves = run.result.provenance.get("memory_over_time") or []
    fullest = fullest_curve(run)
    if fullest is None:
        return ""
    stage = f" Of the {len(curves)} pipeline stages, stage {fullest['stage']} holds most."
    most = f"Predicted to hold at most {bytes_text(int(fullest['peak_bytes']))}."
    return f"{most}{stage if len(curves) > 1 else ''}"


def memory_verdict(run: OpenRun) -> str:
    """Return whether a predicted job fits into memory, as text; "" without a prediction."""
    prediction = run.result.provenance.get("prediction")
    if not isinstance(prediction, dict):
        return ""
    room, holds = int(prediction.get("chip_memory_bytes", 0)), int(prediction["memory_bytes_per_rank"])
    verdict = "fits" if prediction["fits"] else "does NOT fit"
    usable = int(prediction.get("chip_usable_bytes", 0))  # the column is missing in runs of earlier versions
    share = f"the {bytes_text(usable)} usable of " if usable else ""
    return (
        f"{verdict}: the fullest rank holds {bytes_text(holds)} of {share}the {bytes_text(room)} of "
        f"{prediction.get('chip', 'its chip')}"
    )
