"""Find nodes of a run by words, and the matching node of another run."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...support.table import Ints

_COLUMNS = ("name", "operator", "module")
# Columns in which a search finds whole groups of nodes, with the position of their texts in `Words`.
_WHOLE = {"module": 2, "operator": 1}
_MOST_WHOLE = 6
_PLACE = re.compile(r"(\d{1,9})[:/](\d{1,18})")
_HIT = {
    "what": "str", "name": "str", "nodes": "int64", "ranks": "int64", "rank": "int64", "node_id": "int64",
    "duration_ns": "int64",
}  # fmt: skip
_FACTS = ["rank", "node_id", "name", "kind", "module", "start_ns"]
SEARCHED = ("start_ns", "end_ns", *_COLUMNS)
"""The columns, besides ``rank`` and ``node_id``, of the nodes that `search_hits` searches."""


@dataclass(frozen=True)
class Words:
    """The distinct names, operators and modules of nodes, and which of them each node has."""

    texts: tuple[pd.Series, ...]
    codes: tuple[npt.NDArray[np.int32], ...]

    @classmethod
    def of(cls, nodes: pd.DataFrame) -> Words:
        """Return the index of the names, operators and modules of *nodes*."""
        coded = [pd.factorize(nodes[column].fillna("")) for column in _COLUMNS]
        texts = tuple(pd.Series(words, dtype="object").str.lower() for _, words in coded)
        return cls(texts, tuple(codes.astype(np.int32) for codes, _ in coded))


def search_nodes(nodes: pd.DataFrame, words: Words, text: str, count: int = 20) -> pd.DataFrame:
    """Return the *count* longest nodes whose name, operator or module contains *text*.

    *words* is the index of *nodes*. A node whose id is *text* comes first.
    """
    named, numbered = named_nodes(words, text), _numbered(nodes, text)
    rows = np.flatnonzero(named | numbered)
    length = (nodes["end_ns"].to_numpy() - nodes["start_ns"].to_numpy())[rows]
    best: pd.DataFrame = nodes.iloc[rows[np.lexsort((-length, ~numbered[rows]))[:count]]]
    return best


def named_nodes(words: Words, text: str) -> npt.NDArray[np.bool_]:
    """Return a mask of the nodes whose name, operator or module contains *text*."""
    wanted = text.strip().lower()
    named = np.zeros(len(words.codes[0]), bool)
    for texts, codes in zip(words.texts, words.codes, strict=True):
        if wanted:
            named |= texts.str.contains(wanted, regex=False).to_numpy(bool)[codes]
    return named


def _numbered(nodes: pd.DataFrame, text: str) -> npt.NDArray[np.bool_]:
    wanted = text.strip()
    numbered: npt.NDArray[np.bool_] = np.zeros(len(nodes), bool)
    if wanted.isascii() and wanted.isdigit() and len(wanted) <= 18:
        numbered = nodes["node_id"].to_numpy() == int(wanted)
    return numbered


def node_matches(nodes: pd.DataFrame, text: str, count: int = 20) -> pd.DataFrame:
    """Search nodes as :func:`search_nodes` does; return the columns that distinguish the nodes."""
    nodes_found = search_nodes(nodes, Words.of(nodes), text, count).reset_index(drop=True)
    table: pd.DataFrame = nodes_found[_FACTS].assign(
        duration_ns=nodes_found["end_ns"] - nodes_found["start_ns"]
    )
    return table


def search_hits(
    nodes_of: Callable[[int], pd.DataFrame],
    searched: Callable[[int], tuple[pd.DataFrame, Words]],
    programs: npt.NDArray[np.int32],
    text: str,
    *,
    rank: int = -1,
) -> pd.DataFrame:
    """Return hits for *text* while it is typed: modules and operators first, then single nodes.

    *nodes_of* and *searched* are the methods of a `RunAnalysis`, and *programs* is each rank's program. All
    ranks of one program give one hit: on *rank* if it runs the program, otherwise on the lowest of these
    ranks. ``ranks`` is the number of these ranks. ``rank`` and ``node_id`` are the longest node of a module
    or operator, which has ``nodes`` nodes on this rank that take ``duration_ns`` in total. The text ``7:12``
    finds node 12 of rank 7.
    """
    place = _PLACE.fullmatch(text.strip())
    if place is not None:
        own = nodes_of(int(place[1]))
        return _node_hits(own[own["node_id"] == int(place[2])], np.ones(len(programs), np.int64))
    nodes, words = searched(rank)
    alike = np.bincount(programs, minlength=1)[programs]
    found = _node_hits(search_nodes(nodes, words, text), alike)
    hits: pd.DataFrame = pd.concat([*_wholes(nodes, words, alike, text), found], ignore_index=True)
    typed: pd.DataFrame = hits.astype(_HIT)
    return typed


def one_of_each(programs: npt.NDArray[np.int32], rank: int) -> list[int]:
    """Return one rank per program: first *rank*, then the lowest rank of each other program."""
    _, lowest = np.unique(programs, return_index=True)
    first = [rank] if 0 <= rank < len(programs) else []
    return [*first, *(int(other) for other in lowest if not first or programs[other] != programs[rank])]


def _node_hits(found: pd.DataFrame, alike: npt.NDArray[np.int64]) -> pd.DataFrame:
    hits: pd.DataFrame = found[["name", "rank", "node_id"]].assign(
        what="node",
        nodes=1,
        ranks=alike[found["rank"].to_numpy()],
        duration_ns=found["end_ns"] - found["start_ns"],
    )
    typed: pd.DataFrame = hits[list(_HIT)].astype(_HIT)
    return typed


def _wholes(nodes: pd.DataFrame, words: Words, alike: npt.NDArray[np.int64], text: str) -> list[pd.DataFrame]:
    """Return the modules and operators whose name contains *text*, by descending time."""
    wanted, parts = text.strip().lower(), []
    length = (nodes["end_ns"] - nodes["start_ns"]).to_numpy()
    for what, column in _WHOLE.items():
        texts, codes = words.texts[column], words.codes[column]
        hit = texts.str.contains(wanted, regex=False).to_numpy(bool) & (texts != "").to_numpy()
        rows = np.flatnonzero(hit[codes]) if wanted else np.zeros(0, np.int64)
        if not len(rows):
            continue
        mine = nodes.iloc[rows].assign(duration_ns=length[rows])
        longest = mine.loc[mine.groupby(what)["duration_ns"].idxmax()].set_index(what)
        sums = mine.groupby(what)["duration_ns"].agg(["sum", "size"])
        largest = sums.nlargest(_MOST_WHOLE, "sum")
        at = longest.loc[largest.index]
        # A module in several programs is listed once, with the nodes of one rank.
        own = mine.groupby([what, "rank"])["duration_ns"].agg(["sum", "size"])
        here = own.loc[list(zip(at.index, at["rank"], strict=True))]
        parts.append(
            pd.DataFrame(
                {
                    "what": what,
                    "name": at.index,
                    "nodes": here["size"].to_numpy(),
                    "ranks": alike[at["rank"].to_numpy()],
                    "rank": at["rank"].to_numpy(),
                    "node_id": at["node_id"].to_numpy(),
                    "duration_ns": here["sum"].to_numpy(),
                }
            )
        )
    return parts


_SAME = ("name", "module", "phase", "kind")


def counterpart(nodes: pd.DataFrame, row: int, others: pd.DataFrame, step: int | None = None) -> int:
    """Return the row in *others* that matches *row* of *nodes*, -1 if none does.

    The matching row has the same rank, name, module, phase and kind, and the same position among such
    nodes. *step* restricts *others* to one step, and *nodes* to the step of *row*.
    """
    rank, own = nodes["rank"].iloc[row], nodes["step"].iloc[row]
    mine = _similar_rows(nodes, nodes, row, rank)
    theirs = _similar_rows(others, nodes, row, rank)
    if step is not None:
        mine = mine[nodes["step"].to_numpy()[mine] == own]
        theirs = theirs[others["step"].to_numpy()[theirs] == step]
    place = int(np.flatnonzero(mine == row)[0])
    return int(theirs[place]) if place < len(theirs) else -1


def _similar_rows(nodes: pd.DataFrame, of: pd.DataFrame, row: int, rank: int) -> Ints:
    """Return the rows of *nodes* with the same properties as row *row* of the table *of*, by start."""
    rows = np.flatnonzero(nodes["rank"].to_numpy() == rank)
    part = nodes.iloc[rows]
    alike = np.ones(len(rows), bool)
    for column in _SAME:
        alike &= (part[column] == of[column].iloc[row]).to_numpy(bool)
    rows = rows[alike]
    return rows[np.lexsort((nodes["node_id"].to_numpy()[rows], nodes["start_ns"].to_numpy()[rows]))]
