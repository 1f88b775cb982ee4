"""One run of a study with all its analyses."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from ...converter import NODE_COLUMNS, NodeType, Workload
from ...converter.building import measured_group_sizes
from ...errors import ChakrascopeError, StudyError
from ...support.table import CodedColumns, Columns, Ints, Table, TextColumn, frame_of
from .._memory import check_table
from .._result import Result
from .._traits import about_backend
from ..study import RunInfo, Study
from ._advised import Advice, Advised, advice_table
from ._collectives import overview_columns
from ._critical_path import CriticalPath
from ._equal_ranks import with_replicas_folded
from ._foreign_times import measured_ranks
from ._path_facts import NodeFacts, RankReader, edges_of_rank, facts_of_nodes, program_of_rank
from ._path_walk import measured_waits
from ._summary import Summary, deviates, summarize

if TYPE_CHECKING:
    import pandas as pd

    from .._experiment import Experiment
    from ..programs import Demand, Program
    from ._advice import Simulate
    from ._host_calls import CapturedCalls
    from ._rank_table import SlowestRank
    from ._search import Words
    from ._what_if import Target
    from .diagnosis import Diagnosis

_SEARCHED_NODES = 2_000_000
_KEPT_RANKS = 6
_LINKS, _EDGES, _CONTRIBUTORS = 5, 12, 40  # maximum numbers of what-if targets
Value = TypeVar("Value")


class ComputedOnce(Generic[Value]):
    """A cached property, computed at first use by one thread while others wait."""

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Value:
        # Python calls this only until the value is an instance attribute. Each property has its own
        # lock, so that a slow one does not block others.
        with vars(instance).setdefault("_locks", {}).setdefault(self._name, threading.RLock()):
            if self._name not in vars(instance):
                vars(instance)[self._name] = self._compute(instance)
            value: Value = vars(instance)[self._name]
            return value


class RunAnalysis:
    """One run with all its analyses, each computed at first use.

    Runs never change; only the label and note in *info* may be stale.
    """

    def __init__(self, study: Study, info: RunInfo, result: Result, workload: Workload) -> None:
        self.study = study
        self.info = info
        self.result = with_replicas_folded(result, workload)
        self.workload = workload
        self._locks: dict[str, threading.RLock] = {}
        self._ranks_kept: OrderedDict[int, pd.DataFrame] = OrderedDict()
        self._searched: tuple[list[int], pd.DataFrame, Words] | None = None

    def lock_of(self, name: str) -> threading.RLock:
        """Return the lock that guards the analysis *name*."""
        return self._locks.setdefault(name, threading.RLock())

    def nodes_of(self, rank: int) -> pd.DataFrame:
        """Return the rows of :attr:`nodes` for *rank*, reading only this rank; recent ranks are cached."""
        with self.lock_of("nodes_of"):
            if rank in self._ranks_kept:
                self._ranks_kept.move_to_end(rank)
            elif 0 <= rank < self.workload.num_ranks:
                self._ranks_kept[rank] = self._by_rank.nodes(rank)
            else:
                none: pd.DataFrame = self._by_rank.nodes(0).iloc[:0]
                return none
            while len(self._ranks_kept) > _KEPT_RANKS:
                self._ranks_kept.popitem(last=False)
            return self._ranks_kept[rank]

    @ComputedOnce
    def nodes(self) -> pd.DataFrame:
        """Return every executed node: its interval, its causes, and its columns from the workload."""
        check_table(self.result.num_nodes)
        described = self.workload.node_table()
        nodes, keys = self.result.nodes, ["rank", "node_id"]
        joined: pd.DataFrame
        alike = nodes.index.equals(described.index)
        if alike and all(np.array_equal(nodes[key], described[key]) for key in keys):
            # Engines write nodes in order of rank and id. A merge of millions of rows would take
            # twice the time and memory.
            beside = {str(name): described[name] for name in described if name not in keys}
            joined = nodes.assign(**beside)
        else:
            joined = nodes.merge(described, on=keys, how="left", validate="1:1")
        return joined

    @ComputedOnce
    def _by_rank(self) -> RankReader:
        return RankReader(self.result, self.workload)

    def coded_nodes_of(self, rank: int, names: Iterable[str]) -> pd.DataFrame:
        """Return the columns *names* of the nodes of *rank*, with texts as categories, uncached."""
        return self._by_rank.nodes(rank, names, coded=True)

    def edges_of(self, rank: int) -> pd.DataFrame:
        """Return the edges of the program of *rank*."""
        return edges_of_rank(self.workload, rank)

    @ComputedOnce
    def calls(self) -> CapturedCalls:
        """Return the host calls of the captured step, which are falsy if the study lacks the traces."""
        from ._host_calls import CapturedCalls  # noqa: PLC0415 - few analyses need the traces

        return CapturedCalls(self.study, self.workload)

    def program_of(self, rank: int) -> pd.DataFrame:
        """Return the program of *rank*: a row per node."""
        return program_of_rank(self.workload, rank)

    def facts_of(self, ranks: Ints, node_ids: Ints, *names: str) -> Columns:
        """Return the workload's number columns *names* for the given nodes."""
        facts = NodeFacts(self.workload, ranks, node_ids)
        return {name: facts.numbers(name) for name in names}

    @property
    def arrivals(self) -> pd.DataFrame:
        """Return the arrival of each rank at each collective (see `collective_arrivals`)."""
        from ._collectives import collective_arrivals  # noqa: PLC0415 - few analyses need arrivals

        calls = self.result.collectives[["rank", "node_id"]]
        return collective_arrivals(self.result, facts_of_nodes(self.workload, calls, "module"))

    def trace(self, ranks: Iterable[int] | None = None, *, measured: bool = False) -> Iterator[str]:
        """Yield pieces of the run, or of *ranks*, as a Chrome trace, reading rank by rank.

        Times are simulated or *measured*.
        """
        from . import _lanes  # noqa: PLC0415 - few analyses need traces

        every = self.result.columns("ranks")["rank"].tolist() if ranks is None else ranks
        frames: Iterable[pd.DataFrame] = (self._by_rank.nodes(rank) for rank in every)
        path = self.path.segments
        if measured:
            frames, path = (
                map(_lanes.at_measured_times, frames),
                _lanes.path_at_measured_times(self.workload, path),
            )
        return _lanes.chrome_trace(((nodes, _lanes.Lanes(nodes)) for nodes in frames), path)

    @ComputedOnce
    def summary(self) -> Summary:
        """Return the summary: what bounds the step, advice, and qualifiers."""
        return summarize(self.result, self.workload, self.path, self._advised)

    @ComputedOnce
    def deviation(self) -> str:
        """Describe how the simulated step deviates from the measured one; "" for at most 10 %."""
        if not deviates(self.result, self.workload):
            return ""
        # A replay has the workload's times, which may exclude the profiler's overhead.
        from ._differences import deviation_text  # noqa: PLC0415 - few runs deviate

        return deviation_text(self.result, self.workload, self.collectives)

    @property
    def _simulate(self) -> Simulate | None:
        from ._advice import replays_of  # noqa: PLC0415 - takes long to import

        return replays_of(self.result, self.workload, self.experiment)

    @ComputedOnce
    def _advised(self) -> Advised:
        """Return the advice, cached in a file of the run because it needs replays."""
        from ._disk_cache import cached_advice  # noqa: PLC0415 - few analyses need the cache

        def make() -> Advised:
            from ._advice import advise, link_bytes_per_ns  # noqa: PLC0415 - takes long to import

            messages = self._messages()
            return advise(
                self.path,
                self.result,
                self.workload,
                self._overview,
                link_bytes_per_ns=link_bytes_per_ns(self._own_network()),
                messages=None if messages is None else Table.of(messages).columns(),
                simulate=self._simulate,
            )

        return cached_advice(self.study.cache_file(self.info.id, "advice.json"), self._made_of, make)

    @property
    def _made_of(self) -> list[Path]:
        return [self.study.run_file(self.info.id), *self.study.workload_files(self.info.workload)]

    @ComputedOnce
    def path(self) -> CriticalPath:
        """Return the critical path, cached in a file."""
        from ._disk_cache import cached_path  # noqa: PLC0415 - few analyses need the cache

        file = self.study.cache_file(self.info.id, "critical-path.parquet")
        return cached_path(file, self._made_of, self.result, self.workload)

    def answer(self) -> dict[str, Any]:
        """Return the summary as plain JSON, with the deviation, the captured steps and the clocks."""
        from ...converter.checks import step_kinds, step_rows  # noqa: PLC0415 - few analyses need steps

        steps = step_rows(self.workload)
        return self.summary.to_json() | {
            "deviation": self.deviation,
            "steps": steps,
            "steps_by_kind": step_kinds(steps),
            "clocks": self.clocks,
            "measured_ranks": self.measured,
        }

    @property
    def measured(self) -> int:
        """The number of ranks with a measured step; 0 if it is unknown."""
        return len(self.workload.metadata.get("measured_step_ns", ()))

    @ComputedOnce
    def clocks(self) -> str:
        """Describe how the clocks of a measured run were aligned; "" for one rank, and for simulations."""
        sync, _ = measured_waits(self.result, self.workload)
        return "" if sync is None else sync.clocks

    def breakdown(self, by: str) -> pd.DataFrame:
        """Split the critical path *by* one of :data:`RUN_BREAKDOWNS` (see `CriticalPath.breakdown`).

        A breakdown by link is empty if :func:`why_no_links` gives a reason.
        """
        from ._path_tables import link_breakdown, network_breakdown  # noqa: PLC0415 - few breakdowns use it

        if by == "network":
            network = self.result.provenance.get("network", {})
            return network_breakdown(self.path, self.workload, network)
        if by == "link":
            return link_breakdown(self.result, self.path, self.workload)
        return self.path.breakdown(by)

    def check_columns(self) -> None:
        """Check the workload's columns now, so that no later reader of a column has to wait."""
        nothing = np.zeros(0, np.int64)
        for graph in self.workload.graphs[:1]:
            for name in NODE_COLUMNS:
                graph.column_rows(name, nothing)
            for name in graph.edge_columns:
                graph.edge_columns[name]

    @ComputedOnce
    def collectives(self) -> pd.DataFrame:
        """Return a row per collective (see :func:`collective_overview`)."""
        return frame_of(self._overview)

    @ComputedOnce
    def _overview(self) -> CodedColumns:
        def make() -> CodedColumns:
            def modules_of(ranks: Ints, node_ids: Ints) -> TextColumn:
                return NodeFacts(self.workload, ranks, node_ids).texts("module")

            sizes = measured_group_sizes(self.workload.metadata)
            return overview_columns(self.result, self.path, modules_of, sizes)

        return self._columns("collectives.parquet", make)

    def _columns(self, name: str, make: Callable[[], CodedColumns]) -> CodedColumns:
        """Return the columns from *make*, cached in the file *name*."""
        from ._disk_cache import cached_table  # noqa: PLC0415 - few analyses need the cache

        return cached_table(self.study.cache_file(self.info.id, name), self._made_of, make)

    @property
    def advice(self) -> pd.DataFrame:
        """Return the advice as a table (see :func:`advice_table`)."""
        return advice_table(self.advices())

    def advices(self) -> tuple[Advice, ...]:
        """Return the advice by gain: from replays, or as upper bounds if these would take too long."""
        return self._advised.advice

    def _own_network(self) -> Mapping[str, Any] | None:
        needs_network = about_backend(self.info.backend).network
        return self.result.provenance.get("network") if needs_network else {}

    def _messages(self) -> pd.DataFrame | None:
        """Return the sends and receives on the path (see `messages_on_path`); None if there are none."""
        pieces = self.path.columns
        # The names come from `describe_collectives`, so no column is read for a path without messages.
        if not pieces["collective"].passes(lambda text: text.startswith(("send of", "recv of"))).any():
            return None
        named = np.flatnonzero((pieces["collective"] != "") & (pieces["node_id"] >= 0))
        ranks, node_ids = (pieces[name][named].astype(np.int64) for name in ("rank", "node_id"))
        types = NodeFacts(self.workload, ranks, node_ids).numbers("type")
        if not np.isin(types, [NodeType.COMM_SEND, NodeType.COMM_RECV]).any():
            return None
        on_path = self.path.unreasoned.iloc[named][["rank", "node_id"]].drop_duplicates()
        messages = facts_of_nodes(self.workload, on_path, "type", "comm_size_bytes")
        from ._links import messages_on_path  # noqa: PLC0415 - imports all of networks

        return messages_on_path(messages, self.path)

    @property
    def is_measured(self) -> bool:
        """Whether the workload has measured times."""
        began = (np.asarray(graph.node_columns["measured_start_ns"]) for graph in self.workload.graphs)
        return any(bool((start_ns >= 0).any()) for start_ns in began)

    @ComputedOnce
    def elasticity(self) -> pd.DataFrame:
        """Return the gain if each large contributor were 10 % faster, each from a simulation."""
        return self.each_faster(1.1)

    def each_faster(self, times: float) -> pd.DataFrame:
        """Return the simulated step time with each large contributor alone *times* as fast."""
        from ._what_if import sensitivity  # noqa: PLC0415 - other analyses do not need the simulator

        chosen = self.faster_targets()
        return sensitivity(self.experiment(), self.result.makespan_ns, chosen, times)

    def faster_targets(self, count: int = 5) -> list[Target]:
        """Return what-if targets: the *count* largest contributors to the path, and the network."""
        from ._what_if import targets  # noqa: PLC0415 - other analyses do not need the simulator

        provenance = self.result.provenance
        machine = provenance.get("options", {}).get("machine", {})
        gpus = machine.get("scale_up", {}).get("gpus", 1)
        dimensions = len(provenance.get("network", {}).get("topology", []))
        nodes = -(-len(self.result.ranks) // gpus)
        return targets(self.path, self.info.backend, dimensions, count, nodes=nodes)

    def changes(self) -> list[Target]:
        """Return what-if targets: the largest contributors to the path, the network, and the busiest links.

        Of operators, modules and collectives, the 40 largest of each are included.
        """
        from ._what_if import Target  # noqa: PLC0415 - other analyses do not need the simulator

        targets = self.faster_targets(_CONTRIBUTORS)
        if any(target.what == "machine" for target in targets):
            return targets
        network = self.result.provenance.get("network", {})
        if network.get("links") or about_backend(self.info.backend).fabric:
            from ._links import link_table  # noqa: PLC0415 - imports all of networks

            busiest = link_table(self.result).drop_duplicates(["src", "dst"]).head(_LINKS)
            targets += [Target("link", f"{row['src']}-{row['dst']}") for row in busiest.to_dict("records")]
        return targets

    def drops(self, rank: int, node_id: int) -> list[Target]:
        """Return a what-if target per incoming edge of a node; none for an unknown node."""
        from ._what_if import Target  # noqa: PLC0415 - other analyses do not need the simulator

        if self.node(rank, node_id) is None:
            return []
        edges = self.edges_of(rank)
        sources = edges.loc[edges["dst"] == node_id, "src"].head(_EDGES)
        return [Target("edge", f"{rank}/{source}-{node_id}") for source in sources]

    @ComputedOnce
    def layers(self) -> pd.DataFrame:
        """Return the time of each module (see :func:`layer_table`)."""
        from ._layers import layer_table  # noqa: PLC0415

        def make() -> Columns:
            made = layer_table(self.result, self.workload, self.path)
            return Table.of(made.astype({"module": object})).columns()

        layers: pd.DataFrame = frame_of(self._columns("layers.parquet", make)).astype({"module": "str"})
        return layers

    @ComputedOnce
    def slowest_rank(self) -> SlowestRank | None:
        """Return the rank for which its peers wait longest (see `slowest_rank`)."""
        from ._rank_table import slowest_rank  # noqa: PLC0415

        return slowest_rank(self.result, self.workload, self._simulate)

    @ComputedOnce
    def diagnosis(self) -> Diagnosis:
        """Return the slow ranks, links and hosts, and how much time they add to the step."""
        from .diagnosis import diagnose  # noqa: PLC0415

        return diagnose(self.result, self.nodes)

    def searched(self, rank: int = -1) -> tuple[pd.DataFrame, Words]:
        """Return the nodes of a rank per program and their search index, cached for the last *rank*.

        *rank* represents its own program, and the lowest rank represents every other program. Beyond
        `_SEARCHED_NODES` nodes, further programs are left out.
        """
        import pandas as pd  # noqa: PLC0415

        from ._search import SEARCHED, Words, one_of_each  # noqa: PLC0415

        with self.lock_of("searched"):
            chosen = one_of_each(self.workload.program_of_rank, rank)
            if self._searched is None or self._searched[0] != chosen:
                parts = [self._by_rank.nodes(chosen[0], SEARCHED)]
                for other in chosen[1:]:
                    if sum(map(len, parts)) >= _SEARCHED_NODES:
                        break
                    parts.append(self._by_rank.nodes(other, SEARCHED))
                nodes = pd.concat(parts, ignore_index=True)
                self._searched = chosen, nodes, Words.of(nodes)
            return self._searched[1:]

    @ComputedOnce
    def standings(self) -> pd.DataFrame:
        """Return each rank's finish and wait, and which ranks are equal (see `rank_standings`)."""
        from ._rank_table import rank_standings  # noqa: PLC0415

        return rank_standings(self.result, self.workload)

    @ComputedOnce
    def slack_ns(self) -> pd.Series:
        """Return the slack (ns) of each executed node; empty if the backend does not record enough."""
        import pandas as pd  # noqa: PLC0415

        from ._slack import slack  # noqa: PLC0415

        try:
            values: pd.Series = slack(self.result, self.workload)["slack_ns"]
        except ChakrascopeError:
            return pd.Series(dtype="int64")
        return values

    def experiment(self) -> Experiment:
        """Return the run's experiment, to simulate it again; not cached, because programs are large."""
        return self.study.experiment(self.info.id)

    @ComputedOnce
    def has_programs(self) -> bool:
        """Return whether the run's system has collective programs, from files or generated."""
        from ..config import program_files  # noqa: PLC0415 - most analyses do not need configurations

        return bool(program_files(self.study.run_configs(self.info.id)[1]))

    @ComputedOnce
    def programs(self) -> Mapping[Demand, Program]:
        """Return the program used for each collective type, group size and message size.

        The programs are read from the study's copies and verified again.
        """
        return self.experiment().programs.programs if self.has_programs else {}

    def node(self, rank: int, node_id: int) -> dict[str, Any] | None:
        """Return an executed node as a dict, or None if there is none."""
        nodes = self.nodes_of(rank)
        row = int(nodes["node_id"].searchsorted(node_id))
        if row == len(nodes) or nodes["node_id"].iloc[row] != node_id:
            return None
        return {str(key): value for key, value in nodes.iloc[row].items()}

    def row(self, rank: int, node_id: int) -> int:
        """Return a node's row in :attr:`nodes`, or -1 if there is none."""
        nodes = self.nodes
        rows = np.flatnonzero((nodes["rank"].to_numpy() == rank) & (nodes["node_id"].to_numpy() == node_id))
        return int(rows[0]) if len(rows) else -1

    def measured_among(self, rank: int, node_id: int) -> tuple[int, int]:
        """Return the number of measured ranks and the number of simulated ranks of a collective.

        Both numbers are 1 for a node that is not a collective.
        """
        calls = self.result.collectives
        own = calls.loc[(calls["rank"] == rank) & (calls["node_id"] == node_id), "collective"]
        if own.empty:
            return 1, 1
        members = calls.loc[calls["collective"] == own.iloc[0], "rank"]
        block = measured_ranks(self.workload)
        return int((members // block == rank // block).sum()), len(members)

    def slack_of(self, rank: int, node_id: int) -> int | None:
        """Return a node's slack in ns; None if it is unknown, or needs too many nodes."""
        try:
            row = self.row(rank, node_id)
        except StudyError:
            return None
        return int(self.slack_ns.iloc[row]) if 0 <= row < len(self.slack_ns) else None


def analyse_run(study: Study, run_id: str | None = None) -> RunAnalysis:
    """Return the analysis of the run *run_id* of *study* (default: the study's default run).

    Raises `StudyError` for an unknown run.
    """
    info = study.run_info(run_id)
    return RunAnalysis(study, info, study.result(info.id), study.run_workload(info.id))
