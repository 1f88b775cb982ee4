"""A backend for tests: without an engine, every rank runs its nodes in sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...converter import Graph, NodeType
from .._experiment import Experiment
from .._result import COLUMNS, Result
from ._base import Progress
from ._outcome import collective_table


def fake_backend(_name: str) -> FakeBackend:
    """Return the backend for tests."""
    return FakeBackend()


class FakeBackend:
    """Runs the nodes of every rank one after another, in the order of their ids, without a network.

    *communication_ns*, if given, replaces the duration of every communication node.
    """

    def __init__(self, communication_ns: int | None = None) -> None:
        self.communication_ns = communication_ns

    def run(self, experiment: Experiment, progress: Progress | None = None) -> Result:
        """Return the result of *experiment*; never stalls."""
        workload = experiment.workload.model
        frames = [
            self._rank_nodes(rank, workload.graphs[program])
            for rank, program in enumerate(experiment.workload.program_of_rank)
        ]
        nodes = pd.concat(frames, ignore_index=True).astype(COLUMNS["nodes"])
        ranks = pd.DataFrame([_rank_row(rank, frame) for rank, frame in enumerate(frames)])
        if progress is not None:
            progress(int(ranks["finish_ns"].max()), len(ranks))
        return Result(
            backend=experiment.backend,
            makespan_ns=int(ranks["finish_ns"].max()),
            ranks=ranks.astype(COLUMNS["ranks"]),
            nodes=nodes[list(COLUMNS["nodes"])],
            collectives=collective_table(nodes, workload),
            provenance=experiment.describe(),
        )

    def _rank_nodes(self, rank: int, graph: Graph) -> pd.DataFrame:
        durations = graph.nodes["duration_ns"].to_numpy().clip(min=1)
        is_comm = graph.nodes["type"].to_numpy() >= NodeType.COMM_SEND
        if self.communication_ns is not None:
            durations = np.where(is_comm, self.communication_ns, durations)
        ends = np.cumsum(durations)
        ids = graph.nodes["node_id"].to_numpy()
        table: pd.DataFrame = pd.DataFrame(
            {
                "rank": rank,
                "node_id": ids,
                "start_ns": ends - durations,
                "end_ns": ends,
                "cause_node": np.concatenate([[-1], ids[:-1]]),
                "cause_is_dependency": False,
                "origin_rank": rank,
                "origin_node": ids,
                "counts_as": np.where(is_comm, "communication", _device_kinds(graph)),
            }
        )
        return table


def _device_kinds(graph: Graph) -> npt.NDArray[np.object_]:
    """Return the kind of each device node, and "" for host work."""
    kinds: npt.NDArray[np.object_] = graph.nodes["kind"].to_numpy(dtype=object)
    return np.where(graph.nodes["is_cpu_op"].to_numpy(dtype=bool), "", kinds)


def _rank_row(rank: int, frame: pd.DataFrame) -> dict[str, Any]:
    durations = frame["end_ns"] - frame["start_ns"]
    sums = durations.groupby(frame["counts_as"]).sum()
    communication, copies = (int(sums.get(kind, 0)) for kind in ("communication", "copy"))
    return {
        "rank": rank,
        "finish_ns": int(frame["end_ns"].max()),
        "exposed_comm_ns": communication,
        "compute_ns": int(sums.get("compute", 0)),
        "comm_ns": communication,
        "overlap_ns": 0,
        "copy_ns": copies,
        "exposed_copy_ns": copies,
    }
