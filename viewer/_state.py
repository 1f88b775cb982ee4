"""The state of pages: the selection, which is stored in the address, and the open runs."""

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

# Settings in the address, by page. Compare: against, why. Critical path: by, change, times. Graph: edges,
# fold, hops, open. Runs: find. Import: item. New run: setup. Query: sql. Stragglers: step. Diff: before,
# after, starts. Sweep: sweep, over, aim, pareto. Timeline: t0 and t1 (ns), rows, colour, order, ranks, same,
# empty, pinned, hidden, seek, measured, `beside`, align.
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
    """The selection: a run and, if any, one node of one rank. It is stored in the page's address.

    *options* are the settings of single pages, such as the breakdown shown, as (name, value) pairs.
    """

    run: str = ""
    rank: int = -1
    node: int = -1
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, search: str | None) -> Selection:
        """Return the selection written in a query string; without missing or malformed parts."""
        query = parse_qs((search or "").lstrip("?"))
        return cls(
            run=query.get("run", [""])[0],
            rank=_natural(query.get("rank", [""])[0]),
            node=_natural(query.get("node", [""])[0]),
            options=tuple((name, _cut(name, query[name][0])) for name in OPTIONS if name in query),
        )

    @property
    def search(self) -> str:
        """The query string that :meth:`parse` reads back."""
        fields: dict[str, Any] = {"run": self.run} if self.run else {}
        if self.has_node:
            fields |= {"rank": self.rank, "node": self.node}
        fields |= dict(self.options)
        return f"?{urlencode(fields)}" if fields else ""

    @property
    def has_node(self) -> bool:
        """Whether one node of one rank is selected."""
        return self.rank >= 0 and self.node >= 0

    def option(self, name: str, default: str = "") -> str:
        """Return the setting *name* of a page, one of :data:`OPTIONS`."""
        return dict(self.options).get(name, default)

    def with_node(self, rank: int, node: int) -> Selection:
        """Return this selection moved to *node* of *rank*."""
        return replace(self, rank=int(rank), node=int(node))

    def with_run(self, run: str) -> Selection:
        """Return this selection moved to *run*."""
        return replace(self, run=run)

    def with_option(self, name: str, value: str) -> Selection:
        """Return this selection with the setting *name*, one of :data:`OPTIONS`, changed or left out."""
        settings = dict(self.options) | {name: _cut(name, value)}
        return replace(self, options=tuple((key, settings[key]) for key in OPTIONS if settings.get(key)))


class OpenRun(RunAnalysis):
    """An open run: its analyses, and its timeline for the pages."""

    def __init__(self, view: StudyView, info: RunInfo, result: Result, workload: Workload) -> None:
        super().__init__(view.study, info, result, workload)
        self.view = view
        self._indices: dict[str, TimelineIndex] = {}

    @property
    def _path_kinds(self) -> list[str]:
        """The kinds of work on the critical path."""
        return [str(kind) for kind in self.path.breakdown("kind")["key"]]

    def rows(self, *, measured: bool, nested: bool) -> TimelineIndex:
        """Return the timeline's index with the requested rows."""
        key = f"rows {measured} {nested}"
        with self.lock_of(key):
            if key not in self._indices:
                self._indices[key] = self._index(measured=measured, nested=nested)
            return self._indices[key]

    def _index(self, *, measured: bool, nested: bool) -> TimelineIndex:
        ranks = self.result.columns("ranks")["rank"].tolist()
        # Host calls are read when their rank becomes visible.
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
        """Whether few enough ranks differ for rows to be nested by default."""
        return bool(self.standings["same_as"].nunique() <= _FEW_RANKS)


@dataclass(frozen=True)
class Surroundings:
    """The state that the viewers of studies on one server share.

    *workspace* are these studies, in which this one is called *name*; *import_from* is the folder to
    import from. Open runs are cached for all studies together, so that memory does not grow with them.
    *replayed* are the folders of the captured workloads that this server has replayed, or tried to.
    """

    name: str = ""
    workspace: Workspace | None = None
    import_from: Path | None = None
    open_runs: OrderedDict[tuple[Path, str], OpenRun] = field(default_factory=OrderedDict, repr=False)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    replayed: set[Path] = field(default_factory=set, repr=False)
    replaying: threading.Lock = field(default_factory=threading.Lock, repr=False)


class StudyView:
    """A study for the pages: its list of runs, and a cache of open ones."""

    def __init__(self, study: Study, near: Surroundings | None = None) -> None:
        self.study = study
        self.near = near or Surroundings()
        self._open = self.near.open_runs
        self._lock = self.near.lock
        self.shown = threading.Event()

    def runs(self) -> list[RunInfo]:
        """Return the description of every run in the study, the newest last."""
        return list(self.study.runs())

    def warm(self) -> None:
        """Read the default run and the data of its pages, so that the first page opens at once.

        Data of later pages waits until a page was :attr:`shown` and its charts were fetched, or until
        there was no request for a while, so as not to delay the first page. Errors of a damaged run are
        left to the page that shows it.
        """
        with contextlib.suppress(ChakrascopeError):
            default = self.resolve("")
            if default:
                run = self.open(default)
                run.collectives  # noqa: B018 - asked for only to have them made, as below
                if not run.is_large:
                    run.layers  # noqa: B018
                if self.shown.wait(_NOBODY_COMES_S):
                    time.sleep(_FETCHED_S)
                rows = run.rows(measured=False, nested=run.has_few_ranks)
                rows.colours("kind")
                if run.is_large:
                    rows.prepare(run.result.columns("ranks")["rank"][:_FIRST_RANKS].tolist())
                    run.check_columns()
                    run.layers  # noqa: B018 - reads every node, so it comes last
                else:
                    run.slack_ns  # noqa: B018

    def resolve(self, run_id: str) -> str:
        """Return *run_id*; without one the study's default run, or "" if there is none.

        An unknown id is returned unchanged: opening it is an error, and no other run is shown.
        """
        if run_id:
            return run_id
        default = self.default_run()
        return default.id if default else ""

    def default_run(self) -> RunInfo | None:
        """Return the study's default run: the capture as measured, or without a capture the newest run.

        A capture without a replay is replayed first, once per server, as commands do. If the replay fails,
        or the study cannot be written to, the newest run is the default.
        """
        default = self.study.default_run()
        captured = self.study.measured_workload()
        if captured is None or _is_replay_of(default, captured):
            return default
        with self.near.replaying:
            folder = self.study.workload_dir(captured)
            if folder not in self.near.replayed and os.access(self.study.path, os.W_OK):
                self.near.replayed.add(folder)
                with contextlib.suppress(ChakrascopeError):  # reported when the workload is opened
                    self._replay(captured)
        return self.study.default_run()

    def _replay(self, captured: str) -> None:
        """Add the replay of the workload *captured* to the study, unless a command added it meanwhile."""
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
        """Delete a run, and remove it from the cache."""
        self.study.delete_run(run_id)
        with self._lock:
            self._open.pop((self.study.path, run_id), None)

    def open(self, run_id: str) -> OpenRun:
        """Return the run, from memory if it was used recently; only ids that the study lists are accepted."""
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
        """Return the studies served together by their names, this one first, as ""."""
        workspace = self.near.workspace
        others = {} if workspace is None else workspace.studies()
        return {"": self.study} | {name: study for name, study in others.items() if name != self.near.name}

    def elsewhere(self, name: str) -> StudyView:
        """Return another of :meth:`studies` for pages, without its private state."""
        if not name:
            return self
        found = self.studies().get(name)
        if found is None:
            raise StudyError(f"No study '{name[:80]}' is served here; choose one from the list.")
        return StudyView(found, replace(self.near, name=name))

    def captures(self) -> list[str]:
        """Return the converted captures, oldest first, which can be shown as measured."""
        converted = set(self.study.workloads())
        return [name for name in self.study.trace_sets() if name in converted]

    def open_capture(self, name: str) -> OpenRun:
        """Return one of :meth:`captures` as if it were a run: its converted step, as measured."""
        if name not in self.captures():
            raise StudyError(f"This study has no converted capture '{name[:80]}'; choose one from the list.")
        # Unlike a run, a workload may be replaced under its name.
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
        """Release the least recently used runs."""
        while len(self._open) > _OPEN_RUNS:
            self._open.popitem(last=False)


def _is_replay_of(run: RunInfo | None, workload: str) -> bool:
    return run is not None and run.backend == REPLAY and run.workload == workload


def _cut(name: str, value: str) -> str:
    return value[: _LONG_OPTIONS.get(name, _OPTION_LENGTH)]


def _natural(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else -1
