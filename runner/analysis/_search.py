"""Find nodes by what they are called."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

__all__ = ["Words", "found_nodes", "named_nodes", "search_nodes"]

_COLUMNS = ("name", "operator", "module")
_FACTS = ["rank", "node_id", "name", "kind", "module", "start_ns"]


@dataclass(frozen=True)
class Words:
    """The texts of some columns of a table, each once, and which of them each row has."""

    texts: tuple[pd.Series, ...]
    codes: tuple[npt.NDArray[np.int32], ...]

    @classmethod
    def of(cls, nodes: pd.DataFrame) -> Words:
        """Return the words of the names, operators and modules of *nodes*."""
        found = [pd.factorize(nodes[column].fillna("")) for column in _COLUMNS]
        texts = tuple(pd.Series(words, dtype="object").str.lower() for _, words in found)
        return cls(texts, tuple(codes.astype(np.int32) for codes, _ in found))


def search_nodes(nodes: pd.DataFrame, words: Words, text: str, count: int = 20) -> pd.DataFrame:
    """Return the *count* longest nodes whose name, operator or module contains *text*, or whose id it is.

    *words* are those of *nodes*. Nodes with that id come first.
    """
    named, numbered = named_nodes(words, text), _numbered(nodes, text)
    rows = np.flatnonzero(named | numbered)
    length = (nodes["end_ns"].to_numpy() - nodes["start_ns"].to_numpy())[rows]
    best: pd.DataFrame = nodes.iloc[rows[np.lexsort((-length, ~numbered[rows]))[:count]]]
    return best


def named_nodes(words: Words, text: str) -> npt.NDArray[np.bool_]:
    """Return of each row *words* were made of whether its name, operator or module contains *text*."""
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


def found_nodes(nodes: pd.DataFrame, words: Words, text: str, count: int = 20) -> pd.DataFrame:
    """Return what :func:`search_nodes` finds with the few facts that tell the nodes apart."""
    found = search_nodes(nodes, words, text, count).reset_index(drop=True)
    table: pd.DataFrame = found[_FACTS].assign(duration_ns=found["end_ns"] - found["start_ns"])
    return table
