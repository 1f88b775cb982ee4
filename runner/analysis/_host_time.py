"""Distinguish stalls of a host thread from its usual work, and a busy machine from a busy script."""

from __future__ import annotations

import numpy as np

from ...converter import Graph, Workload
from ...converter.building import rank_delays
from ...converter.chakra import DELAYED, DEVICE_LANE
from ...support import duration_text
from ...support.table import Flags

DIFFUSE_CAUSES = ("", "dispatch", "python")
"""Causes of many short pieces of host work; a long piece is a stall."""
INSIDE_CALLS = "communication_call"
"""The cause of time in which a thread issues a communication, or waits inside the call."""

LOOP_CALLS, SHORT_NS = 100, 50_000
"""A loop calls an operator of at most this duration (ns) at least this many times."""
SHORT = "short"
"""The `Target` of ``loops`` for all short operators in loops."""

# A stall takes at least this many times as long as the rank's median piece of host work, and at least this
# duration (ns): Python and the start of a backward pass take longer than the median, too.
_STALL_TIMES, _LEAST_STALL_NS = 10, 200_000
_MATTERS = 0.05  # a machine is busy if every rank waits for a processor at least this fraction of the step


def diffuse_host(graph: Graph) -> Flags:
    """Return a mask of the nodes that are host work without a special cause."""
    nodes = graph.node_columns
    diffuse: Flags = (nodes["kind"] == "host") & nodes["cause"].passes(DIFFUSE_CAUSES.__contains__)
    return diffuse


def typical_host_ns(graph: Graph) -> int:
    """Return the median duration (ns) of the pieces of host work in *graph*, 0 if there are none."""
    durations = np.asarray(graph.node_columns["duration_ns"])[diffuse_host(graph)]
    durations = durations[durations > 0]
    return int(np.median(durations)) if len(durations) else 0


def least_stall_ns(graph: Graph) -> int:
    """Return the duration (ns) above which a piece of host work in *graph* is a stall."""
    return max(_LEAST_STALL_NS, _STALL_TIMES * typical_host_ns(graph))


def short_loops(graph: Graph) -> Flags:
    """Return a mask of the short operators that a host thread calls in loops, and of the dispatch between.

    A loop ends with a longer operator, the phase or the module. The backward pass and the optimizer are left
    out, because they call an operator for each operator or parameter of the model.
    """
    nodes = graph.node_columns
    stream, starts = np.asarray(nodes["stream"]), np.asarray(nodes["measured_start_ns"])
    texts = [nodes[name].numbers for name in ("phase", "module", "operator")]
    order = np.lexsort((starts, stream))
    order = order[(stream[order] < DEVICE_LANE) & (nodes["cause"] != DELAYED)[order]]
    is_short = np.asarray(nodes["duration_ns"]) <= SHORT_NS
    is_short &= nodes["kind"].passes(("compute", "host").__contains__)
    is_short &= nodes["cause"].passes(DIFFUSE_CAUSES.__contains__)
    is_short &= nodes["phase"].passes(("forward", "other", "").__contains__)
    begins = ~is_short[order]
    for column in (stream, *texts[:2]):
        begins |= np.diff(column[order], prepend=-1) != 0
    loop = np.cumsum(begins)
    called = is_short[order] & (nodes["kind"] == "compute")[order]
    calls = np.column_stack([loop[called], texts[2][order[called]]])
    different, counts = np.unique(calls, axis=0, return_counts=True)
    found = np.zeros(len(stream), bool)
    found[order] = is_short[order] & np.isin(loop, different[counts >= LOOP_CALLS, 0])
    return found


def cause_ns(graph: Graph, cause: str) -> int:
    """Return the total time (ns) of the nodes of *graph* with *cause*."""
    nodes = graph.node_columns
    return int(np.asarray(nodes["duration_ns"])[nodes["cause"] == cause].sum())


def contention(workload: Workload, makespan_ns: int) -> str:
    """Return a sentence if all ranks waited about equally long for a processor, otherwise "".

    In that case, the machine was busy, rather than one rank of the script. If known, the waits of
    the ranks' median unprofiled steps are used.
    """
    delays = rank_delays(workload.metadata) or [cause_ns(graph, DELAYED) for graph in workload.graphs]
    if len(delays) < 2 or 2 * min(delays) < max(delays) or min(delays) < _MATTERS * makespan_ns:
        return ""
    least, most = duration_text(min(delays)), duration_text(max(delays))
    return f"Every rank waited for a processor ({least} to {most}): the machine was busy during the capture."
