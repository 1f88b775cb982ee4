"""The state of the pages: the selection, which the address holds, and a cache of open runs."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..converter import NodeType, Workload
from ..errors import ChakrascopeError, StudyError
from ..runner import REPLAY, Result, RunInfo, Study, Workspace, about_backend, get_backend, prepare
from ..runner.analysis import (
    ComputedOnce,
    RunAnalysis,
    at_measured_times,
    captured_interval,
    measured_result,
)
from ..support.table import Ints
from .timeline import TimelineIndex

# Settings in the address, by page; t0 and t1 are in ns.
_OPTIONS = {
    "Compare": ("against", "why"),
    "Critical path": ("by", "change", "times"),
    "Diff": ("before", "after", "starts"),
    "Graph": ("edges", "fold", "hops", "open"),
    "Import": ("item",),
    "New run": ("setup",),
    "Query": ("sql",),
    "Runs": ("find",),
    "Stragglers": ("step",),
    "Sweep": ("sweep", "over", "aim", "pareto"),
    "Timeline": (
        "t0", "t1", "rows", "colour", "order", "ranks", "same", "empty", "fit", "pinned", "hidden", "seek",
        "measured", "calls", "beside", "align",
    ),
}  # fmt: skip
OPTIONS = tuple(sorted(name for names in _OPTIONS.values() for name in names))
_OPTION_LENGTH = 200
_LONG_OPTIONS = {"aim": 1_200, "over": 2_000, "setup": 6_000, "sql": 4_000}
_OPEN_RUNS, _FEW_RANKS, _FIRST_RANKS = 4, 4, 16
_NOBODY_COMES_S, _FETCHED_S = 30.0, 3.0
MANY_NODES = 2_000_000
"""Maximum number of nodes that a page reads as one table; a node with all columns takes 420 bytes."""


@dataclass(frozen=True)
class Selection:
    """The selected run and, optionally, one node of one rank; a page's address holds it.

    *options* are (name, value) pairs of single pages, such as the property by which times are
    broken down.
    """

    run: str = ""
    rank: int = -1
    node: int = -1
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, search: str | None) -> Selection:
        """Parse a query string; malformed parts are ignored."""
        query = parse_qs((search or "").lstrip("?"))
        return cls(
            run=query.get("run", [""])[0],
            rank=_natural(query.get("rank", [""])[0]),
            node=_natural(query.get("node", [""])[0]),
            options=tuple((name, _cut(name, query[name][0])) for name in OPTIONS if name in query),
        )

    @property
    def search(self) -> str:
        """The query string of the selection, for :meth:`parse`."""
        fields: dict[str, Any] = {"run": self.run} if self.run else {}
        if self.has_node:
            fields |= {"rank": self.rank, "node": self.node}
        fields |= dict(self.options)
        return f"?{urlencode(fields)}" if fields else ""

    @property
    def has_node(self) -> bool:
        """Whether a node is selected."""
        return self.rank >= 0 and self.node >= 0

    def option(self, name: str, default: str = "") -> str:
        """Return the page setting *name*, one of :data:`OPTIONS`, or *default* if unset."""
        return dict(self.options).get(name, default)

    def with_node(self, rank: int, node: int) -> Selection:
        """Return a copy with *node* of *rank* selected."""
        return replace(self, rank=int(rank), node=int(node))

    def with_run(self, run: str) -> Selection:
        """Return a copy with *run* selected."""
        return replace(self, run=run)

    def with_option(self, name: str, value: str) -> Selection:
        """Return a copy in which the setting *name* is *value*, or missing if that is empty."""
        settings = dict(self.options) | {name: _cut(name, value)}
        return replace(self, options=tuple((key, settings[key]) for key in OPTIONS if settings.get(key)))


class OpenRun(RunAnalysis):
    """A run with the analyses and timeline indices that pages need."""

    def __init__(self, view: StudyView, info: RunInfo, result: Result, workload: Workload) -> None:
        super().__init__(view.study, info, result, workload)
        self.view = view
        self._indices: dict[str, TimelineIndex] = {}

    @ComputedOnce
    def nodes(self) -> pd.DataFrame:
        """See `RunAnalysis.nodes`; raises `StudyError` if there are too many nodes for a page."""
        if self.result.num_nodes > MANY_NODES:
            raise StudyError(
                f"This needs all {self.result.num_nodes:,} nodes of the run, which is more than the viewer "
                "reads at once. Next: query the nodes with `chakrascope query`, or use `chakrascope summary "
                "--view slack`, `compare`, `graph` or `diagnose`."
            )
        return super().nodes

    @property
    def shows_measured(self) -> bool:
        """Whether the timeline shows measured times by default: for the replay of a captured job."""
        facts = self.workload.metadata
        is_as_captured = bool(facts.get("accounting")) and "scaled_from_ranks" not in facts
        return about_backend(self.info.backend).replays and is_as_captured

    def interval(self, *, measured: bool) -> tuple[int, int]:
        """Return the start and end of the step at measured or simulated times."""
        if not measured:
            return 0, self.result.makespan_ns
        ranks = self.result.columns("ranks")["rank"].tolist()
        starts, ends = zip(*(captured_interval(self.workload.metadata, rank) for rank in ranks), strict=True)
        return min(starts), max(ends)

    def rows(self, *, measured: bool, nested: bool, calls: bool = False) -> TimelineIndex:
        """Return the timeline index of measured or simulated times, optionally with nested rows.

        With *calls*, nested rows at measured times include the host calls.
        """
        calls = calls and measured and nested and bool(self.calls)
        key = f"rows {measured} {nested} {calls}"
        with self.lock_of(key):
            if key not in self._indices:
                self._indices[key] = self._index(measured=measured, nested=nested, calls=calls)
            return self._indices[key]

    def _index(self, *, measured: bool, nested: bool, calls: bool) -> TimelineIndex:
        ranks = self.result.columns("ranks")["rank"].tolist()
        # The index reads a rank's host calls when the rank is first shown.
        by_rank = self.result.num_nodes > MANY_NODES or calls
        frame_of: Callable[[int, Sequence[str]], pd.DataFrame] = self.coded_nodes_of
        if not by_rank:
            nodes = at_measured_times(self.nodes) if measured else self.nodes
            frame_of = lambda *_: nodes  # noqa: E731 - the frame of all ranks
        elif measured:
            frame_of = self._measured_nodes_of
        return TimelineIndex(
            frame_of,
            self._lane_facts,
            [[rank] for rank in ranks] if by_rank else [ranks],
            self.interval(measured=measured)[1],
            kinds=[str(kind) for kind in self.path.breakdown("kind")["key"]],
            nested=nested,
            calls_of=self.calls.of_rank if calls else None,
        )

    def _measured_nodes_of(self, rank: int, names: Sequence[str]) -> pd.DataFrame:
        columns = dict.fromkeys([*names, "kind", "type", "stream", "duration_ns", "measured_start_ns"])
        return at_measured_times(self.coded_nodes_of(rank, columns))

    def _lane_facts(self, ranks: Ints, node_ids: Ints) -> tuple[npt.NDArray[np.bool_], Ints]:
        facts = self.facts_of(ranks, node_ids, "type", "stream")
        return facts["type"] >= int(NodeType.COMM_SEND), facts["stream"]

    @property
    def has_few_ranks(self) -> bool:
        """Whether there are so few distinct ranks that the timeline nests rows by default."""
        return bool(self.standings["same_as"].nunique() <= _FEW_RANKS)


@dataclass(frozen=True)
class Surroundings:
    """Objects that the viewers of all studies on one server share.

    *workspace* has the studies, and *name* is the name of this viewer's study. Users may import traces from
    *import_from*. All studies share one cache of open runs, so that memory does not grow with their number.
    *replayed* are the folders of captured workloads that this server has replayed, or failed to.
    """

    name: str = ""
    workspace: Workspace | None = None
    import_from: Path | None = None
    open_runs: OrderedDict[tuple[Path, str], OpenRun] = field(default_factory=OrderedDict, repr=False)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    replayed: set[Path] = field(default_factory=set, repr=False)
    replaying: threading.Lock = field(default_factory=threading.Lock, repr=False)


class StudyView:
    """A study, its runs, and a cache of open runs, from which pages read everything."""

    def __init__(self, study: Study, near: Surroundings | None = None) -> None:
        self.study = study
        self.near = near or Surroundings()
        self._open = self.near.open_runs
        self._lock = self.near.lock
        self.shown = threading.Event()

    def runs(self) -> list[RunInfo]:
        """Return all runs of the study, the newest last."""
        return list(self.study.runs())

    def warm(self) -> None:
        """Read the default run and what its pages need, so that the first page opens at once.

        Data of further pages is read only after a page was :attr:`shown` and the browser has loaded its
        charts, or while no requests arrive. Errors of a damaged run are left to the page that opens it.
        """
        with contextlib.suppress(ChakrascopeError):
            default = self.resolve("")
            if default:
                run = self.open(default)
                run.collectives  # noqa: B018 - reading the cached property computes it
                if self.shown.wait(_NOBODY_COMES_S):
                    time.sleep(_FETCHED_S)
                rows = run.rows(measured=run.shows_measured, nested=run.has_few_ranks)
                rows.colours("kind")
                rows.prepare(run.result.columns("ranks")["rank"][:_FIRST_RANKS].tolist())
                run.check_columns()
                run.layers  # noqa: B018 - layers read every node, so what a page needs first comes before
                run.nodes  # noqa: B018 - raises an error if there are too many for the page with slack
                run.slack_ns  # noqa: B018

    def resolve(self, run_id: str) -> str:
        """Return *run_id*, or for "" the default run's id, which is "" without runs.

        An unknown id is returned as it is, so that opening it fails rather than showing another
        run.
        """
        if run_id:
            return run_id
        default = self.default_run()
        return default.id if default else ""

    def default_run(self) -> RunInfo | None:
        """Return the default run: a replay of the study's capture or, without a capture, the newest run.

        If the capture has no replay, it is replayed, as by commands, but once per server. If that
        fails, or the study is read-only, the newest run is the default.
        """
        default = self.study.default_run()
        captured = self.study.measured_workload()
        if captured is None or _is_replay_of(default, captured):
            return default
        with self.near.replaying:
            folder = self.study.workload_dir(captured)
            if folder not in self.near.replayed and os.access(self.study.path, os.W_OK):
                self.near.replayed.add(folder)
                with contextlib.suppress(ChakrascopeError):  # opening the workload reports it
                    self._replay(captured)
        return self.study.default_run()

    def _replay(self, captured: str) -> None:
        """Add a replay of the workload *captured* unless a command has done so."""
        if not _is_replay_of(self.study.default_run(), captured):
            experiment = prepare(self.study.workload_prefix(captured), "default", None, backend=REPLAY)
            self.study.add_run(experiment, get_backend(REPLAY).run(experiment), workload=captured)

    def annotate(self, run_id: str, label: str, note: str, tags: Sequence[str] = ()) -> None:
        """Set *label*, *note* and *tags* of a run; see `Study.annotate`."""
        info = self.study.annotate(run_id, label=label, note=note, tags=tags)
        with self._lock:
            if (self.study.path, run_id) in self._open:
                self._open[self.study.path, run_id].info = info

    def delete(self, run_id: str) -> None:
        """Delete a run, also from the cache of open runs."""
        self.study.delete_run(run_id)
        with self._lock:
            self._open.pop((self.study.path, run_id), None)

    def open(self, run_id: str) -> OpenRun:
        """Return the run *run_id* from the cache, or read it; raises `StudyError` if unknown."""
        run_id = str(run_id)  # a callback without a run may pass None
        key = (self.study.path, run_id)
        with self._lock:
            if key in self._open:
                self._open.move_to_end(key)
                return self._open[key]
            info = next((info for info in self.runs() if info.id == run_id), None)
            if info is None:
                raise StudyError(f"This study has no run '{run_id[:80]}'; choose one from the run selector.")
            self._open[key] = OpenRun(self, info, self.study.result(run_id), self.study.run_workload(run_id))
            self._forget()
            return self._open[key]

    def studies(self) -> dict[str, Study]:
        """Return all studies of the server by name, this view's first, under the name ""."""
        workspace = self.near.workspace
        others = {} if workspace is None else workspace.studies()
        return {"": self.study} | {name: study for name, study in others.items() if name != self.near.name}

    def elsewhere(self, name: str) -> StudyView:
        """Return the view of the study *name*, a key of :meth:`studies`; "" means this one."""
        if not name:
            return self
        found = self.studies().get(name)
        if found is None:
            raise StudyError(f"No study '{name[:80]}' is served here; choose one from the list.")
        return StudyView(found, replace(self.near, name=name))

    def captures(self) -> list[str]:
        """Return the names of the converted captures, the oldest first."""
        converted = set(self.study.workloads())
        return [name for name in self.study.trace_sets() if name in converted]

    def open_capture(self, name: str) -> OpenRun:
        """Return the converted step of the capture *name*, at its measured times, like a run."""
        if name not in self.captures():
            raise StudyError(f"This study has no converted capture '{name[:80]}'; choose one from the list.")
        # Unlike a run, a workload may be replaced under its name, so the key has the folder's time.
        key = (self.study.path, f"{name} {self.study.workload_dir(name).stat().st_mtime_ns}")
        with self._lock:
            known = self._open.get(key)
            if known is not None:
                self._open.move_to_end(key)
                return known
        workload = self.study.workload(name)
        result = measured_result(workload)
        info = RunInfo(
            name, REPLAY, "", result.makespan_ns, "", f"{name}, as measured", name, workload.num_ranks
        )
        made = OpenRun(self, info, result, workload)
        with self._lock:
            self._open[key] = made
            self._forget()
        return made

    def _forget(self) -> None:
        """Evict the least recently used runs from the cache."""
        while len(self._open) > _OPEN_RUNS:
            self._open.popitem(last=False)


def _is_replay_of(run: RunInfo | None, workload: str) -> bool:
    return run is not None and run.backend == REPLAY and run.workload == workload


def _cut(name: str, value: str) -> str:
    return value[: _LONG_OPTIONS.get(name, _OPTION_LENGTH)]


def _natural(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else -1
