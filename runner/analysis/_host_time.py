"""Distinguish stalls of a host thread from its usual work, and a busy machine from a busy script."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...converter import Graph, Workload
from ...converter.building import rank_delays
from ...converter.chakra import TextColumn
from ...support import duration_text

Flags = npt.NDArray[np.bool_]

DIFFUSE_CAUSES = ("", "dispatch", "python")
"""Causes of the many short pieces of host work. A long piece of host work with such a cause is a stall."""
DELAYED = "descheduled"
"""The cause of time in which a thread had no processor, regardless of the work it was doing."""
INSIDE_CALLS = "communication_call"
"""The cause of time in which a thread issues a communication or waits inside a communication call."""
STALL_TIMES = 10
"""A piece of host work is a stall if it takes this many times as long as the rank's median piece."""

_MATTERS = 0.05  # on a busy machine, every rank waits for a processor at least this share of the step


def texts_where(nodes: Mapping[str, Any], column: str, test: Callable[[str], bool]) -> Flags:
    """Return a mask of the rows of a text column that pass *test*, which is called once per distinct text."""
    texts: TextColumn = nodes[column]
    passed = np.array([test(text) for text in texts.texts] or [False], bool)
    flags: Flags = passed[texts.numbers] if len(texts.numbers) else np.zeros(0, bool)
    return flags


def diffuse_host(graph: Graph) -> Flags:
    """Return the mask of nodes that are host work without a special cause."""
    nodes = graph.node_columns
    return texts_where(nodes, "kind", "host".__eq__) & texts_where(
        nodes, "cause", DIFFUSE_CAUSES.__contains__
    )


def typical_host_ns(graph: Graph) -> int:
    """Return the median duration (ns) of the pieces of host work of *graph*, 0 if there is no host work."""
    durations = np.asarray(graph.node_columns["duration_ns"])[diffuse_host(graph)]
    durations = durations[durations > 0]
    return int(np.median(durations)) if len(durations) else 0


def cause_ns(graph: Graph, cause: str) -> int:
    """Return the total duration (ns) of the nodes of *graph* with *cause*."""
    nodes = graph.node_columns
    return int(np.asarray(nodes["duration_ns"])[texts_where(nodes, "cause", cause.__eq__)].sum())


def contention(workload: Workload, makespan_ns: int) -> str:
    """Return a sentence if all ranks waited about equally long for a processor; "" otherwise.

    If all ranks wait equally long, the machine was busy, and no single rank of the script is the cause. The
    waits of the ranks' median unprofiled steps are used if they are known.
    """
    delays = rank_delays(workload.metadata) or [cause_ns(graph, DELAYED) for graph in workload.graphs]
    if len(delays) < 2 or 2 * min(delays) < max(delays) or min(delays) < _MATTERS * makespan_ns:
        return ""
    least, most = duration_text(min(delays)), duration_text(max(delays))
    return f"Every rank waited for a processor ({least} to {most}): the machine was busy during the capture."
