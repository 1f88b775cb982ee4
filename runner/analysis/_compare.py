"""Compare the results of one workload with the first result, and compare totals of any runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...converter import Workload
from ...converter.chakra import TextColumn, joined, table_of
from ...converter.kernels import unsized_communication
from ...errors import ConfigError
from ...support import change_text, delta_text, duration_text
from .._notebook import Bar, Figure, bars, block, html_table
from .._result import Result
from .._traits import about_backend
from ..study import run_name
from ._collectives import collective_overview, second_hop_ns, store_and_forward
from ._critical_path import CriticalPath, critical_path
from ._differences import (
    NodeDifferences,
    collective_differences,
    error_distribution,
    flow_differences,
    node_difference_columns,
    rank_differences,
    relative_step,
    why_not_comparable,
)
from ._path_facts import facts_of_nodes
from ._path_tables import divergence
from ._run import RunAnalysis
from ._settings import settings_table
from ._summary import rank_times

_NODE_FACTS = ("name", "kind", "module", "phase")
_MEANS = ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "overlap_ns", "copy_ns", "idle_ns")


class Comparison:
    """Results compared with the first (the base); each table is computed when first used.

    Times are in ns. The column ``result`` names the result that is compared with the base.
    """

    def __init__(self, results: Sequence[Result], workload: Workload, labels: Sequence[str]) -> None:
        self.results = tuple(results)
        self.labels = tuple(labels)
        self._workload = workload

    @property
    def notes(self) -> list[str]:
        """Notes on parts that cannot be compared, and on communication with the same time on any network."""
        base, *others = self.results
        unsized = unsized_communication(self._workload)
        texts = [unsized.text if unsized else "", *(why_not_comparable(base, other) for other in others)]
        texts += [store_and_forward(result) for result in self.results]
        return [text for text in dict.fromkeys(texts) if text]

    @cached_property
    def settings(self) -> pd.DataFrame:
        """The settings, differing ones first: ``setting``, ``differs`` and a column per result."""
        return settings_table(dict(zip(self.labels, self.results, strict=True)))

    @cached_property
    def overview(self) -> pd.DataFrame:
        """A row per result: the makespan, and its parts as means over the ranks."""
        base = self.results[0].makespan_ns
        rows = []
        for name, result in zip(self.labels, self.results, strict=True):
            delta = result.makespan_ns - base
            times = rank_times(result)
            rows.append(
                {"result": name, "backend": result.backend, "makespan_ns": result.makespan_ns}
                | {"delta_ns": delta, "relative": relative_step(self.results[0], result)}
                | {column: round(times[column].mean()) for column in _MEANS}
            )
        table: pd.DataFrame = pd.DataFrame(rows)
        return table

    @cached_property
    def kinds(self) -> pd.DataFrame:
        """The critical path of each result by kind: ``result, key, duration_ns, share``."""
        parts = [path.breakdown("kind") for path in self._paths]
        for name, part in zip(self.labels, parts, strict=True):
            part.insert(0, "result", name)
        return pd.concat(parts, ignore_index=True)

    @cached_property
    def ranks(self) -> pd.DataFrame:
        """The times of each rank in the base and in each other result."""
        return self._against_base(rank_differences)

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """The durations of every node in both results."""
        return self.first_nodes(self.num_nodes)

    @property
    def num_nodes(self) -> int:
        """The number of rows of :attr:`nodes`."""
        return sum(map(len, self._nodes))

    def first_nodes(self, count: int) -> pd.DataFrame:
        """Return the first *count* rows of :attr:`nodes`, largest differences of each result first."""
        return table_of(self.node_columns(count))

    def node_columns(self, count: int) -> dict[str, npt.NDArray[Any] | TextColumn]:
        """Return the columns of the first *count* rows of :attr:`nodes`, with encoded texts."""
        parts: list[dict[str, npt.NDArray[Any] | TextColumn]] = []
        for name, found in zip(self.labels[1:], self._nodes, strict=True):
            rows = found.order[:count]
            count -= len(rows)
            label = TextColumn(np.zeros(len(rows), np.int32), [name])
            numbers = {key: column[rows] for key, column in found.columns.items()}
            places = {key: numbers.pop(key) for key in ("rank", "node_id")}
            parts.append({"result": label, **places, **found.texts(rows, _NODE_FACTS), **numbers})
        return {name: joined([part[name] for part in parts]) for name in parts[0]}

    @cached_property
    def _nodes(self) -> list[NodeDifferences]:
        base, *others = self.results
        return [NodeDifferences(node_difference_columns(base, other), self._workload) for other in others]

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """All collectives, matched by node ids, with times as means over the ranks."""
        base = self.results[0]
        facts = facts_of_nodes(self._workload, base.collectives, "module")
        described = collective_overview(base, facts, self._paths[0])
        return self._against_base(lambda base, other: collective_differences(base, other, described))

    @cached_property
    def flows(self) -> pd.DataFrame:
        """All messages, matched by source, destination, size and order."""
        return self._against_base(flow_differences)

    @cached_property
    def errors(self) -> pd.DataFrame:
        """Distributions of relative errors: nodes by kind, collectives by operation, and messages."""
        parts = []
        for number, other in enumerate(self.results[1:]):
            label, nodes = self.labels[1 + number], self._nodes[number]
            collectives, flows = (
                table[table["result"] == label] for table in (self.collectives, self.flows.assign(all="all"))
            )
            for of, table, by, place in (
                ("nodes", nodes.errors(), "kind", partial(_place_of_node, nodes)),
                ("collectives", collectives, "operation", partial(_place, "collectives", collectives)),
                ("flows", flows, "all", partial(_place, "flows", flows)),
            ):
                found = error_distribution(table, by)
                both = sum(_count(of, result) for result in (self.results[0], other))
                found.insert(0, "result", label)
                found.insert(1, "of", of)
                found["unaligned"] = both - 2 * len(table)  # rows that only one result has
                places = [place(row) for row in found.pop("at")]
                found["worst_is"] = pd.Series(places, index=found.index, dtype="str")
                parts.append(found)
        return pd.concat(parts, ignore_index=True)

    @cached_property
    def paths(self) -> pd.DataFrame:
        """The segment at which the critical path of each result diverges from the base's."""
        rows = []
        for name, path in zip(self.labels[1:], self._paths[1:], strict=True):
            found = asdict(divergence(self._paths[0], path))
            del found["same"]
            renamed = {"segments_in_common": found.pop("segments"), "diverge_at_ns": found.pop("at_ns")}
            rows.append({"result": name} | renamed | found)
        table: pd.DataFrame = pd.DataFrame(rows)
        return table

    def figure(self) -> Figure:
        """Return a bar chart of the makespans."""
        rows = [
            Bar(name, 0, result.makespan_ns, duration_text(result.makespan_ns))
            for name, result in zip(self.labels, self.results, strict=True)
        ]
        return bars(rows, "Makespan")

    def _repr_html_(self) -> str:
        title = f"{self.labels[0]} against {', '.join(self.labels[1:])}"
        worst = self.first_nodes(5)[
            ["result", "rank", "name", "kind", "base_ns", "other_ns", "delta_ns", "relative"]
        ]
        parts = [html_table(self.overview), html_table(worst, "The nodes that differ most")]
        return block(title, *parts, notes=self.notes)

    @cached_property
    def _paths(self) -> list[CriticalPath]:
        return [critical_path(result, self._workload) for result in self.results]

    def _against_base(self, differ: Callable[[Result, Result], pd.DataFrame]) -> pd.DataFrame:
        tables = []
        for name, other in zip(self.labels[1:], self.results[1:], strict=True):
            table = differ(self.results[0], other)
            table.insert(0, "result", name)
            tables.append(table)
        return pd.concat(tables, ignore_index=True)


def compare(results: Sequence[Result], workload: Workload, labels: Sequence[str] | None = None) -> Comparison:
    """Compare *results* of the same *workload* with the first of them.

    *labels* name the results; the default is their backends. Raises `ConfigError` for fewer than
    two results, or for results of different numbers of ranks.
    """
    if len(results) < 2:
        raise ConfigError(
            "A comparison needs at least two results. Next: run the study on another backend as well."
        )
    sizes = {len(result.ranks) for result in results}
    if len(sizes) > 1:
        raise ConfigError(
            f"The results have different numbers of ranks ({', '.join(map(str, sorted(sizes)))}), so "
            "their nodes cannot be aligned. Next: `chakrascope sweep --over network=A,B`, or `diff`."
        )
    names = labels if labels is not None else _distinct([result.backend for result in results])
    if len(set(names)) < len(results):
        raise ConfigError(f"{len(results)} results need distinct labels, not {', '.join(names)}.")
    return Comparison(results, workload, names)


def _distinct(names: Sequence[str]) -> list[str]:
    """Return *names* with a number appended to repeated ones."""
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return unique


def _count(of: str, result: Result) -> int:
    if of == "nodes":
        return result.num_nodes
    return result.collectives["collective"].nunique() if of == "collectives" else len(result.flows)


def _place_of_node(nodes: NodeDifferences, at: int) -> str:
    row = nodes.order[at : at + 1]
    name = nodes.texts(row, ["name"])["name"]
    rank, node_id = (nodes.columns[column][row[0]] for column in ("rank", "node_id"))
    return f"{name.texts[name.numbers[0]]} (node {node_id} of rank {rank})"


def _place(of: str, table: pd.DataFrame, at: int) -> str:
    row = table.loc[at]
    if of == "collectives":
        return f"collective {row['collective']} of {row['size_bytes']} bytes, group {row['group']}"
    return f"{row['src']} to {row['dst']}, {row['bytes']} bytes, number {row['turn'] + 1}"


def run_overview(runs: Sequence[RunAnalysis]) -> pd.DataFrame:
    """Return a row per run, with ``delta_ns`` and ``relative`` to the first of *runs*.

    If only one of the two is a measurement, ``relative`` refers to it, and is missing if the
    numbers of ranks differ. ``exposed_comm_ns`` is the mean over ranks, as in
    `Comparison.overview`.
    """
    base = runs[0].result.makespan_ns
    rows = [
        {
            "run": run.info.id,
            "label": run_name(run.info),
            "backend": run.info.backend,
            "network": run.info.network,
            "ranks": run.info.num_ranks,
            "makespan_ns": run.result.makespan_ns,
            "delta_ns": run.result.makespan_ns - base,
            "relative": relative_step(runs[0].result, run.result),
            "exposed_comm_ns": round(run.summary.ranks["exposed_comm_ns"].mean()),
        }
        for run in runs
    ]
    table: pd.DataFrame = pd.DataFrame(rows)
    return table


def comparison_text(names: Sequence[str], overview: pd.DataFrame) -> str:
    """Return a sentence that compares the step time of each row in *overview* with the first."""
    texts = [
        f"{name}: {duration_text(makespan_ns)}"
        # The change of the first row, or with other numbers of ranks, is no change.
        + (f" ({change_text(relative)})" if number and not np.isnan(relative) else "")
        for number, (name, makespan_ns, relative) in enumerate(
            zip(names, overview["makespan_ns"], overview["relative"], strict=True)
        )
    ]
    return f"{texts[0]}; {', '.join(texts[1:])}."


def run_kinds(runs: Sequence[RunAnalysis]) -> pd.DataFrame:
    """Return the critical path of each run by kind: ``run, label, key, duration_ns, share``."""
    parts = [run.summary.kinds.assign(run=run.info.id, label=run_name(run.info)) for run in runs]
    columns = ["run", "label", "key", "duration_ns", "share"]
    table: pd.DataFrame = pd.concat(parts, ignore_index=True)[columns]
    return table


def same_nodes(base: RunAnalysis, other: RunAnalysis) -> bool:
    """Return whether both runs simulate the same workload of the study, so that node ids match."""
    return base.info.workload == other.info.workload


_TINY = 0.02


def configuration_table(runs: Sequence[RunAnalysis]) -> pd.DataFrame:
    """Return the settings and workloads of *runs* (see `settings_table`)."""
    results = {f"{number}. {run_name(run.info)}": run.result for number, run in enumerate(runs, 1)}
    return settings_table(results, workloads=[run.info.workload for run in runs])


def backend_reasons(base: RunAnalysis, other: RunAnalysis) -> list[str]:
    """Explain why two backends may differ; an empty list for the same backend."""
    names = [base.info.backend, other.info.backend]
    if names[0] == names[1]:
        return []
    bases = (name.partition(":")[0] if about_backend(name).variant else name for name in names)
    charges = {base: about_backend(base).charges for base in bases}
    lines = [f"'{base}' {charged}." for base, charged in charges.items() if charged]
    queued = _queued(base, other)
    if queued is not None:
        name, total, worst = queued
        lines.append(
            f"No message of {name} waited for a link, so congestion does not explain the difference."
            if not total
            else f"Messages of {name} waited {duration_text(total)} for links in total, and at most "
            f"{duration_text(worst)} for one link. The run has no other congestion."
        )
    return lines


def _queued(base: RunAnalysis, other: RunAnalysis) -> tuple[str, int, int] | None:
    """Return the name of the run with queueing times, the times in total and of the worst link, or None."""
    for run in (other, base):
        links = run.result.links
        if about_backend(run.info.backend).hops > 1 and len(links):
            return run_name(run.info), int(links["queue_ns"].sum()), int(links["queue_ns"].max())
    return None


def explained_collectives(base: RunAnalysis, other: RunAnalysis) -> pd.DataFrame:
    """Return the :func:`collective_differences` of two runs with an explanation (``why``) of each."""
    table = collective_differences(base.result, other.result, base.collectives)
    why = [_why(row, base, other) for row in table.to_dict("records")]
    explained: pd.DataFrame = table.assign(why=pd.Series(why, index=table.index, dtype="str"))
    return explained


def _why(row: Mapping[Any, Any], base: RunAnalysis, other: RunAnalysis) -> str:
    delta = int(row["delta_ns"])
    if not delta:
        return "The duration is equal in both runs."
    transfer = int(row["transfer_other_ns"] - row["transfer_base_ns"])
    waiting = delta - transfer
    text = f"{_change(delta)} in the other run"
    if abs(waiting) <= _TINY * abs(delta):
        parts = "all of the change is in the transfer"
    elif abs(transfer) <= _TINY * abs(delta):
        return (
            f"{text}, all of the change is waiting for ranks that arrive "
            f"{'later' if delta > 0 else 'earlier'} in that run."
        )
    else:
        parts = f"{delta_text(transfer)} in the transfer, {delta_text(waiting)} in waiting for the last rank"
    sentence = f"{text}, {parts}{_network_part(row, transfer, base, other)}."
    return sentence[0].upper() + sentence[1:]


def _network_part(row: Mapping[Any, Any], transfer: int, base: RunAnalysis, other: RunAnalysis) -> str:
    """Explain a difference in *transfer* time by store and forward per hop, and by queueing."""
    names = (base.info.backend, other.info.backend)
    charged = {about_backend(name).hops: name for name in names}
    if charged.keys() != {1, 2}:
        return ""
    size, ranks = int(row["size_bytes"]), int(row["ranks"])
    hops = second_hop_ns(base.result.provenance, str(row["operation"]), size, ranks)
    if hops is None:
        return (
            f"; '{charged[2]}' stores and forwards whole messages at each hop, and '{charged[1]}' "
            "charges the bytes once"
        )
    hops *= 1 if names[1] == charged[2] else -1
    left = transfer - hops
    text = (
        f"; {delta_text(hops)} because '{charged[2]}' sends each whole message over both hops of the "
        "switch, one after the other"
    )
    if abs(left) <= _TINY * abs(transfer):
        return f"{text}; none of the change is congestion"
    return f"{text}, and {delta_text(left)} from messages that queue or are sent in another order"


def _change(nanoseconds: int) -> str:
    return f"{duration_text(abs(nanoseconds))} {'longer' if nanoseconds > 0 else 'less'}"
