"""The result of a simulation: columns of integer nanoseconds in the same format for every backend."""

from __future__ import annotations

import json
import shutil
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import StudyError
from ..support import count_text, duration_text, load_json, new_folder, writing
from ..support.table import Columns, ParquetFile, Table, TableField, frame_of
from ._checksums import CHECKSUMS_FILE, refuse_damaged, write_checksums
from ._framed import rows_of
from ._node_tables import SavedNodes, calls_of_all, nodes_of_all, write_table
from ._notebook import block, html_table

if TYPE_CHECKING:
    import pandas as pd

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
ROOFLINE = ("compute_bound", "compute_utilization", "memory_utilization", "operation_intensity")
"""The further columns of ``ranks`` of a run with a roofline."""
_KINDS = "iub"  # NumPy kinds: signed integers, unsigned integers and booleans
_NS_BEYOND = 1 << 63
MANY_NODES = 1 << 18
"""The number of nodes (50 bytes each) from which the node table is read only on request."""
_MAX_NOTES = 4
# Columns that results of version 0.2 lack. In these results, the table of ranks counts copies as
# computation.
_SINCE_0_3 = ("copy_ns", "exposed_copy_ns")
_WITHOUT_CHECKSUMS = ("0.1.", "0.2.")  # versions whose results have no checksums
# Tables that only some backends fill. Empty optional tables are not written.
_OPTIONAL = ("flows", "link_use")


def empty_columns(name: str) -> Columns:
    """Return the typed columns of a result's table *name*, without rows."""
    return {column: np.empty(0, dtype) for column, dtype in COLUMNS[name].items()}


def empty_table(name: str) -> pd.DataFrame:
    """Return an empty table *name* of a result, with typed columns."""
    return frame_of(empty_columns(name))


class TemporaryFolder:
    """A temporary folder, which is removed together with this object."""

    def __init__(self) -> None:
        self.path = Path(mkdtemp(prefix="chakrascope-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True, eq=False)
class Result:
    """The result of one backend for one experiment, with times in ns from the start of the simulation.

    * *ranks* has a row per rank. *finish_ns* is -1 for a rank that did not finish. *exposed_comm_ns* is
      communication without concurrent compute. *exposed_copy_ns* is copying without any other work. With a
      roofline, four more columns contain the shares of the peak rates that computation reached.
    * *nodes* has a row per executed node. *cause_node* is the node of the same rank whose end let the node
      start (-1: time 0). *origin_rank* and *origin_node* identify the node whose start began the chain of
      events up to the node's end.
    * *collectives* has a row per collective and rank.
    * *links* has a row per directed link.
    * *link_use* has the bytes that each directed link sent in each time interval, for backends with shared
      links.
    * *flows* has a row per message, for packet and fluid backends.
    * *provenance* is plain JSON.
    * *pcap* is the temporary folder of recorded packets, if there are any; saving the result copies it.
    """

    backend: str
    makespan_ns: int
    ranks: TableField = TableField()
    nodes: TableField = TableField(COLUMNS["nodes"])
    collectives: TableField = TableField(COLUMNS["collectives"])
    links: TableField = TableField(COLUMNS["links"])
    flows: TableField = TableField(COLUMNS["flows"])
    link_use: TableField = TableField(COLUMNS["link_use"])
    provenance: dict[str, Any] = field(default_factory=dict)
    pcap: TemporaryFolder | None = field(default=None, repr=False)

    def table(self, name: str) -> Table:
        """Return the table *name*, which reads its columns on request."""
        table: Table = vars(self)[name]
        return table

    def columns(self, name: str) -> Columns:
        """Return the columns of the table *name*, without pandas."""
        return self.table(name).columns()

    def with_columns(self, *, provenance: dict[str, Any] | None = None, **tables: Columns | Table) -> Result:
        """Return a copy of the result with the given *tables* and *provenance* replaced.

        Unlike `dataclasses.replace`, `with_columns` reads no table.
        """
        if provenance is None:
            provenance = self.provenance
        every: dict[str, Any] = {name: self.table(name) for name in COLUMNS} | tables
        return Result(self.backend, self.makespan_ns, **every, provenance=provenance, pcap=self.pcap)

    @property
    def num_nodes(self) -> int:
        """The number of executed nodes."""
        return self.table("nodes").num_rows

    def to_json(self) -> dict[str, Any]:
        """Return the makespan, one entry per rank, and the provenance as plain JSON."""
        ranks = self.columns("ranks")
        columns = {name: ranks[name].astype(np.int64) for name in ("rank", "finish_ns", "exposed_comm_ns")}
        return {
            "backend": self.backend,
            "makespan_ns": self.makespan_ns,
            "ranks": rows_of(columns),
            "provenance": self.provenance,
        }

    def _repr_html_(self) -> str:
        counts = f"{count_text(len(self.ranks), 'rank')}, {count_text(len(self.nodes), 'node')}"
        title = f"{duration_text(self.makespan_ns)} on {self.backend}, {counts}"
        notes = [str(line) for key in ("warnings", "assumptions") for line in self.provenance.get(key, [])]
        return block(title, html_table(self.ranks, "Ranks"), notes=notes[:_MAX_NOTES])

    def save(self, folder: str | Path) -> None:
        """Write the result to the new *folder*, atomically.

        An existing folder raises `StudyError`, because a result is never modified. A failed write also raises
        `StudyError`.
        """
        target = Path(folder)
        if target.exists():
            raise StudyError(f"The result folder {target} exists already; results are never overwritten.")
        with writing(target, StudyError), new_folder(target) as temporary:
            self.write_into(temporary)
            write_checksums(temporary)

    def write_into(self, folder: Path) -> None:
        """Create *folder* and write the files of the result into it, not atomically."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in COLUMNS:
            table = self.table(name)
            if name not in _OPTIONAL or table.num_rows:
                write_table(table.distinct, folder / f"{name}.parquet")
        if self.pcap is not None:
            shutil.copytree(self.pcap.path, folder / "pcap")
        nodes = self.table("nodes")
        head = {
            "backend": self.backend,
            "makespan_ns": self.makespan_ns,
            "equal_ranks": nodes.distinct is not nodes,
            "provenance": self.provenance,
        }
        (folder / "result.json").write_text(json.dumps(head, indent=2, default=str) + "\n", encoding="utf-8")

    @staticmethod
    def num_ranks(folder: str | Path) -> int:
        """Return the number of ranks of a saved result without loading them; raises the errors of `load`."""
        path = Path(folder) / "ranks.parquet"
        refuse_damaged(path.parent, path.name.__eq__, needed=[path.name])
        try:
            return ParquetFile(path).num_rows
        except (OSError, ValueError) as error:
            raise StudyError(
                f"{path} is missing or damaged ({error}); delete the folder and run it again."
            ) from error

    @classmethod
    def load(cls, folder: str | Path) -> Result:
        """Load a saved result from *folder*; the table of nodes is read on request.

        A missing or damaged file raises `StudyError`.
        """
        source = Path(folder)
        refuse_damaged(source, needed=["result.json", *(f"{name}.parquet" for name in COLUMNS)])
        try:
            head = load_json(source / "result.json")
            tables: dict[str, Any] = {name: _read_table(source, name) for name in COLUMNS if name != "nodes"}
            backend, provenance = head["backend"], _provenance(head["provenance"])
            _refuse_without_checksums(source, provenance)
            makespan_ns = _makespan_ns(head["makespan_ns"])
            nodes = _saved_nodes(source)
            is_small = nodes.num_rows < MANY_NODES
            tables["nodes"] = _read_table(source, "nodes") if is_small else Table(nodes)
            if head.get("equal_ranks"):
                tables |= _of_all_ranks(tables)
        except (ArithmeticError, OSError, ValueError, KeyError, TypeError) as error:
            raise StudyError(
                f"The result in {source} is missing or damaged ({error}); delete the folder and run it again."
            ) from error
        return cls(backend, makespan_ns, **tables, provenance=provenance)


def _refuse_without_checksums(source: Path, provenance: Mapping[str, Any]) -> None:
    """Raise `StudyError` if the checksums are missing of a result that was saved with them."""
    versions = provenance.get("versions")
    version = str(versions.get("chakrascope", "")) if isinstance(versions, dict) else ""
    if version and not version.startswith(_WITHOUT_CHECKSUMS) and not (source / CHECKSUMS_FILE).exists():
        raise StudyError(
            f"{source / CHECKSUMS_FILE} is missing, so damage of the result cannot be detected. Next: "
            "restore the file, or delete the folder and run it again."
        )


def _of_all_ranks(tables: Mapping[str, Columns | Table]) -> dict[str, Table]:
    """Return the nodes and collectives of all ranks, from *tables* with one rank per class of equal ranks."""
    representatives = Table.of(tables["ranks"]).read(["representative"])["representative"].astype(np.int32)
    if ((representatives < 0) | (representatives >= len(representatives))).any():
        raise ValueError("a rank is marked as equal to a missing rank")
    nodes, calls = Table.of(tables["nodes"]), Table.of(tables["collectives"])
    return {
        "nodes": nodes_of_all(nodes, representatives),
        "collectives": calls_of_all(calls, representatives),
    }


def _provenance(stored: Any) -> dict[str, Any]:
    if not isinstance(stored, dict) or not all(
        isinstance(stored.get(key, []), list) for key in ("warnings", "assumptions")
    ):
        raise TypeError("its provenance is not a mapping whose warnings and assumptions are lists")
    return stored


def _makespan_ns(stored: Any) -> int:
    makespan_ns = int(stored)
    if not 0 <= makespan_ns < _NS_BEYOND:
        raise ValueError(f"the makespan of {makespan_ns:.3g} ns is out of range")
    return makespan_ns


def _saved_nodes(source: Path) -> SavedNodes:
    """Return the nodes saved in *source*, or raise `ValueError` for missing or non-integer columns."""
    saved = SavedNodes(source / "nodes.parquet")
    for column in COLUMNS["nodes"]:
        kind = saved.kinds.get(column, "other")
        if kind in ("text", "other") or np.dtype(kind).kind not in _KINDS:
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
