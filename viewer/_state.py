"""Store the state of the pages: the selection, which the address contains, and a cache of open runs."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode

import numpy as np
import numpy.typing as npt

from ..converter import NodeType, Workload
from ..errors import ChakrascopeError, StudyError
from ..runner import REPLAY, Result, RunInfo, Study, Workspace, get_backend, prepare
from ..runner.analysis import RunAnalysis, measured_result
from .timeline import TimelineIndex

# Settings that pages store in the address, by page.
# Compare: against, why. Critical path: by, change, times. Graph: edges, fold, hops, open.
# Runs: find. Import: item. New run: setup. Query: sql. Stragglers: step. Diff: before, after, starts.
# Sweep: sweep, over, aim, pareto. Timeline: t0 and t1 (ns), rows, colour, order, ranks, same, empty,
# pinned, hidden, seek, measured, `beside`, align.
OPTIONS = (
    "after",
    "against",
    "aim",
    "before",
    "align",
    "beside",
    "by",
    "change",
    "colour",
    "edges",
    "empty",
    "find",
    "fold",
    "hidden",
    "hops",
    "item",
    "measured",
    "order",
    "open",
    "over",
    "pareto",
    "pinned",
    "ranks",
    "rows",
    "same",
    "seek",
    "setup",
    "sql",
    "starts",
    "step",
    "sweep",
    "t0",
    "t1",
    "times",
    "why",
)
_OPTION_LENGTH = 200
_LONG_OPTIONS = {"aim": 1_200, "over": 2_000, "setup": 6_000, "sql": 4_000}
_OPEN_RUNS, _FEW_RANKS, _FIRST_RANKS = 4, 4, 16
_NOBODY_COMES_S, _FETCHED_S = 30.0, 3.0

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Selection:
    """Selection of a run and optionally of one node of one rank, which the page's address contains.

    *options* are settings of individual pages, such as the property by which a page breaks down times, as
    (name, value) pairs.
    """

    run: str = ""
    rank: int = -1
    node: int = -1
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, search: str | None) -> Selection:
        """Return the selection that a query string contains; malformed parts of the string are ignored."""
        query = parse_qs((search or "").lstrip("?"))
        return cls(
            run=query.get("run", [""])[0],
            rank=_natural(query.get("rank", [""])[0]),
            node=_natural(query.get("node", [""])[0]),
            options=tuple((name, _cut(name, query[name][0])) for name in OPTIONS if name in query),
        )

    @property
    def search(self) -> str:
        """Query string of the selection, which :meth:`parse` reads back."""
        fields: dict[str, Any] = {"run": self.run} if self.run else {}
        if self.has_node:
            fields |= {"rank": self.rank, "node": self.node}
        fields |= dict(self.options)
        return f"?{urlencode(fields)}" if fields else ""

    @property
    def has_node(self) -> bool:
        """Whether the selection contains a node."""
        return self.rank >= 0 and self.node >= 0

    def option(self, name: str, default: str = "") -> str:
        """Return the value of the page setting *name*, one of :data:`OPTIONS`, or *default* if unset."""
        return dict(self.options).get(name, default)

    def with_node(self, rank: int, node: int) -> Selection:
        """Return a copy of this selection with the node *node* of *rank* in place of the selected node."""
        return replace(self, rank=int(rank), node=int(node))

    def with_run(self, run: str) -> Selection:
        """Return a copy of this selection with the run *run* in place of the selected run."""
        return replace(self, run=run)

    def with_option(self, name: str, value: str) -> Selection:
        """Return a copy of this selection in which the setting *name* is *value*, or missing if empty."""
        settings = dict(self.options) | {name: _cut(name, value)}
        return replace(self, options=tuple((key, settings[key]) for key in OPTIONS if settings.get(key)))


class OpenRun(RunAnalysis):
    """Open run with the analyses and the timeline indices that pages need."""

    def __init__(self, view: StudyView, info: RunInfo, result: Result, workload: Workload) -> None:
        super().__init__(view.study, info, result, workload)
        self.view = view
        self._indices: dict[str, TimelineIndex] = {}

    @property
    def _path_kinds(self) -> list[str]:
        """Kinds of work that occur on the run's critical path."""
        return [str(kind) for kind in self.path.breakdown("kind")["key"]]

    def rows(self, *, measured: bool, nested: bool) -> TimelineIndex:
        """Return the timeline index of the run; *measured* adds captured lanes, *nested* adds nested rows."""
        key = f"rows {measured} {nested}"
        with self.lock_of(key):
            if key not in self._indices:
                self._indices[key] = self._index(measured=measured, nested=nested)
            return self._indices[key]

    def _index(self, *, measured: bool, nested: bool) -> TimelineIndex:
        ranks = self.result.columns("ranks")["rank"].tolist()
        # The index reads the host calls of a rank when the timeline first shows the rank.
        calls_of = self.calls.of_rank if measured and nested and self.calls else None
        by_rank = self.is_large or calls_of is not None
        return TimelineIndex(
            self.coded_nodes_of if by_rank else lambda *_: self.nodes,
            self._lane_facts,
            [[rank] for rank in ranks] if by_rank else [ranks],
            self.result.makespan_ns,
            kinds=self._path_kinds,
            measured=measured,
            nested=nested,
            calls_of=calls_of,
            words=None if by_rank else lambda: self.words,
        )

    def _lane_facts(self, ranks: Ints, node_ids: Ints) -> tuple[npt.NDArray[np.bool_], Ints]:
        facts = self.facts_of(ranks, node_ids, "type", "stream")
        return facts["type"] >= int(NodeType.COMM_SEND), facts["stream"]

    @property
    def has_few_ranks(self) -> bool:
        """Whether the run has so few different ranks that the timeline nests its rows by default."""
        return bool(self.standings["same_as"].nunique() <= _FEW_RANKS)


@dataclass(frozen=True)
class Surroundings:
    """Objects that the viewers of all studies on one server share.

    *workspace* contains the studies, and *name* is the name of the viewer's study in the workspace.
    *import_from* is the folder from which users may import traces. All studies share one cache of open runs,
    so that memory does not grow with the number of studies. *replayed* holds the folders of captured
    workloads that this server has replayed or failed to replay.
    """

    name: str = ""
    workspace: Workspace | None = None
    import_from: Path | None = None
    open_runs: OrderedDict[tuple[Path, str], OpenRun] = field(default_factory=OrderedDict, repr=False)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    replayed: set[Path] = field(default_factory=set, repr=False)
    replaying: threading.Lock = field(default_factory=threading.Lock, repr=False)


class StudyView:
    """Study with a list of its runs and a cache of open runs, from which pages read all data."""

    def __init__(self, study: Study, near: Surroundings | None = None) -> None:
        self.study = study
        self.near = near or Surroundings()
        self._open = self.near.open_runs
        self._lock = self.near.lock
        self.shown = threading.Event()

    def runs(self) -> list[RunInfo]:
        """Return the descriptions of all runs in the study; the newest run is last."""
        return list(self.study.runs())

    def warm(self) -> None:
        """Read the default run and the data of its pages, so that the first page opens at once.

        To not delay the first page, this method reads the data of later pages only after a page was
        :attr:`shown` and the browser has fetched the page's charts, or after a time without requests. The
        method ignores the errors of a damaged run, which the page that opens the run reports.
        """
        with contextlib.suppress(ChakrascopeError):
            default = self.resolve("")
            if default:
                run = self.open(default)
                run.collectives  # noqa: B018 - reading the cached property computes it
                if not run.is_large:
                    run.layers  # noqa: B018
                if self.shown.wait(_NOBODY_COMES_S):
                    time.sleep(_FETCHED_S)
                rows = run.rows(measured=False, nested=run.has_few_ranks)
                rows.colours("kind")
                if run.is_large:
                    rows.prepare(run.result.columns("ranks")["rank"][:_FIRST_RANKS].tolist())
                    run.check_columns()
                    run.layers  # noqa: B018 - computed last, because layers read every node
                else:
                    run.slack_ns  # noqa: B018

    def resolve(self, run_id: str) -> str:
        """Return *run_id*, or for "" the id of the default run, which is "" if the study has no run.

        An unknown id is returned unchanged, so that opening the unknown run fails instead of showing another
        run.
        """
        if run_id:
            return run_id
        default = self.default_run()
        return default.id if default else ""

    def default_run(self) -> RunInfo | None:
        """Return the study's default run: a replay of its capture, or the newest run without a capture.

        If the capture has no replay, this method replays the capture, as commands also do, but only once per
        server. If the replay fails, or the study is read-only, the newest run is the default.
        """
        default = self.study.default_run()
        captured = self.study.measured_workload()
        if captured is None or _is_replay_of(default, captured):
            return default
        with self.near.replaying:
            folder = self.study.workload_dir(captured)
            if folder not in self.near.replayed and os.access(self.study.path, os.W_OK):
                self.near.replayed.add(folder)
                with contextlib.suppress(ChakrascopeError):  # opening the workload reports the error
                    self._replay(captured)
        return self.study.default_run()

    def _replay(self, captured: str) -> None:
        """Add a replay of the workload *captured* to the study, unless a command has already done so."""
        if not _is_replay_of(self.study.default_run(), captured):
            experiment = prepare(self.study.workload_prefix(captured), "default", None, backend=REPLAY)
            self.study.add_run(experiment, get_backend(REPLAY).run(experiment), workload=captured)

    def annotate(self, run_id: str, label: str, note: str, tags: Sequence[str] = ()) -> None:
        """Store the *label*, the *note* and the *tags* of a run; see `Study.annotate`."""
        info = self.study.annotate(run_id, label=label, note=note, tags=tags)
        with self._lock:
            if (self.study.path, run_id) in self._open:
                self._open[self.study.path, run_id].info = info

    def delete(self, run_id: str) -> None:
        """Delete a run from the study, and remove the run from the cache of open runs."""
        self.study.delete_run(run_id)
        with self._lock:
            self._open.pop((self.study.path, run_id), None)

    def open(self, run_id: str) -> OpenRun:
        """Return the open run *run_id* from the cache, or read the run; raises `StudyError` if unknown."""
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
        """Return all studies on the server by name; this view's study is first, under the name ""."""
        workspace = self.near.workspace
        others = {} if workspace is None else workspace.studies()
        return {"": self.study} | {name: study for name, study in others.items() if name != self.near.name}

    def elsewhere(self, name: str) -> StudyView:
        """Return the view of the study *name*, a key of :meth:`studies`; the name "" means this view."""
        if not name:
            return self
        found = self.studies().get(name)
        if found is None:
            raise StudyError(f"No study '{name[:80]}' is served here; choose one from the list.")
        return StudyView(found, replace(self.near, name=name))

    def captures(self) -> list[str]:
        """Return the names of the converted captures, the oldest capture first."""
        converted = set(self.study.workloads())
        return [name for name in self.study.trace_sets() if name in converted]

    def open_capture(self, name: str) -> OpenRun:
        """Return the converted step of the capture *name*, with its measured times, as if it were a run."""
        if name not in self.captures():
            raise StudyError(f"This study has no converted capture '{name[:80]}'; choose one from the list.")
        # Unlike a run, a workload may be replaced by another workload of the same name, so the key contains
        # the folder's time.
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
        """Evict the least recently used runs from the cache of open runs."""
        while len(self._open) > _OPEN_RUNS:
            self._open.popitem(last=False)


def _is_replay_of(run: RunInfo | None, workload: str) -> bool:
    return run is not None and run.backend == REPLAY and run.workload == workload


def _cut(name: str, value: str) -> str:
    return value[: _LONG_OPTIONS.get(name, _OPTION_LENGTH)]


def _natural(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else -1
