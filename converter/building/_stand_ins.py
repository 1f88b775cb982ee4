"""Describe a workload: its steps, device, and ranks without traces, which other ranks may replace."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ...errors import TraceError
from ...support import count_text
from ..chakra import (
    DEVICE_LANE,
    MESSAGES,
    Graph,
    NodeType,
    TextColumn,
    Workload,
    collective_kinds,
    have_messages,
    recognise,
)

if TYPE_CHECKING:  # not imported at run time, because the results need no traces
    from ._rank_graph import RankGraph

FROM_LOGS = "logs"
STAND_INS = "stand_ins"
# Metadata key: the replica whose program a rank without traces uses.
STAND_IN_OF = "stand_in_of"
# Metadata key: the script's names of process groups, by number.
GROUP_NAMES = "group_names"
# Metadata key: the reason for the choice of the step among several steps.
STEP_CHOICE = "step_choice"
UNMARKED = "no step is marked in the traces, so the whole recording counts as one step"
# Metadata key: the chip for which compute times were predicted.
COMPUTED_FOR = "computed_for"
_NAMED_AT_MOST = 8
MAX_PROGRAMS = 1024
_PEERS = {NodeType.COMM_SEND: "comm_dst", NodeType.COMM_RECV: "comm_src"}
_Groups = Mapping[int, tuple[int, ...]]


def has_lanes(metadata: Mapping[str, Any]) -> bool:
    """Return whether the streams of a workload are lanes, which run one node at a time."""
    return is_captured(metadata) or metadata.get("lanes") == "streams"


def is_captured(metadata: Mapping[str, Any]) -> bool:
    """Return whether a workload comes from measured traces."""
    inner = metadata.get("metadata", metadata)
    return isinstance(inner, Mapping) and any(key in inner for key in ("measured_step_ns", "trace_set"))


def captured_steps(metadata: Mapping[str, Any]) -> int:
    """Return the number of training steps in a workload with this *metadata*, or 1 by default."""
    steps = metadata.get("steps")
    return max(1, len(steps)) if isinstance(steps, list) else 1


def step_choice_text(metadata: Mapping[str, Any]) -> str:
    """Return a sentence on the step in *metadata* and why it was chosen, or "" if there was no choice."""
    steps, why = metadata.get("steps"), metadata.get(STEP_CHOICE)
    if not isinstance(steps, list) or len(steps) != 1 or not isinstance(why, str):
        return ""
    return f"Step {steps[0]} is shown: {why}."


def group_name(metadata: Mapping[str, Any], number: int) -> str:
    """Return the name of process group *number* in a workload's *metadata*, such as ``group 2 (dp)``."""
    if number == 0:
        return "all ranks"
    names = metadata.get(GROUP_NAMES)
    name = names.get(str(number), "") if isinstance(names, Mapping) else ""
    return f"group {number}" + (f" ({name})" if name and isinstance(name, str) else "")


def computed_on_host(workload: Workload) -> bool:
    """Return whether all computation of a captured *workload* ran on a CPU; False for production logs."""
    if FROM_LOGS in workload.metadata:
        return False
    return not any((graph.node_columns["stream"] >= DEVICE_LANE).any() for graph in workload.graphs)


def stand_ins_text(given: int, world_size: int, stated: Sequence[int]) -> str:
    """Return the assumption that the *given* ranks represent all *world_size* ranks of the job.

    *stated* are the ranks that the traces state (-1: unknown).
    """
    known = list(stated) if min(stated) >= 0 else list(range(given))
    renumbered = known != list(range(given))
    missing = np.setdiff1d(np.arange(world_size), known).tolist()
    # Shown numbers after the given ranks belong to ranks without traces, which repeat the given ranks in
    # turn.
    pairs = list(zip(itertools.cycle(known), missing, range(given, world_size), strict=False))
    texts = [
        f"rank {other} for rank {rank}" + (f", shown as rank {shown}" if renumbered else "")
        for other, rank, shown in pairs[:_NAMED_AT_MOST]
    ]
    named = ", ".join(map(str, missing[:_NAMED_AT_MOST])) if given == 1 else "; ".join(texts)
    more = len(missing) - _NAMED_AT_MOST
    others = f" ({', '.join(map(str, known))}, shown as ranks from 0)" if renumbered else ""
    return (
        f"the traces of {given:,} of {world_size:,} ranks were given{others}: they are repeated for the "
        f"others ({named}{f' and {more:,} more' if more > 0 else ''}), as if all ranks did the same work"
    )


def stand_in_of(metadata: Mapping[str, Any], rank: int) -> int | None:
    """Return the rank that replaces *rank*, which has no usable traces, or None if no rank does."""
    other = metadata.get(STAND_IN_OF, {}).get(str(rank))
    return None if other is None else int(other)


def stand_in_assumption(metadata: Mapping[str, Any]) -> str:
    """Return the assumption in *metadata* on ranks that represent other ranks, or "" without one."""
    return str(metadata.get(STAND_INS, ""))


class _Refused(Exception):
    """The reason why no rank can replace another rank, as the end of a sentence."""


def with_stand_ins(
    ranks: Sequence[RankGraph], groups: _Groups, world_size: int, why_missing: str
) -> tuple[list[RankGraph], dict[int, tuple[int, ...]], dict[int, int]]:
    """Return all ranks, all groups, and the replacement rank of each rank without a graph.

    A replica runs the same program on another part of the batch. Replicas are the members of a data-parallel
    group: one of the *groups*, or all ranks, in which ranks exchange gradients or parameters. Raises
    `TraceError`, with *why_missing*, for a rank without a replica, or with replicas that differ from each
    other.
    """
    found = recognise([one.graph for one in ranks], np.zeros(world_size, dtype=np.int32), groups)
    everyone = tuple(range(world_size))
    replicas = sorted((groups.get(key, everyone) for key in found.replicas), key=len)
    survivors = {one.rank: one for one in ranks}
    all_groups = {0: everyone, **groups}
    made: dict[int, RankGraph] = {}
    stand_ins: dict[int, int] = {}
    for rank in sorted(set(everyone) - set(survivors)):
        try:
            stand_ins[rank], made[rank] = _stand_in(rank, survivors, replicas, all_groups)
        except _Refused as refusal:  # noqa: PERF203 - names the rank
            raise TraceError(
                f"{why_missing}. No other rank can stand in for rank {rank}: {refusal}. Capture again, and "
                "let every rank complete the captured steps; if another `chakrascope trace` captured rank "
                f"{rank}, merge both captures with `chakrascope trace --collect`."
            ) from None
    complete = {**survivors, **made}
    del all_groups[0]
    return [complete[rank] for rank in everyone], all_groups, stand_ins


def replicas_text(stand_ins: Mapping[int, int]) -> str:
    """Return the assumption that the ranks in *stand_ins* are replaced by replicas."""
    if len(stand_ins) == 1:
        ((rank, other),) = stand_ins.items()
        return (
            f"there is no usable trace of rank {rank}: rank {other}, of the same data-parallel group, stands "
            "in for it, as if both took the same times"
        )
    return (
        f"there are no usable traces of ranks {_named([*stand_ins])}: ranks {_named([*stand_ins.values()])}, "
        "of the same data-parallel groups, stand in for them, as if both took the same times"
    )


def _stand_in(
    rank: int,
    survivors: Mapping[int, RankGraph],
    replicas: Sequence[tuple[int, ...]],
    known: dict[int, tuple[int, ...]],
) -> tuple[int, RankGraph]:
    """Return the first replica of *rank* that has a graph, and the graph adapted to *rank*."""
    own = next((ranks for ranks in replicas if rank in ranks), None)
    if own is None:
        raise _Refused("no rank with traces exchanges gradients with this rank")
    alike = [other for other in own if other in survivors]
    first = survivors[alike[0]]
    if any(len(set(sizes)) > 1 for other in alike for sizes in survivors[other].splits.values()):
        raise _Refused(
            "its data-parallel group exchanges uneven amounts, so the amount of this rank is unknown"
        )
    if len({_traffic(survivors[other].graph) for other in alike}) > 1:
        raise _Refused(f"the ranks of its data-parallel group ({_named(own)}) communicate differently")
    graph = _as_rank(first.graph, rank, _Moved(first.rank, rank, own, replicas), known)
    _check_partners(graph, {other: one.graph for other, one in survivors.items()}, known)
    return first.rank, replace(first, graph=graph)


class _Moved:
    """A map from ranks around *source* to ranks around *target*, its replica in the group *own*."""

    def __init__(
        self, source: int, target: int, own: tuple[int, ...], replicas: Sequence[tuple[int, ...]]
    ) -> None:
        self._target = target
        self._own = own
        self._replicas = replicas
        self._from, self._to = own.index(source), own.index(target)

    def rank(self, member: int) -> int:
        """Return the rank that has the role of *member* for the target rank."""
        group = next((ranks for ranks in self._replicas if member in ranks), ())
        if len(group) != len(self._own) or group.index(member) != self._from:
            raise _Refused(f"the counterpart of rank {member} is unknown")
        return group[self._to]

    def group(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """Return the target rank's group that corresponds to the source rank's group of *ranks*."""
        return ranks if self._target in ranks else tuple(self.rank(member) for member in ranks)


def _as_rank(graph: Graph, rank: int, moved: _Moved, known: dict[int, tuple[int, ...]]) -> Graph:
    """Return *graph* with the groups and peers of *rank*; add the groups of *rank* to *known*."""
    nodes = graph.node_columns
    numbers = {ranks: number for number, ranks in reversed([*known.items()])}
    group = nodes["group"].copy()
    communications = np.isin(nodes["type"], [NodeType.COMM_COLL, *MESSAGES])
    for number in np.unique(nodes["group"][communications]).tolist():
        ranks = moved.group(known[number])
        if ranks == known[number]:
            continue
        if ranks not in numbers:
            numbers[ranks] = max(known) + 1
            known[numbers[ranks]] = ranks
        group[communications & (nodes["group"] == number)] = numbers[ranks]
    columns = {"group": group}
    for kind, column in _PEERS.items():
        partners = nodes[column].copy()
        rows = np.flatnonzero((nodes["type"] == kind) & (partners >= 0))
        partners[rows] = [moved.rank(partner) for partner in partners[rows].tolist()]
        columns[column] = partners
    peers = np.isin(nodes["type"], MESSAGES)
    for own, other in (("comm_src", NodeType.COMM_SEND), ("comm_dst", NodeType.COMM_RECV)):
        columns[own] = np.where(peers & (nodes["type"] == other) & (columns[own] >= 0), rank, columns[own])
    return graph.as_rank(rank).with_columns(**columns)


def _check_partners(graph: Graph, survivors: Mapping[int, Graph], known: _Groups) -> None:
    """Raise an error if the collectives and messages of *graph* do not match those of other ranks."""
    for number, ranks in known.items():
        if graph.rank not in ranks:
            continue
        for other in (survivors[rank] for rank in ranks if rank in survivors):
            if collective_kinds(graph, number) != collective_kinds(other, number):
                raise _Refused(
                    f"rank {other.rank} communicates differently with this rank than with its replica"
                )
    for other in survivors.values():
        for kind, back in (
            (NodeType.COMM_SEND, NodeType.COMM_RECV),
            (NodeType.COMM_RECV, NodeType.COMM_SEND),
        ):
            if _messages(graph, kind, other.rank) != _messages(other, back, graph.rank):
                raise _Refused(
                    f"rank {other.rank} exchanges different messages with this rank than with its replica"
                )


def _traffic(graph: Graph) -> bytes:
    """Return the communications of *graph* in order, without their peers."""
    nodes = graph.node_columns
    rows = np.isin(nodes["type"], [NodeType.COMM_COLL, *MESSAGES])
    return b"".join(nodes[name][rows].tobytes() for name in ("type", "comm_type", "comm_size_bytes"))


def _messages(graph: Graph, kind: NodeType, partner: int) -> int:
    nodes = graph.node_columns
    return int(((nodes["type"] == kind) & (nodes[_PEERS[kind]] == partner)).sum())


def _named(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")


def pose_for_all(
    workload: Workload, num_ranks: int, made_groups: Sequence[Sequence[int]], place: str
) -> Workload:
    """Return a workload of *num_ranks* ranks that all run the program of rank 0 of *workload*.

    *made_groups* are the ranks of every group of the script, in order of creation. Each rank gets the groups
    that correspond to the groups of rank 0. Raises `TraceError` naming *place* if rank 0 cannot represent the
    other ranks because rank 0 sends to single ranks, or because its groups do not cover all ranks.
    """
    (graph,) = workload.graphs
    if graph.nodes["type"].isin(MESSAGES).any():
        raise TraceError(
            f"{place}: rank 0 exchanges messages with individual ranks, as pipeline stages do, so it cannot "
            "represent the other ranks. Next: capture this job on real ranks."
        )
    everyone = tuple(range(num_ranks))
    families = {
        number: [everyone] if ranks == everyone else groups_like(ranks, made_groups, num_ranks, place)
        for number, ranks in workload.groups.items()
    }
    groups = sorted({ranks for family in families.values() for ranks in family} - {everyone})
    numbers = {everyone: 0, **{ranks: number for number, ranks in enumerate(groups, start=1)}}
    own = [_numbers_of(rank, families, numbers) for rank in range(num_ranks)]
    programs = sorted(set(own))
    if len(programs) > MAX_PROGRAMS:
        raise TraceError(
            f"{place}: the {num_ranks} ranks need {len(programs)} distinct graphs; the limit is "
            f"{MAX_PROGRAMS}. Next: capture a fake world of fewer ranks."
        )
    index = {program: position for position, program in enumerate(programs)}
    names = workload.metadata.get(GROUP_NAMES, {})
    renamed = {
        str(numbers[ranks]): names[str(number)]
        for number, family in families.items()
        for ranks in family
        if str(number) in names and numbers[ranks]
    }
    return Workload(
        graphs=tuple(
            _renumbered(graph, sorted(families), program, own.index(program)) for program in programs
        ),
        program_of_rank=np.array([index[program] for program in own], dtype=np.int32),
        groups={number: ranks for ranks, number in numbers.items() if number},
        metadata={**workload.metadata, **({GROUP_NAMES: renamed} if names else {})},
    )


def groups_like(
    ranks: tuple[int, ...], made_groups: Sequence[Sequence[int]], num_ranks: int, place: str
) -> list[tuple[int, ...]]:
    """Return the group *ranks* and the groups created with it that together contain each rank once.

    Raises `TraceError` naming *place* if the script created no groups for the other ranks.
    """
    made = [tuple(group) for group in made_groups]
    own = tuple(sorted(ranks))
    first = made.index(own) if own in made else len(made)
    for groups in (*_partitions(made, num_ranks), *_partitions(made[first:], num_ranks)):
        if own in groups:
            return groups
    raise TraceError(
        f"{place}: the script created the group {', '.join(map(str, ranks))} but no corresponding groups for "
        f"the remaining ranks of {num_ranks}, so rank 0 cannot represent these ranks. Next: capture this job "
        "on real ranks."
    )


def _partitions(made: Sequence[tuple[int, ...]], num_ranks: int) -> Iterator[list[tuple[int, ...]]]:
    """Yield each sequence of consecutively created groups that contains each rank once."""
    groups: list[tuple[int, ...]] = []
    covered: set[int] = set()
    for group in made:
        if not covered.isdisjoint(group):
            groups, covered = [], set()
        groups.append(group)
        covered.update(group)
        if len(covered) == num_ranks:
            yield groups
            groups, covered = [], set()


def _numbers_of(
    rank: int, families: Mapping[int, Sequence[tuple[int, ...]]], numbers: Mapping[tuple[int, ...], int]
) -> tuple[int, ...]:
    """Return the numbers of the groups of *rank* that correspond to rank 0's groups, in the same order."""
    return tuple(
        next(numbers[group] for group in families[number] if rank in group) for number in sorted(families)
    )


def _renumbered(graph: Graph, old: Sequence[int], new: Sequence[int], rank: int) -> Graph:
    table = np.arange(max(old, default=0) + 1, dtype=np.int64)
    table[list(old)] = list(new)
    return graph.as_rank(rank).with_columns(group=table[graph.node_columns["group"]])


_WORLD_SIZE, _GROUP_SIZES = "measured_world_size", "measured_group_sizes"


def needs_all_ranks(graphs: Sequence[Graph], groups: _Groups, world_size: int) -> bool:
    """Return whether *graphs* communicate in groups or pairs, so that no rank can represent others."""
    return any(len(ranks) < world_size for ranks in groups.values()) or have_messages(graphs)


def measured_alone(
    graphs: Sequence[Graph], groups: _Groups, stated: Sequence[int], world_size: int
) -> tuple[list[Graph], dict[int, tuple[int, ...]], dict[str, Any], str]:
    """Return the measured ranks as a separate job: graphs, groups, metadata and a note.

    *stated* are the numbers of these ranks in the original job, -1 if unknown. Collectives keep only the
    measured members. Messages to other ranks become communication without a peer. A workload with only
    measured ranks can only be replayed.
    """
    known = list(stated) if min(stated) >= 0 else list(range(len(graphs)))
    place = {rank: number for number, rank in enumerate(known)}
    present = {
        number: tuple(place[rank] for rank in ranks if rank in place) or (0,)
        for number, ranks in groups.items()
    }
    sizes = {str(number): len(ranks) for number, ranks in groups.items()} | {"0": world_size}
    given = count_text(len(graphs), "rank")
    renumbered = ", shown as ranks from 0" if known != list(range(len(known))) else ""
    note = (
        f"the traces of {given} of {world_size:,} were given ({_named(known)}{renumbered}), which "
        "communicate in groups: they are replayed alone, and their communication takes its measured time, "
        "including waits for the other ranks"
    )
    facts = {_WORLD_SIZE: world_size, _GROUP_SIZES: sizes}
    return [_without_absent_peers(graph, place) for graph in graphs], present, facts, note


def measured_world_size(metadata: Mapping[str, Any]) -> int:
    """Return the size of the job if a workload has only the measured ranks, or 0 for complete workloads."""
    stated = metadata.get(_WORLD_SIZE)
    return stated if isinstance(stated, int) else 0


def measured_group_sizes(metadata: Mapping[str, Any]) -> dict[int, int]:
    """Return the full size of each group if a workload has only the measured ranks, or {} otherwise."""
    try:
        return msgspec.convert(metadata.get(_GROUP_SIZES, {}), dict[int, int], strict=False)
    except msgspec.ValidationError:
        return {}


def _without_absent_peers(graph: Graph, place: Mapping[int, int]) -> Graph:
    """Return *graph* with ranks renumbered by *place*; messages to absent ranks lose their peer."""
    nodes = graph.node_columns
    types, columns = np.array(nodes["type"]), {}
    is_message = np.isin(types, MESSAGES)
    if not is_message.any():
        return graph
    is_absent = np.zeros(len(types), bool)
    for name in ("comm_src", "comm_dst"):
        ranks = np.array(nodes[name])
        rows = np.flatnonzero(is_message & (ranks >= 0))
        ranks[rows] = [place.get(rank, -1) for rank in ranks[rows].tolist()]
        is_absent[rows] |= ranks[rows] < 0
        columns[name] = ranks
    types[is_absent] = NodeType.COMP
    kinds = np.array(nodes["kind"].tolist(), object)
    kinds[is_absent] = "communication"
    return graph.with_columns(type=types, kind=TextColumn.of(kinds.tolist()), **columns)
