"""What a simulation answers: integer nanoseconds in columns, the same for every backend."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import StudyError
from ..support import count_text, duration_text, new_folder, writing
from ..support.table import ParquetFile
from ._checksums import refuse_damaged, write_checksums
from ._framed import columns_of, frame_of, framed, later, rows_of
from ._notebook import block, html_table
from ._recorded_nodes import Columns, RecordedNodes
from ._saved_nodes import SavedNodes, write_columns, write_nodes, write_pieces

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "Result", "empty_columns", "empty_table"]

COLUMNS: dict[str, dict[str, str]] = {
    "ranks": {
        "rank": "int64",
        "finish_ns": "int64",
        "exposed_comm_ns": "int64",
        "compute_ns": "int64",
        "comm_ns": "int64",
        "overlap_ns": "int64",
        "copy_ns": "int64",
        "exposed_copy_ns": "int64",
    },
    "nodes": {
        "rank": "int32",
        "node_id": "int64",
        "start_ns": "int64",
        "end_ns": "int64",
        "cause_node": "int64",
        "cause_is_dependency": "bool",
        "origin_rank": "int32",
        "origin_node": "int64",
    },
    "collectives": {
        "collective": "int64",
        "comm_type": "int16",
        "group": "int64",
        "size_bytes": "int64",
        "rank": "int32",
        "node_id": "int64",
        "start_ns": "int64",
        "end_ns": "int64",
        "wait_ns": "int64",
        "transfer_ns": "int64",
    },
    "links": {
        "src": "int32",
        "dst": "int32",
        "bytes": "int64",
        "busy_ns": "int64",
        "queue_ns": "int64",
        "messages": "int64",
    },
    "flows": {"src": "int32", "dst": "int32", "bytes": "int64", "start_ns": "int64", "end_ns": "int64"},
    "link_use": {"src": "int32", "dst": "int32", "start_ns": "int64", "end_ns": "int64", "bytes": "int64"},
}
_KINDS = "iub"  # of numpy: signed and unsigned integers, and truth values
_NS_BEYOND = 1 << 63
# Of so many nodes a result holds no table until somebody asks for it: 50 bytes each.
_MANY_NODES = 1 << 18
_MOST_NOTES = 4
# Columns that results of version 0.2 lack: their ranks count copies as computation.
_SINCE_0_3 = ("copy_ns", "exposed_copy_ns")
# Tables that only some backends fill; empty ones are not written.
_OPTIONAL = ("flows", "link_use")


def empty_columns(name: str) -> Columns:
    """Return the columns of the table *name* of a result, typed, without rows."""
    return {column: np.empty(0, dtype) for column, dtype in COLUMNS[name].items()}


def empty_table(name: str) -> pd.DataFrame:
    """Return the table *name* of a result without rows, with its columns typed."""
    return frame_of(empty_columns(name))


@framed(*COLUMNS)
@dataclass(frozen=True, eq=False)
class Result:
    """The answer of one backend to one experiment. Times are ns from the start of the simulation.

    *ranks*: a row per rank; *finish_ns* is -1 for a rank that did not finish, *exposed_comm_ns* the time not
    covered by accelerator compute, *exposed_copy_ns* that in which it copies and does nothing else; with a
    roofline four more columns say how near compute came to the peaks.
    *nodes*: a row per executed node; *cause_node* is the node of the same rank whose end let it start (-1:
    time 0), *origin_* the node whose start began the chain of events that ended it.
    *collectives*: a row per collective and rank. *links*: a row per directed link. *provenance*: plain JSON.
    Backends whose links are shared also fill *link_use*, the bytes each directed link sent in each stretch of
    time, and those of packets and fluids *flows*, a row per message.
    """

    backend: str
    makespan_ns: int
    ranks: pd.DataFrame
    nodes: pd.DataFrame = field(default_factory=lambda: later(empty_columns("nodes")))
    collectives: pd.DataFrame = field(default_factory=lambda: later(empty_columns("collectives")))
    links: pd.DataFrame = field(default_factory=lambda: later(empty_columns("links")))
    flows: pd.DataFrame = field(default_factory=lambda: later(empty_columns("flows")))
    link_use: pd.DataFrame = field(default_factory=lambda: later(empty_columns("link_use")))
    provenance: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        """Read the nodes of a large result, all of them, when somebody asks for the table."""
        saved = vars(self).get("kept_nodes")
        if name != "nodes" or saved is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        if isinstance(saved, RecordedNodes):
            vars(self)["nodes"] = saved.whole()
            return self.nodes
        try:
            vars(self)["nodes"] = _read_table(saved.path.parent, "nodes")
        except (OSError, ValueError) as error:
            raise StudyError(
                f"{saved.path} is missing or damaged ({error}); delete the folder and run it again."
            ) from error
        return self.nodes

    def columns(self, name: str) -> Columns:
        """Return the columns of the table *name*, without a table being made."""
        held = vars(self).get(name)
        return columns_of(getattr(self, name) if held is None else held)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the engine's records out of pickles and copies: the table says the same."""
        if isinstance(vars(self).get("kept_nodes"), RecordedNodes):
            return {name: getattr(self, name) for name in self.__dataclass_fields__}
        return vars(self)

    def with_columns(self, *, provenance: dict[str, Any] | None = None, **tables: Columns) -> Result:
        """Return this result with *tables* by name, and *provenance* if given, instead of those it has.

        Unlike `dataclasses.replace`, which reads every table, it makes none.
        """
        changed = object.__new__(type(self))
        told = {} if provenance is None else {"provenance": provenance}
        vars(changed).update(vars(self) | tables | told)
        return changed

    def with_recorded(self, recorded: RecordedNodes) -> Result:
        """Return this result with the nodes that were *recorded*, as a table when somebody asks for it.

        Of few nodes the table is made at once.
        """
        if recorded.num_rows < _MANY_NODES:
            return self.with_columns(nodes=recorded.whole())
        return self.with_columns()._keeping(recorded)

    def _keeping(self, source: RecordedNodes | SavedNodes) -> Result:
        del vars(self)["nodes"]
        vars(self)["kept_nodes"] = source
        return self

    @property
    def nodes_by_rank(self) -> SavedNodes | None:
        """The nodes to be read by rank and column: of a large saved result whose table nobody asked for."""
        kept = None if "nodes" in vars(self) else vars(self).get("kept_nodes")
        return kept if isinstance(kept, SavedNodes) else None

    @property
    def num_nodes(self) -> int:
        """How many nodes were executed."""
        if "nodes" in vars(self):
            return len(self.columns("nodes")["rank"])
        return int(vars(self)["kept_nodes"].num_rows)

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON: makespan and one entry per rank, with the provenance."""
        ranks = self.columns("ranks")
        told = {name: ranks[name].astype(np.int64) for name in ("rank", "finish_ns", "exposed_comm_ns")}
        return {
            "backend": self.backend,
            "makespan_ns": self.makespan_ns,
            "ranks": rows_of(told),
            "provenance": self.provenance,
        }

    def _repr_html_(self) -> str:
        counts = f"{count_text(len(self.ranks), 'rank')}, {count_text(len(self.nodes), 'node')}"
        title = f"{duration_text(self.makespan_ns)} on {self.backend}, {counts}"
        said = [str(line) for key in ("warnings", "assumptions") for line in self.provenance.get(key, [])]
        return block(title, html_table(self.ranks, "Ranks"), notes=said[:_MOST_NOTES])

    def save(self, folder: str | Path) -> None:
        """Write the result to the new *folder*, which appears whole or not at all.

        Raises `StudyError` if the folder exists, as a result is never modified, or cannot be written.
        """
        target = Path(folder)
        if target.exists():
            raise StudyError(f"The result folder {target} exists already; results are never overwritten.")
        with writing(target, StudyError), new_folder(target) as temporary:
            self.write_into(temporary)
            write_checksums(temporary)

    def write_into(self, folder: Path) -> None:
        """Write the files of the result into *folder*, which is created, without any care for readers."""
        folder.mkdir(parents=True, exist_ok=True)
        kept = None if "nodes" in vars(self) else vars(self)["kept_nodes"]
        if isinstance(kept, RecordedNodes):
            write_pieces(kept.pieces(), COLUMNS["nodes"], folder / "nodes.parquet")
        else:
            write_nodes(self.columns("nodes"), folder / "nodes.parquet")
        for name in COLUMNS:
            columns = self.columns(name) if name != "nodes" else {}
            if columns and (name not in _OPTIONAL or len(columns["src"])):
                write_columns(columns, folder / f"{name}.parquet")
        head = {"backend": self.backend, "makespan_ns": self.makespan_ns, "provenance": self.provenance}
        (folder / "result.json").write_text(json.dumps(head, indent=2, default=str) + "\n", encoding="utf-8")

    @staticmethod
    def num_ranks(folder: str | Path) -> int:
        """Return how many ranks a saved result has, without reading them; raises like `load`."""
        path = Path(folder) / "ranks.parquet"
        refuse_damaged(path.parent, lambda name: name == path.name)
        try:
            return ParquetFile(path).num_rows
        except (OSError, ValueError) as error:
            raise StudyError(
                f"{path} is missing or damaged ({error}); delete the folder and run it again."
            ) from error

    @classmethod
    def load(cls, folder: str | Path) -> Result:
        """Read a saved result, the table of many nodes when it is asked for.

        Raises `StudyError` if a file is missing or damaged.
        """
        source = Path(folder)
        refuse_damaged(source)
        try:
            head = json.loads((source / "result.json").read_text(encoding="utf-8"))
            tables = {name: _read_table(source, name) for name in COLUMNS if name != "nodes"}
            backend, provenance = head["backend"], _provenance(head["provenance"])
            makespan_ns = _makespan_ns(head["makespan_ns"])
            saved = _saved_nodes(source)
            if saved.num_rows < _MANY_NODES:
                tables["nodes"] = _read_table(source, "nodes")
        except (ArithmeticError, OSError, ValueError, KeyError, RecursionError, TypeError) as error:
            raise StudyError(
                f"The result in {source} is missing or damaged ({error}); delete the folder and run it again."
            ) from error
        result = cls(
            backend,
            makespan_ns,
            **{name: later(table) for name, table in tables.items()},
            provenance=provenance,
        )
        return result if saved.num_rows < _MANY_NODES else result._keeping(saved)


def _provenance(stored: Any) -> dict[str, Any]:
    if not isinstance(stored, dict) or not all(
        isinstance(stored.get(key, []), list) for key in ("warnings", "assumptions")
    ):
        raise TypeError("its provenance is not a mapping with lists of sentences")
    return stored


def _makespan_ns(stored: Any) -> int:
    makespan_ns = int(stored)
    if not 0 <= makespan_ns < _NS_BEYOND:
        raise ValueError(f"a makespan of {makespan_ns:.3g} ns")
    return makespan_ns


def _saved_nodes(source: Path) -> SavedNodes:
    """Return the nodes saved in *source*; raises `ValueError` for columns that are not those of nodes."""
    saved = SavedNodes(source / "nodes.parquet")
    for column in COLUMNS["nodes"]:
        if saved.kinds.get(column, "") not in _KINDS or not saved.kinds.get(column):
            raise ValueError(f"nodes.parquet has no column {column} of whole numbers")
    return saved


def _read_table(source: Path, name: str) -> Columns:
    path = source / f"{name}.parquet"
    if name in _OPTIONAL and not path.is_file():
        return empty_columns(name)
    columns = ParquetFile(path).read()
    if name == "ranks":
        absent = [column for column in _SINCE_0_3 if column not in columns]
        columns |= {
            column: np.zeros(len(columns["rank"]), np.int64) for column in absent if "rank" in columns
        }
    for column in COLUMNS[name]:
        if column not in columns:
            raise ValueError(f"{path.name} has no column {column}")
        if columns[column].dtype.kind not in _KINDS:
            raise ValueError(f"the column {column} of {path.name} does not hold whole numbers")
    return columns
