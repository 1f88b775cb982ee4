"""The conventions of our graphs: kinds of nodes, causes of host time, lanes, and names no trace has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ...support.table import TextColumn
    from ._graph import Column

KINDS: Mapping[str, str] = {
    "compute": "Computation",
    "communication": "Communication",
    "copy": "Copies",
    "memory": "Remote memory",
    "host": "Host work",
    "sync": "Synchronisation",
    "wait": "Waiting for peers",
    "idle": "Idle",
}
"""Each kind of a node or segment, and its label. Every table, chart and column uses these alone.

``compute`` is kernels, or operators where the host computes; ``copy`` is copies and memory sets of a device;
``memory`` is remote memory (MEM_LOAD, MEM_STORE); ``host`` is what a host thread does beside these, with its
cause in `HOST_CAUSES`; ``sync`` is a host thread that waits for the device; ``wait`` is waiting for a peer;
``idle`` is a device or a rank that has nothing to run.
"""
HOST_CAUSES: Mapping[str, str] = {
    "input_pipeline": "Input pipeline",
    "worker_wait": "Waiting for a data loader worker",
    "sampler": "Sampler of a data loader",
    "garbage_collection": "Garbage collection",
    "lock": "Waiting for a lock or the GIL",
    "descheduled": "Waiting for a processor (descheduled)",
    "sleep": "Sleeping",
    "io": "File and network I/O",
    "checkpoint": "Checkpoint",
    "validation": "Validation",
    "logging": "Logging and formatting",
    "recomputation": "Recomputing activations",
    "anomaly_detection": "Anomaly detection of autograd",
    "synchronisation": "Host-device synchronisation",
    "compilation": "Compilation",
    "communication_call": "Inside communication calls",
    "optimizer": "Optimizer bookkeeping",
    "python": "Python between operators",
    "dispatch": "Dispatch and launches",
}
"""Each cause of host time (column ``cause``), and its label; "" is host time whose cause is unknown."""
# The collectives of a group have a lane of their own, and so have the messages to or from a peer in it: on
# the wire, messages only follow those in the same direction between the same two ranks.
COMM_LANE, MESSAGE_LANE = 100, 500
# Stream s of device d is lane DEVICE_LANE x (d + 1) + s.
DEVICE_LANE = 1000
BUFFERS: Mapping[str, str] = {
    "all_reduce": "gradient buckets of DistributedDataParallel",
    "all_gather": "gathered parameters of FSDP",
    "reduce_scatter": "reduced gradients of FSDP",
}
"""The place of what copies to and from the buffers of each type of collective."""
# The time between the collectives of production logs.
GAP = "gap between collectives, not profiled"
# Before the name of the operator that follows host work outside any operator.
HOST_BEFORE = "host before "
# Host work after the last operator, and of a thread without any: only its calls of the runtime were recorded.
HOST_END = "host until the end of the step"
HOST_UNRECORDED = "host work between calls of the runtime"
# Before the name of the kernel that a host thread waits for without a call.
SPIN = "spin until "
# Before the name of the work that a device began late, without a known reason.
LATENCY = "device latency before "


def with_current_kinds(nodes: dict[str, Column]) -> None:
    """Replace the kinds of version 0.2's files: ``launch`` and ``comm_call``."""
    kinds = nodes.get("kind")
    if kinds is None or not {"launch", "comm_call"}.intersection(_texts(kinds).texts):
        return
    old = _texts(kinds)
    names = _texts(nodes["name"])
    latency = names.passes(lambda text: text.startswith(LATENCY))
    launch, call = (old == text for text in ("launch", "comm_call"))
    nodes["kind"] = _replaced(old, {"idle": launch & latency, "host": (launch & ~latency) | call})
    if call.any():
        causes = nodes.get("cause")
        nothing = np.zeros(len(old.numbers), np.int32)
        known = _texts(causes) if causes is not None and len(causes) else type(old)(nothing, [""])
        nodes["cause"] = _replaced(known, {"communication_call": call})


def _texts(column: Column) -> TextColumn:
    if isinstance(column, np.ndarray):
        raise TypeError("not a column of texts")
    return column


def _replaced(column: TextColumn, rows_of: Mapping[str, np.ndarray]) -> TextColumn:
    """Return *column* with the text of each key in its rows."""
    numbers, texts = column.numbers.copy(), list(column.texts)
    for text, rows in rows_of.items():
        if text not in texts:
            texts.append(text)
        numbers[rows] = texts.index(text)
    return type(column)(numbers, texts)
