"""Differences between two results by rank, node, collective and flow.

Tables have the time in the base and in the other result, and ``delta_ns``, the difference.
``relative`` is the difference over the base's time (or over 1 ns if that is 0), or over the
measured time if only the other result is measured. A measurement with fewer ranks than the
simulation has no ``relative`` for the step, for ranks, and for collectives over fewer ranks; nodes,
and collectives over equally many ranks, remain comparable. `deviation_text` describes how far a
simulation deviates from the measurement of its workload.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...converter import Workload
from ...converter.building import is_captured
from ...converter.chakra import TextColumn
from ...errors import ConfigError
from ...support import count_text, duration_text, share_text
from ...support.table import Columns, Ints, frame_of
from .._framed import PairIndex
from .._result import Result
from .._simulate import prepare
from .._traits import REPLAY, about_backend
from ..backends import get_backend
from ._foreign_times import measured_ranks
from ._path_facts import coded_facts
from ._summary import DEVIATES, rank_times

_NODE = ["rank", "node_id"]
_DIFFERENCE = ["base_ns", "other_ns", "delta_ns", "relative"]
_NODE_FACTS = ["name", "kind", "module", "phase"]
_MEASURED_RANKS = "measured_ranks"
_QUANTILES = {"p05": 0.05, "median": 0.5, "p95": 0.95}


def rank_differences(base: Result, other: Result) -> pd.DataFrame:
    """Return the `rank_times` of both results per common rank, and the difference in finish time."""
    table: pd.DataFrame = rank_times(base).merge(rank_times(other), on="rank", suffixes=("_base", "_other"))
    delta = table["finish_ns_other"] - table["finish_ns_base"]
    reference = table["finish_ns_other" if measured_is_second(base, other) else "finish_ns_base"]
    relative = delta / reference.clip(lower=1) if has_comparable_ranks(base, other) else np.nan
    compared: pd.DataFrame = table.assign(delta_ns=delta, relative=relative)
    return compared


def node_differences(base: Result, other: Result, facts: pd.DataFrame) -> pd.DataFrame:
    """Return how the duration of every node of the common ranks differs, the largest difference first.

    *facts* has the name, kind, module and phase of ``rank, node_id``.
    """
    columns = node_difference_columns(base, other)
    order = worst_first(columns["delta_ns"])
    table = frame_of({name: column[order] for name, column in columns.items()})
    described = table.merge(facts[[*_NODE, *_NODE_FACTS]], on=_NODE, how="left")
    differences: pd.DataFrame = described[[*_NODE, *_NODE_FACTS, *_DIFFERENCE]]
    return differences


def collective_differences(base: Result, other: Result, described: pd.DataFrame) -> pd.DataFrame:
    """Return how the duration of each collective differs, as means over the common ranks, largest first.

    *described* is the base's `collective_overview`. Collectives are matched by node ids.
    ``transfer_base_ns`` and ``transfer_other_ns`` leave out the time that a rank waits for others.
    """
    columns = [*_NODE, "start_ns", "end_ns", "transfer_ns"]
    calls = base.collectives[["collective", *columns]].merge(
        other.collectives[columns], on=_NODE, suffixes=("", "_other")
    )
    calls["base_ns"] = calls["end_ns"] - calls["start_ns"]
    calls["other_ns"] = calls["end_ns_other"] - calls["start_ns_other"]
    table = calls.groupby("collective", as_index=False).agg(
        ranks=("rank", "size"),
        base_ns=("base_ns", "mean"),
        other_ns=("other_ns", "mean"),
        transfer_base_ns=("transfer_ns", "mean"),
        transfer_other_ns=("transfer_ns_other", "mean"),
    )
    whole = table.columns.drop("collective")
    table[whole] = table[whole].round().astype(np.int64)
    facts = described[["collective", "operation", "module", "group", "size_bytes", "rank", "node_id"]]
    compared = _with_difference(table, base, other).merge(facts, on="collective")
    return _worst_first(_without_unlike(compared, base, other))


def flow_differences(base: Result, other: Result) -> pd.DataFrame:
    """Return the messages of both results, the largest difference in completion time first.

    Messages are matched by source, destination, size and ``turn``, the order among messages with the same
    three values. Backends that do not simulate messages have none.
    """
    keys = ["src", "dst", "bytes", "turn"]
    table = _completions(base).merge(_completions(other), on=keys, suffixes=("_base", "_other"))
    table = table.rename(columns={"completion_ns_base": "base_ns", "completion_ns_other": "other_ns"})
    return _worst_first(_with_difference(table, base, other))


def _completions(result: Result) -> pd.DataFrame:
    flows = result.flows.sort_values(["start_ns", "end_ns"], kind="stable")
    table: pd.DataFrame = flows[["src", "dst", "bytes", "start_ns"]].assign(
        turn=flows.groupby(["src", "dst", "bytes"]).cumcount(),
        completion_ns=flows["end_ns"] - flows["start_ns"],
    )
    return table


def error_distribution(differences: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return the distribution of the relative errors in *differences*, per value of the column *by*.

    The columns are ``key, count, mean, p05, median, p95, worst``, and ``at``, the row of the worst
    error. Rows that cannot be compared, or take at most 1 ns in the base, are left out.
    """
    rows = []
    lasting = differences[(differences["base_ns"] > 1) & differences["relative"].notna()]
    for key, part in lasting.groupby(by, sort=True, observed=True):
        errors = part["relative"]
        quantiles = {name: errors.quantile(share, "nearest") for name, share in _QUANTILES.items()}
        at = int(errors.abs().to_numpy().argmax())
        worst = {"worst": errors.iloc[at], "at": part.index[at]}
        rows.append({"key": str(key), "count": len(part), "mean": errors.mean(), **quantiles, **worst})
    types = {"key": "str", "count": "int64", "mean": "float64"} | dict.fromkeys(_QUANTILES, "float64")
    types |= {"worst": "float64", "at": "int64"}
    table: pd.DataFrame = pd.DataFrame(rows, columns=list(types)).astype(types)
    return table


def measured_is_second(base: Result, other: Result) -> bool:
    """Return whether only *other* is a measurement, to which errors are then relative."""
    return _replays(other) and not _replays(base)


def relative_step(base: Result, other: Result) -> float:
    """Return the relative difference of two makespans, NaN if they cannot be compared."""
    if not has_comparable_ranks(base, other):
        return math.nan
    reference = other if measured_is_second(base, other) else base
    return (other.makespan_ns - base.makespan_ns) / max(1, reference.makespan_ns)


def _replays(result: Result) -> bool:
    return about_backend(result.backend).replays


def has_comparable_ranks(base: Result, other: Result) -> bool:
    """Return whether two steps can be compared: a measured one needs as many ranks as the other."""
    return not _one_is_measured(base, other) or _ranks(base) == _ranks(other)


def why_not_comparable(base: Result, other: Result) -> str:
    """Explain why two steps have no relative difference; "" if they have one."""
    if has_comparable_ranks(base, other):
        return ""
    measured, simulated = map(_ranks, (base, other) if _replays(base) else (other, base))
    return (
        f"Measured on {count_text(measured, 'rank')}, simulated on {simulated:,}. The relative differences "
        "of steps, ranks and collectives with more members are left out, because only computations are "
        "comparable with the measurement."
    )


def _one_is_measured(base: Result, other: Result) -> bool:
    return _replays(base) != _replays(other)


def _ranks(result: Result) -> int:
    """Return the number of ranks, or of measured ranks, of *result*."""
    return int(result.provenance.get(_MEASURED_RANKS, len(result.ranks)))


def _without_unlike(table: pd.DataFrame, base: Result, other: Result) -> pd.DataFrame:
    """Drop relative differences of collectives that were measured among fewer ranks."""
    calls = pd.MultiIndex.from_arrays(_unlike_calls(base, other))
    unlike = pd.MultiIndex.from_frame(table[_NODE]).isin(calls)
    result: pd.DataFrame = table.assign(relative=table["relative"].mask(unlike))
    return result


def _unlike_calls(base: Result, other: Result) -> tuple[Ints, Ints]:
    """Return rank and node id of the base's collectives that were measured among fewer ranks."""
    if not _one_is_measured(base, other):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    members = _members(base).merge(_members(other), on=_NODE, how="left", suffixes=("", "_other"))
    unlike = members[members["members"] != members["members_other"]]
    return unlike["rank"].to_numpy(np.int64), unlike["node_id"].to_numpy(np.int64)


def _members(result: Result) -> pd.DataFrame:
    """Return the number of ranks, or of measured ranks, in each collective call."""
    calls = result.collectives[["collective", *_NODE]]
    keys = ["collective"]
    if _MEASURED_RANKS in result.provenance:
        calls = calls.assign(block=calls["rank"] // _ranks(result))
        keys.append("block")
    members = calls.groupby(keys)["rank"].transform("size")
    table: pd.DataFrame = calls[_NODE].assign(members=members)
    return table


def _with_difference(table: pd.DataFrame, base: Result, other: Result) -> pd.DataFrame:
    delta = table["other_ns"] - table["base_ns"]
    reference = table["other_ns" if measured_is_second(base, other) else "base_ns"]
    result: pd.DataFrame = table.assign(delta_ns=delta, relative=delta / reference.clip(lower=1))
    return result


def _worst_first(table: pd.DataFrame) -> pd.DataFrame:
    order = (-table["delta_ns"].abs()).argsort(kind="stable")
    lead = [name for name in table.columns if name not in _DIFFERENCE]
    ordered: pd.DataFrame = table.iloc[order].reset_index(drop=True)[[*lead, *_DIFFERENCE]]
    return ordered


_TIMES = ["start_ns", "end_ns"]


class NodeDifferences:
    """The common nodes of two results by rank and node id; *order* lists the largest difference first."""

    def __init__(self, columns: Columns, workload: Workload) -> None:
        self.columns = columns
        self.order = worst_first(columns["delta_ns"])
        self._workload = workload

    def __len__(self) -> int:
        return len(self.order)

    def texts(self, rows: Ints, names: Sequence[str]) -> dict[str, TextColumn]:
        """Return the workload's text columns *names* of the nodes in *rows*."""
        kept, place = (np.unique(rows, return_inverse=True)) if len(rows) < len(self) else (slice(None), rows)
        facts = coded_facts(self._workload, self.columns["rank"][kept], self.columns["node_id"][kept], names)
        return {name: column[place] for name, column in facts.items()}

    def errors(self) -> pd.DataFrame:
        """Return ``kind, base_ns, relative`` of all nodes, largest difference first."""
        kinds = self.texts(self.order, ["kind"])["kind"]
        names = sorted(kinds.texts)
        place = np.array([names.index(text) for text in kinds.texts], np.int64)
        codes: Ints = place[kinds.numbers] if len(place) else kinds.numbers
        numbers = {name: self.columns[name][self.order] for name in ("base_ns", "relative")}
        table: pd.DataFrame = pd.DataFrame(
            {"kind": pd.Categorical.from_codes(codes, pd.Index(names)), **numbers}
        )
        return table


def node_difference_columns(base: Result, other: Result) -> Columns:
    """Return ``rank, node_id, base_ns, other_ns, delta_ns, relative`` of the common nodes."""
    parts: list[Columns] = [dict.fromkeys(("node_id", "base_ns", "other_ns"), np.empty(0, np.int64))]
    ranks, counts = [], []
    for rank, first, second in _common_ranks(base, other):
        ids, here, there = _common(first["node_id"], second["node_id"])
        base_ns, other_ns = (
            (nodes["end_ns"] - nodes["start_ns"])[rows] for nodes, rows in ((first, here), (second, there))
        )
        parts.append({"node_id": ids, "base_ns": base_ns, "other_ns": other_ns})
        ranks.append(rank)
        counts.append(len(ids))
    columns = {name: np.concatenate([part.pop(name) for part in parts]) for name in [*parts[0]]}
    columns = {"rank": np.repeat(np.array(ranks, np.int32), counts), **columns}
    columns["delta_ns"] = columns["other_ns"] - columns["base_ns"]
    reference = columns["other_ns" if measured_is_second(base, other) else "base_ns"]
    columns["relative"] = columns["delta_ns"] / np.maximum(reference, 1)
    unlike = _unlike_calls(base, other)
    if len(unlike[0]):
        rows = PairIndex(columns["rank"], columns["node_id"]).rows(*unlike)
        columns["relative"][rows[rows >= 0]] = np.nan
    return columns


def worst_first(delta_ns: Ints) -> Ints:
    """Return the order by absolute difference, the largest first."""
    return np.argsort(-np.abs(delta_ns), kind="stable")


def _common_ranks(base: Result, other: Result) -> Iterator[tuple[int, Columns, Columns]]:
    """Yield each common rank with its nodes in both results."""
    others = other.table("nodes").by_rank(_TIMES)
    reached, theirs = next(others, (None, {}))
    for rank, nodes in base.table("nodes").by_rank(_TIMES):
        while reached is not None and reached < rank:
            reached, theirs = next(others, (None, {}))
        if reached is None:
            return
        if reached == rank:
            yield rank, nodes, theirs


def _common(
    first: Ints, second: Ints
) -> tuple[Ints, npt.NDArray[np.intp] | slice, npt.NDArray[np.intp] | slice]:
    """Return the common node ids in ascending order, and their rows on both sides."""
    if np.array_equal(first, second):
        return first, slice(None), slice(None)
    return np.intersect1d(first, second, assume_unique=True, return_indices=True)


_PARTS = {
    "compute_ns": "computation",
    "exposed_comm_ns": "exposed communication",
    "exposed_copy_ns": "exposed copies",
    "idle_ns": "idle time",
}


def measured_result(workload: Workload) -> Result:
    """Return the measurement of a captured *workload* as a result: every node at its measured time.

    In a workload that was scaled out, each replica has the times of its captured ranks; `compare`
    leaves out values that cannot be compared with more ranks. Raises `ConfigError` for a workload
    that was not measured.
    """
    if not is_captured(workload.metadata):
        raise ConfigError(
            "The workload was not measured, so there are no measured times. Next: compare runs only, or "
            "capture the job with `chakrascope trace`."
        )
    experiment = prepare(workload, "default", None, backend=REPLAY)
    measured = get_backend(REPLAY).run(experiment)
    # The measured ranks may represent other ranks.
    return replace(measured, provenance={**measured.provenance, _MEASURED_RANKS: measured_ranks(workload)})


def deviation_text(simulated: Result, workload: Workload, collectives: pd.DataFrame) -> str:
    """Describe how the *simulated* step deviates most from the measured one; "" for at most 10 %.

    *collectives* is the `collective_overview` of the simulation.
    """
    measured = measured_result(workload)
    delta_ns = simulated.makespan_ns - measured.makespan_ns
    if abs(delta_ns) <= DEVIATES * measured.makespan_ns:
        return ""
    sign, longer, more = (1, "longer", "more") if delta_ns > 0 else (-1, "shorter", "less")
    by_rank = rank_differences(measured, simulated).set_index("rank")
    parts = pd.DataFrame({part: by_rank[f"{part}_other"] - by_rank[f"{part}_base"] for part in _PARTS})
    excess_ns = sign * parts.stack()
    rank, part = excess_ns.idxmax()
    share = share_text(abs(delta_ns) / measured.makespan_ns)
    steps = ", not ".join(duration_text(result.makespan_ns) for result in (simulated, measured))
    text = (
        f"The simulated step is {share} {longer} than the measured step: {steps}. It differs most in "
        f"{_PARTS[part]}: {duration_text(int(excess_ns.max()))} {more} on rank {rank}."
    )
    calls = collective_differences(simulated, measured, collectives)
    calls = calls[sign * calls["delta_ns"] < 0]
    if calls.empty:
        return text
    most = calls.iloc[0]
    return (
        f"{text} Of the collectives, {most['operation']} {most['collective']} differs most: "
        f"{duration_text(abs(int(most['delta_ns'])))} {more}, mean over its ranks."
    )
