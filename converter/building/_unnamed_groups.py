"""Infer process groups that the traces do not name, from the sizes of their collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ..readers import Communication

__all__ = ["with_told_groups"]

_TOLD = (
    "the traces do not name the process group of some collectives: it is the listed one that has as many "
    "ranks as their sizes say (output over input)"
)
_SEVERAL = (
    "; where several have, the one that no named collective uses, and of those that of the nearest ranks"
)
_UNLISTED = (
    "the sizes of some collectives (output over input) say that {size} of {world} ranks take part, but the "
    "traces list no such process group: ranks in a row are assumed"
)
_ALL = (
    "the traces list several process groups but not which of them each collective used (a flight "
    "record would): all ranks are assumed where that is unknown"
)
_NONE_LISTED = "the traces list no process groups: all ranks are assumed where sizes do not refute it"


def with_told_groups(
    comms: Sequence[Communication], rank: int, groups: Mapping[str, tuple[int, ...]], world_size: int
) -> tuple[list[Communication], list[str]]:
    """Return *comms* with the groups that the traces of *rank* do not name, and what that takes for granted.

    *groups* are those the traces list, () being all ranks. All ranks remain where the sizes agree with it, or
    tell nothing.
    """
    listed = {ranks for ranks in groups.values() if rank in ranks}
    used = {comm.group_ranks for comm in comms if comm.named}
    told, notes = list(comms), set()
    for index, comm in enumerate(comms):
        if comm.named or comm.members == world_size:
            continue
        fitting = sorted(listed, key=lambda ranks: (ranks in used, max(ranks) - min(ranks), ranks))
        fitting = [ranks for ranks in fitting if len(ranks) == comm.members]
        if fitting:
            told[index] = replace(comm, group_ranks=fitting[0])
            notes.add(_TOLD + _SEVERAL * (len(fitting) > 1))
        elif 1 < comm.members < world_size and world_size % comm.members == 0:
            first = rank - rank % comm.members
            told[index] = replace(comm, group_ranks=tuple(range(first, first + comm.members)))
            notes.add(_UNLISTED.format(size=comm.members, world=world_size))
        elif any(1 < len(ranks) < world_size for ranks in groups.values()):
            notes.add(_ALL)
        elif not groups and world_size > 2:
            notes.add(_NONE_LISTED)
    return told, sorted(notes)
