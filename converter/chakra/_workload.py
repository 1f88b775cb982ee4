"""A workload: one Chakra graph a rank, the process groups, and where it came from."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import UsageError, WorkloadError, WorkloadFormatError
from ...support import new_file, remove_leftovers, sync_files, write_file
from ._codec import decode_graph, read_et
from ._encode import encoded_pieces
from ._graph import EdgeKind, Graph, NodeType
from ._scaling import replicate
from ._tables import load_tables, save_tables

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Workload"]


@dataclass(frozen=True)
class Workload:
    """What a cluster executes.

    Rank *r* runs ``graphs[program_of_rank[r]]``. *groups* maps a positive id to its global ranks in ring
    order; group 0 is always all ranks and never listed.
    """

    graphs: tuple[Graph, ...]
    program_of_rank: np.ndarray
    groups: dict[int, tuple[int, ...]] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def num_ranks(self) -> int:
        """Return how many ranks there are."""
        return len(self.program_of_rank)

    @classmethod
    def load(cls, prefix: str | Path) -> Workload:
        """Read ``PREFIX.{rank}.et`` and what lies beside them.

        Groups, metadata and edge reasons are optional: bare ``.et`` files of any origin load. Ranks whose
        files are identical share one graph. Raises `WorkloadError` when a rank is missing and
        `WorkloadFormatError` for a damaged file.
        """
        prefix = Path(prefix)
        paths = _rank_files(prefix)
        metadata = _load_metadata(prefix)
        kept = load_tables(prefix, metadata.pop("tables", None))
        graphs: list[Graph] = []
        seen: dict[str, int] = {}
        program = np.empty(len(paths), dtype=np.int32)
        for rank, path in enumerate(paths):
            data = read_et(path)
            digest = hashlib.sha256(data).hexdigest()
            if digest not in seen:
                seen[digest] = len(graphs)
                known = kept.get(digest)
                graphs.append(known or decode_graph(data, rank=rank, source=str(path)))
            program[rank] = seen[digest]
        expected = metadata.pop("num_ranks", len(paths))
        if isinstance(expected, int) and expected > len(paths):
            raise WorkloadError(
                f"The workload {prefix} has {expected} ranks, but {prefix}.{len(paths)}.et is missing. "
                "Convert the traces again."
            )
        if not kept:
            graphs = _with_edge_kinds(graphs, prefix)
        return cls(tuple(graphs), program, _load_groups(prefix), metadata)

    def save(self, prefix: str | Path) -> None:
        """Write the ``.et`` files, groups, tables and, last, the metadata, each atomically."""
        prefix = Path(prefix)
        prefix.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(prefix.parent)
        digests = []
        for program, graph in enumerate(self.graphs):
            ranks = np.flatnonzero(self.program_of_rank == program).tolist()
            path, *others = (_beside(prefix, f".{rank}.et") for rank in ranks)
            digests.append(_write_graph(graph, path, others))
        sync_files(_beside(prefix, f".{rank}.et") for rank in range(self.num_ranks))
        groups = _beside(prefix, ".groups.json")
        if self.groups:
            write_file(groups, json.dumps({str(key): list(value) for key, value in self.groups.items()}))
        else:
            groups.unlink(missing_ok=True)
        document = {
            "format": "chakrascope-workload",
            "version": 1,
            "num_ranks": self.num_ranks,
            "tables": save_tables(prefix, self.graphs, digests),
            **self.metadata,
        }
        write_file(_beside(prefix, ".workload.json"), json.dumps(document, indent=1, sort_keys=True))

    def scale_out(self, num_ranks: int) -> Workload:
        """Return this workload replicated as data parallelism would, on *num_ranks* ranks.

        *num_ranks* is a multiple of the present number. What that takes for granted is appended to
        ``metadata["assumptions"]``. Raises `UsageError` for any other number.
        """
        if num_ranks < self.num_ranks or num_ranks % self.num_ranks:
            raise UsageError(
                f"A workload of {self.num_ranks} ranks cannot be scaled out to {num_ranks}. "
                f"Ask for a multiple of {self.num_ranks}."
            )
        if num_ranks == self.num_ranks:
            return self
        graphs, program, groups, assumptions = replicate(
            self.graphs, self.program_of_rank, self.groups, num_ranks
        )
        metadata = {
            **self.metadata,
            "scaled_from_ranks": self.metadata.get("scaled_from_ranks", self.num_ranks),
            "assumptions": [*self.metadata.get("assumptions", []), *assumptions],
        }
        return Workload(graphs, program, groups, metadata)

    def node_table(self) -> pd.DataFrame:
        """Return the nodes of all ranks, ``rank`` first; one row for each node each rank executes."""
        import pandas as pd  # noqa: PLC0415 - converting does without

        tables = []
        for rank, program in enumerate(self.program_of_rank.tolist()):
            table = self.graphs[program].nodes.copy()
            table.insert(0, "rank", np.int64(rank))
            tables.append(table)
        table_of_all: pd.DataFrame = pd.concat(tables, ignore_index=True)
        return table_of_all

    def to_networkx(self, rank: int) -> Any:
        """Return the graph of *rank* as a ``networkx.DiGraph``; node and edge attributes are the columns."""
        import networkx as nx  # noqa: PLC0415 - an optional extra

        graph = self.graphs[int(self.program_of_rank[rank])]
        result = nx.DiGraph(rank=rank)
        for record in graph.nodes.to_dict("records"):
            result.add_node(record["node_id"], **{str(key): value for key, value in record.items()})
        for src, dst, kind in graph.edges.itertuples(index=False):
            result.add_edge(int(src), int(dst), kind=EdgeKind(kind).name)
        return result

    def summary(self) -> dict[str, int]:
        """Return the number of ranks, nodes and communication nodes over all ranks."""
        comm = [int((graph.node_columns["type"] >= NodeType.COMM_SEND).sum()) for graph in self.graphs]
        nodes = [len(graph.node_columns["node_id"]) for graph in self.graphs]
        programs = self.program_of_rank.tolist()
        return {
            "num_ranks": self.num_ranks,
            "nodes": sum(nodes[program] for program in programs),
            "communication_nodes": sum(comm[program] for program in programs),
        }


def _beside(prefix: Path, suffix: str) -> Path:
    return prefix.with_name(prefix.name + suffix)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise WorkloadError(
            f"{path} cannot be read: {error.strerror}. Check the file and its permissions."
        ) from error


def _rank_files(prefix: Path) -> list[Path]:
    """Return the ``.et`` files of ranks 0, 1, ...; raise when one is missing."""
    pattern = re.compile(re.escape(prefix.name) + r"\.(\d+)\.et")
    found: dict[int, Path] = {}
    if prefix.parent.is_dir():
        for path in prefix.parent.iterdir():
            match = pattern.fullmatch(path.name)
            if match:
                found[int(match[1])] = path
    if not found:
        raise WorkloadError(
            f"No workload at {prefix}: {prefix.name}.0.et does not exist. Give the prefix of the .et files, "
            "or convert a trace set first."
        )
    missing = sorted(set(range(max(found) + 1)) - set(found))
    if missing:
        raise WorkloadError(
            f"The workload {prefix} has no file for rank {missing[0]} ({len(missing)} missing), although "
            f"rank {max(found)} exists. Add {prefix.name}.{missing[0]}.et or remove the files above it."
        )
    return [found[rank] for rank in range(len(found))]


def _load_groups(prefix: Path) -> dict[int, tuple[int, ...]]:
    path = _beside(prefix, ".groups.json")
    if not path.exists():
        return {}
    try:
        document = json.loads(_read(path))
        return {int(key): tuple(int(rank) for rank in ranks) for key, ranks in document.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise WorkloadFormatError(
            f'{path} is no groups file ({error}). It looks like {{"1": [0, 1]}}: group number to ranks.'
        ) from error


def _load_metadata(prefix: Path) -> dict[str, Any]:
    path = _beside(prefix, ".workload.json")
    if not path.exists():
        return {}
    try:
        document = json.loads(_read(path))
    except ValueError as error:
        raise WorkloadFormatError(f"{path} is damaged ({error}). Convert the trace set again.") from error
    if not isinstance(document, dict):
        raise WorkloadFormatError(f"{path} holds no mapping. Convert the trace set again.")
    for own in ("format", "version"):
        document.pop(own, None)
    return document


def _with_edge_kinds(graphs: list[Graph], prefix: Path) -> list[Graph]:
    """Give the edges of *graphs* the reasons kept in the table beside the files, where it still fits them."""
    path = _beside(prefix, ".edges.parquet")
    if not path.exists():
        return graphs
    import pandas as pd  # noqa: PLC0415 - converting does without

    try:
        table = pd.read_parquet(path)
        kinds = {int(str(rank)): part for rank, part in table.groupby("rank")}
        return [_reasoned(graph, kinds.get(graph.rank)) for graph in graphs]
    except (OSError, ValueError, KeyError) as error:
        raise WorkloadFormatError(f"{path} is damaged ({error}). Delete it or convert again.") from error


def _reasoned(graph: Graph, kinds: pd.DataFrame | None) -> Graph:
    if kinds is None:
        return graph
    merged = graph.edges.merge(
        kinds[["src", "dst", "kind"]], on=["src", "dst"], how="left", suffixes=("", "_kept")
    )
    merged["kind"] = merged["kind_kept"].fillna(merged["kind"]).astype("uint8")
    return Graph(graph.rank, graph.nodes, merged[["src", "dst", "kind"]], graph.metadata, graph.extra)


def _write_graph(graph: Graph, path: Path, others: Sequence[Path]) -> str:
    """Write the file of *graph* to *path* and the *others*, each atomically; return its SHA-256."""
    digest = hashlib.sha256()
    with new_file(path, sync=False) as temporary:  # `save` syncs all of them together
        with temporary.open("wb") as file:
            for piece in encoded_pieces(graph):
                digest.update(piece)
                file.write(piece)
        for other in others:
            with new_file(other, sync=False) as copy:
                shutil.copyfile(temporary, copy)
    return digest.hexdigest()
