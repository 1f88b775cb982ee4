"""Set results side by side: in total, rank by rank, collective by collective, and where their paths part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..converter import CollectiveType, Workload
from ..errors import ConfigError
from .critical_path import CriticalPath, critical_path
from .result import Result

__all__ = ["Comparison", "Parting", "compare", "parting"]


@dataclass(frozen=True, eq=False)
class Comparison:
    """Results against the first of them, the base. Times are ns, ``relative`` is over the base's time.

    *overview*: a row a result. *ranks*: a row a rank and other result. *collectives*: a row a collective and
    other result, the mean duration over its ranks, worst first. *nodes*: how the relative errors of node
    durations are distributed, a row a kind and other result. *paths*: where the critical paths part: a row an
    other result.
    """

    overview: pd.DataFrame
    ranks: pd.DataFrame
    collectives: pd.DataFrame
    nodes: pd.DataFrame
    paths: pd.DataFrame


@dataclass(frozen=True)
class Parting:
    """How far two critical paths go together: over *segments* from the start, until *at_ns*, or to the end.

    ``*_goes_to`` names where each goes then, *on_both* is the share of the base's path that lies on the
    other's too, and *same* says that the two never part.
    """

    segments: int
    at_ns: int
    base_goes_to: str
    other_goes_to: str
    on_both: float
    same: bool


def compare(results: Sequence[Result], workload: Workload, labels: Sequence[str] | None = None) -> Comparison:
    """Compare *results* of the same *workload* with the first of them.

    *labels* name the results, by default after their backends. Raises `ConfigError` for fewer than two
    results, and for results of different numbers of ranks.
    """
    if len(results) < 2:
        raise ConfigError("A comparison needs at least two results; run the study with another backend too.")
    sizes = {len(result.ranks) for result in results}
    if len(sizes) > 1:
        raise ConfigError(
            f"The results have different numbers of ranks ({', '.join(map(str, sorted(sizes)))}), so that "
            "their ranks and nodes cannot be aligned; compare runs on networks of one size."
        )
    names = list(labels) if labels is not None else [result.backend for result in results]
    base, others = results[0], list(zip(names[1:], results[1:], strict=True))
    facts = workload.node_table()[["rank", "node_id", "name", "kind"]]
    return Comparison(
        overview=_overview(names, results),
        ranks=pd.concat([_ranks(base, result, name) for name, result in others], ignore_index=True),
        collectives=pd.concat(
            [_collectives(base, result, name) for name, result in others], ignore_index=True
        ),
        nodes=pd.concat([_nodes(base, result, name, facts) for name, result in others], ignore_index=True),
        paths=pd.DataFrame([_parting(base, result, name, workload) for name, result in others]),
    )


def _overview(names: Sequence[str], results: Sequence[Result]) -> pd.DataFrame:
    base = results[0].makespan_ns
    rows = [
        {
            "result": name,
            "backend": result.backend,
            "makespan_ns": result.makespan_ns,
            "delta_ns": result.makespan_ns - base,
            "relative": result.makespan_ns / max(base, 1) - 1,
            "compute_ns": int(result.ranks["compute_ns"].mean()),
            "comm_ns": int(result.ranks["comm_ns"].mean()),
            "overlap_ns": int(result.ranks["overlap_ns"].mean()),
            "exposed_comm_ns": int(result.ranks["exposed_comm_ns"].mean()),
        }
        for name, result in zip(names, results, strict=True)
    ]
    table: pd.DataFrame = pd.DataFrame(rows)
    return table


def _ranks(base: Result, other: Result, name: str) -> pd.DataFrame:
    columns = ["rank", "finish_ns", "exposed_comm_ns"]
    table: pd.DataFrame = base.ranks[columns].merge(
        other.ranks[columns], on="rank", suffixes=("_base", "_other")
    )
    table.insert(0, "result", name)
    table["relative"] = _relative(table["finish_ns_base"], table["finish_ns_other"])
    return table


def _collectives(base: Result, other: Result, name: str) -> pd.DataFrame:
    keys = ["rank", "node_id"]
    times = other.collectives[[*keys, "start_ns", "end_ns"]]
    calls = base.collectives.merge(times, on=keys, suffixes=("", "_other"))
    calls["base_ns"] = calls["end_ns"] - calls["start_ns"]
    calls["other_ns"] = calls["end_ns_other"] - calls["start_ns_other"]
    table: pd.DataFrame = calls.groupby(
        ["collective", "comm_type", "group", "size_bytes"], as_index=False
    ).agg(ranks=("rank", "size"), base_ns=("base_ns", "mean"), other_ns=("other_ns", "mean"))
    table = table.astype({"base_ns": "int64", "other_ns": "int64"})
    table["comm_type"] = [CollectiveType(kind).name.lower() for kind in table["comm_type"]]
    table.insert(0, "result", name)
    table["relative"] = _relative(table["base_ns"], table["other_ns"])
    order = table["relative"].abs().sort_values(ascending=False, kind="stable").index
    ordered: pd.DataFrame = table.loc[order].reset_index(drop=True)
    return ordered


def _nodes(base: Result, other: Result, name: str, facts: pd.DataFrame) -> pd.DataFrame:
    keys = ["rank", "node_id"]
    both = base.nodes.merge(other.nodes, on=keys, suffixes=("_base", "_other")).merge(facts, on=keys)
    both["relative"] = _relative(
        both["end_ns_base"] - both["start_ns_base"], both["end_ns_other"] - both["start_ns_other"]
    )
    rows = []
    for kind, part in both.groupby("kind"):
        low, middle, high = np.quantile(part["relative"], [0.05, 0.5, 0.95])
        worst = part.loc[part["relative"].abs().idxmax()]
        rows.append(
            {
                "result": name,
                "kind": kind,
                "nodes": len(part),
                "p05": low,
                "median": middle,
                "p95": high,
                "worst": worst["relative"],
                "worst_node": f"{worst['name']} (node {worst['node_id']} of rank {worst['rank']})",
            }
        )
    table: pd.DataFrame = pd.DataFrame(rows)
    return table


def _parting(base: Result, other: Result, name: str, workload: Workload) -> dict[str, object]:
    found = parting(critical_path(base, workload), critical_path(other, workload))
    return {
        "result": name,
        "segments_in_common": found.segments,
        "parts_at_ns": found.at_ns,
        "base_goes_to": found.base_goes_to,
        "other_goes_to": found.other_goes_to,
        "on_both": found.on_both,
    }


def parting(base: CriticalPath, other: CriticalPath) -> Parting:
    """Return the first segment, from the start, in which the two critical paths are on different nodes."""
    paths = [base.segments, other.segments]
    steps = [list(zip(path["rank"].tolist(), path["node_id"].tolist(), strict=True)) for path in paths]
    common = next((i for i, (a, b) in enumerate(zip(*steps, strict=False)) if a != b), min(map(len, steps)))
    shared = set(steps[0]) & set(steps[1])
    on_both = paths[0]["duration_ns"][[step in shared for step in steps[0]]].sum()
    return Parting(
        segments=common,
        at_ns=int(paths[0]["end_ns"].iloc[common - 1]) if common else 0,
        base_goes_to=_place(paths[0], common),
        other_goes_to=_place(paths[1], common),
        on_both=float(on_both) / max(base.makespan_ns, 1),
        same=common == max(map(len, steps)),
    )


def _place(segments: pd.DataFrame, number: int) -> str:
    if number >= len(segments):
        return "the end"
    segment = segments.iloc[number]
    return f"{segment['name']} (node {segment['node_id']} of rank {segment['rank']})"


def _relative(base: pd.Series, other: pd.Series) -> pd.Series:
    """Return the difference over the base; 0 where both are 0, infinite where only the base is."""
    difference = (other - base).to_numpy(dtype=float)
    reference = base.to_numpy(dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(difference == 0, 0.0, difference / reference)
    return pd.Series(ratio, index=base.index)
