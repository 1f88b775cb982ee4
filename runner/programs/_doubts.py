"""Find the races that can change a rank's final result."""

from __future__ import annotations

from collections import defaultdict

from ._execute import Access, Clock, Moved, Run
from ._races import is_race, unordered_pairs
from ._unroll import Cell

__all__ = ["doubtful_cells"]

_ALWAYS = -1
_Doubts = frozenset[int]
_Key = tuple[int, Cell, bool]
"""An access: id of its step, cell, whether it writes."""
_NONE: _Doubts = frozenset()


def doubtful_cells(run: Run) -> set[Cell]:
    """Return the cells whose final values may differ in another order of the steps.

    A read that races with a later write is correct in all orders in which the read comes first. Values that
    depend on this read are therefore correct in steps that precede the write in every order. All other races
    make values doubtful, until these are overwritten in every order.
    """
    marks: dict[_Key, _Doubts] = defaultdict(frozenset)
    spoilers: list[Clock] = []
    alike: list[tuple[_Key, _Key]] = []
    for cell, earlier, later in unordered_pairs(run):
        if not is_race(run, cell, earlier, later):
            alike.append((_key(cell, earlier), _key(cell, later)))
        elif not earlier.writes:
            marks[_key(cell, earlier)] |= {len(spoilers)}
            spoilers.append(later.clock)
        else:
            for access in (earlier, later):
                if access.writes == later.writes:
                    marks[_key(cell, access)] |= {_ALWAYS}
    while True:
        doubts, left = _spread(run, marks, spoilers)
        spread = False
        for pair in alike:
            both = doubts.get(pair[0], _NONE) | doubts.get(pair[1], _NONE)
            for key in pair:
                spread |= not both <= doubts.get(key, _NONE) | marks[key]
                marks[key] |= both
        if not spread:
            return {cell for cell, doubt in left.items() if doubt}


def _key(cell: Cell, access: Access) -> _Key:
    return id(access.step), cell, access.writes


def _spread(
    run: Run, marks: dict[_Key, _Doubts], spoilers: list[Clock]
) -> tuple[dict[_Key, _Doubts], dict[Cell, _Doubts]]:
    """Return the doubts about each access, and about the final values of cells."""
    doubts: dict[_Key, _Doubts] = {}
    cells: dict[Cell, _Doubts] = {}
    for moved in run.moves:
        step, move = id(moved.step), moved.move
        read = _NONE
        for cell in move.sources:
            key = step, cell, False
            doubts[key] = _open(cells.get(cell, _NONE) | marks.get(key, _NONE), moved, spoilers)
            read |= doubts[key]
        for cell in move.targets:
            key = step, cell, True
            doubts[key] = cells[cell] = read | marks.get(key, _NONE)
    return doubts, cells


def _open(doubts: _Doubts, moved: Moved, spoilers: list[Clock]) -> _Doubts:
    """Return the *doubts* whose write may precede a move."""
    return frozenset(
        doubt for doubt in doubts if doubt == _ALWAYS or spoilers[doubt][moved.strand] < moved.time
    )
