"""Represent the unrecorded ranks of a job by equal recorded ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...converter.building import MAX_PROGRAMS, groups_like
from ...converter.chakra import MESSAGES, Graph, NodeType, Workload
from ...errors import TraceError

_COMMUNICATIONS = (NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV)
_ENDS = ("comm_src", "comm_dst")
_PLACE = "the script"
_SMALLER = "Predict a job of at most 64 ranks, with --all-ranks."


@dataclass(frozen=True)
class Role:
    """The program of a recorded rank: *graph*, whose column ``group`` counts *groups* from 1."""

    graph: Graph
    groups: tuple[tuple[int, ...], ...]

    def same_as(self, other: Role) -> bool:
        """Return whether both have the same communication, in the same order, with the same ranks."""
        return self._traffic() == other._traffic()

    def _traffic(self) -> list[tuple[object, ...]]:
        nodes = self.graph.node_columns
        rows = np.flatnonzero(np.isin(nodes["type"], _COMMUNICATIONS))
        names = ("type", "comm_type", "comm_size_bytes", *_ENDS)
        columns = [nodes[name][rows].tolist() for name in names]
        members = [self.groups[group - 1] if group else () for group in nodes["group"][rows].tolist()]
        return [*zip(*columns, members, strict=True)]

    def has_peers(self) -> bool:
        """Return whether it sends or receives messages."""
        return bool(np.isin(self.graph.node_columns["type"], MESSAGES).any())

    def peer_groups(self) -> set[tuple[int, ...]]:
        """Return the ranks of the groups in which it exchanges messages; () is all ranks."""
        nodes = self.graph.node_columns
        used = np.unique(nodes["group"][np.isin(nodes["type"], MESSAGES)]).tolist()
        return {self.groups[group - 1] if group else () for group in used}


def cast(roles: Mapping[int, Role], made_groups: Sequence[Sequence[int]], world: int) -> Workload:
    """Return the workload of *world* ranks, each with the program of one of the recorded *roles* (by rank).

    Every rank with which rank 0 exchanges messages (the stages of a pipeline) must be recorded. A rank at
    the same position of another such group has the same program, in the corresponding groups. *made_groups*
    are all groups of the script in order of creation. Raises `TraceError` if the recorded ranks cannot
    represent the others, or one of them has a different program.
    """
    missing = sorted(set(range(world)) - set(roles))
    stages = _stages(roles, world) if missing else ()
    if not missing:
        actors = dict(roles)
    else:
        replicas = _Replicas(made_groups, world)
        actors = {
            rank: _moved(roles[stages[at]], stages, line, at, replicas)
            for line in replicas.lines(stages)
            for at, rank in enumerate(line)
        }
        _check(actors, roles)
    assumptions = []
    if missing:
        named = ", ".join(map(str, sorted(roles)[:8])) + (", ..." if len(roles) > 8 else "")
        assumptions.append(f"ranks {named} were run, and the others do the same as those in their place")
    return _workload(actors, world, assumptions)


def _stages(roles: Mapping[int, Role], world: int) -> tuple[int, ...]:
    """Return the ranks that must be recorded: rank 0, and those with which it exchanges messages."""
    groups = roles[0].peer_groups()
    if not groups:
        if any(role.has_peers() for role in roles.values()):
            raise TraceError(
                f"rank 0 of the script exchanges no messages with single ranks, but others do: it cannot "
                f"represent them. {_SMALLER}"
            )
        return (0,)
    if len(groups) > 1:
        raise TraceError(
            "rank 0 of the script exchanges messages with single ranks in several groups (pipeline and ring "
            f"attention, say), so equal ranks are unknown. {_SMALLER}"
        )
    stages = groups.pop() or tuple(range(world))
    lacking = [rank for rank in stages if rank not in roles]
    if lacking:
        raise TraceError(
            f"rank {lacking[0]} of the script was not recorded, and rank 0 exchanges messages in a group "
            "with it. Record it, too."
        )
    return stages


class _Replicas:
    """Maps groups of one rank to corresponding groups of another, which were created together."""

    def __init__(self, made_groups: Sequence[Sequence[int]], world: int) -> None:
        self._made = made_groups
        self.world = world
        self._of_rank: dict[tuple[int, ...], dict[int, tuple[int, ...]]] = {}

    def lines(self, stages: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the groups that correspond to *stages*; together they contain all ranks."""
        if len(stages) == 1:
            return [(rank,) for rank in range(self.world)]
        if len(stages) == self.world:
            return [stages]
        return groups_like(stages, self._made, self.world, _PLACE)

    def group_of(self, rank: int, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """Return the group with *rank* that was created together with that of *ranks*."""
        if ranks not in self._of_rank:
            alike = groups_like(ranks, self._made, self.world, _PLACE)
            self._of_rank[ranks] = {member: group for group in alike for member in group}
        return self._of_rank[ranks][rank]


def _moved(role: Role, stages: tuple[int, ...], line: tuple[int, ...], at: int, replicas: _Replicas) -> Role:
    """Return the program of the rank at position *at* of *line*: *role*, at the same position of *stages*."""
    rank = line[at]
    if line == stages:
        return role
    groups = tuple(replicas.group_of(rank, ranks) for ranks in role.groups)
    graph = role.graph.as_rank(rank)
    if role.has_peers():
        table = np.arange(replicas.world, dtype=np.int64)
        table[list(stages)] = line
        nodes = graph.node_columns
        ends = {name: np.where(nodes[name] >= 0, table[nodes[name]], -1) for name in _ENDS}
        graph = graph.with_columns(**ends)
    return Role(graph, groups)


def _check(actors: Mapping[int, Role], roles: Mapping[int, Role]) -> None:
    for rank, role in roles.items():
        if not role.same_as(actors[rank]):
            raise TraceError(
                f"rank {rank} of the script communicates differently from the rank that would represent it, "
                f"so the recorded ranks do not determine the others. {_SMALLER}"
            )


def _workload(actors: Mapping[int, Role], world: int, assumptions: list[str]) -> Workload:
    """Assign numbers to all groups, and store one graph for ranks with equal programs."""
    used = sorted({group for role in actors.values() for group in role.groups})
    numbers = {group: number for number, group in enumerate(used, start=1)}
    programs: dict[tuple[object, ...], int] = {}
    graphs: list[Graph] = []
    program_of_rank = np.empty(world, dtype=np.int32)
    for rank in range(world):
        role = actors[rank]
        own = tuple(numbers[group] for group in role.groups)
        nodes = role.graph.node_columns
        ends = (rank,) if role.has_peers() else ()
        key = (id(nodes["num_ops"]), own, ends)
        if key not in programs:
            programs[key] = len(graphs)
            table = np.array([0, *own], dtype=np.int64)
            graphs.append(role.graph.as_rank(rank).with_columns(group=table[nodes["group"]]))
        program_of_rank[rank] = programs[key]
        if len(graphs) > MAX_PROGRAMS:
            raise TraceError(
                f"The script's {world} ranks need more distinct graphs than the limit of {MAX_PROGRAMS}. "
                "Predict a smaller job."
            )
    groups = {number: group for group, number in numbers.items()}
    return Workload(tuple(graphs), program_of_rank, groups, {"assumptions": assumptions})
