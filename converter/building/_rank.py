"""Open the traces of one rank and build its graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from ...errors import TraceError, TraceFormatError
from ...support import mapped_in_threads
from ...tracer import read_evidence
from ..chakra import DEVICE_LANE, Graph
from ..linking import CapturedGraph, captured_graphs, launches_graphs, lend_records, with_records
from ..readers import (
    HOST_DEVICES,
    LINKED_LACKS,
    NCCL,
    DeviceTrace,
    HostTrace,
    RankTraces,
    read_device_trace,
    read_host_trace,
    read_linked,
    read_linked_host,
    tensors,
)
from ._device_graph import device_graph
from ._host_graph import host_graph
from ._rank_graph import OpenRank, RankGraph, Selection, last_entries
from ._recorded_shapes import read_recorded_host, with_own_records
from ._repetition import optimizer_steps, repeated_steps
from ._steps import MarkedSteps, Window, annotated_steps, named_steps, own_steps, whole_trace
from ._trace_identity import Identity, as_assumptions, doubts_of_pair

_LOOKED_AT = 5_000
# Maximum total size of compressed device traces that are read once and kept. Larger traces are read again.
_KEPT_BYTES = 32 * 2**20
_NO_OPERATOR = (
    "a device trace holds no operator (cpu_op), so host work and kernels have no operator names; record "
    "CPU activities as well to add them"
)


class StepsDiffer(Exception):
    """The error for steps with different communication, which cannot share a host trace."""


def open_ranks(ranks: Sequence[RankTraces], *, keep: bool, threads: int = 1) -> list[OpenRank]:
    """Find the steps of all *ranks*; unknown steps are read from the device traces.

    If *keep* is true, small device traces are retained after reading. Several *threads* read traces
    concurrently.
    """
    small = len(ranks) == 1 or sum(_size(rank.device_path) for rank in ranks) < _KEPT_BYTES
    opened = partial(open_rank, keep=keep and small)
    found = mapped_in_threads(opened, ranks, threads)
    for rank, entries in zip(found, last_entries(ranks), strict=True):
        rank.last_entries = entries
    return found


def open_rank(traces: RankTraces, *, keep: bool) -> OpenRank:
    """Find the steps of one rank; with *keep*, a device trace that had to be read is retained."""
    if traces.steps and not traces.annotation:
        return OpenRank(traces, list(traces.steps))
    trace, host = _device_trace(traces)
    marked = _marked(traces, trace)
    steps, is_marked, begins_with = marked.steps, bool(marked.steps), ""
    if not is_marked:
        steps, begins_with = optimizer_steps(trace)
        if not steps:
            steps, begins_with = repeated_steps(trace)
    steps = steps or [whole_trace(trace)]
    opened = OpenRank(
        traces, steps, is_marked, marked.names, marked.which, trace.world_size, trace.rank, begins_with,
        own_steps(trace, steps),
    )  # fmt: skip
    if keep:
        opened.trace, opened.host = trace, host
    return opened


def _marked(traces: RankTraces, trace: DeviceTrace) -> MarkedSteps:
    """Return the steps that *trace* marks, or the occurrences of the requested annotation."""
    if not traces.annotation:
        return annotated_steps(trace)
    place = f"{traces.device_path} (rank {traces.rank})"
    window = Window.of(traces.steps) if traces.steps else None
    return named_steps(trace, traces.annotation, place, window)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def rank_graph(opened: OpenRank, selection: Selection) -> RankGraph:
    """Return the graph of one rank for the selected steps.

    Raises `TraceError` for traces that are unusable or come from different runs. Raises `StepsDiffer` if only
    the step with a host trace can be converted.
    """
    traces = opened.traces
    trace, host, lacking = read_rank(traces, opened.trace, opened.host)
    opened.trace = opened.host = None
    lacking = [*lacking, trace.left_out] if trace.left_out else lacking
    window = Window.of([step for step in opened.steps if step.index in selection.steps])
    identity = Identity.of(traces, trace, host)
    if traces.host_path not in (None, traces.device_path):
        covered = window.steps if traces.structure is None else (traces.structure,)
        place = f"rank {traces.rank}, {traces.host_path} and {traces.device_path}"
        lacking = lacking + as_assumptions(doubts_of_pair(host, trace, covered, place))
    if traces.structure is not None:
        lent = lend_records(trace, host, traces.structure, window.steps)
        if lent is None:
            raise StepsDiffer
        trace, host = lent
    groups = {**host.groups, **trace.groups, **traces.groups}
    labels = {**host.group_labels, **trace.group_labels, **traces.group_labels}
    host = msgspec.structs.replace(host, group_labels=labels)
    evidence = None if traces.evidence_path is None else read_evidence(traces.evidence_path)
    if len(trace.works):
        linked = with_records(trace, host)
        captured, unread = _captures_of(traces, trace)
        lacking = [*lacking, *unread]
        own = device_graph(
            opened,
            linked,
            host,
            window,
            groups=groups,
            world_size=selection.world_size,
            whole=not opened.marked and len(selection.steps) == len(opened.steps),
            evidence=evidence,
            captured=captured,
        )
        _refuse_untied(traces, own.graph, trace)
        if not trace.events.is_operator.any():
            lacking = [*lacking, _NO_OPERATOR]
    else:
        _refuse_lost_device(traces, trace, host)
        own = host_graph(
            opened, trace, host, window, groups=groups, world_size=selection.world_size, evidence=evidence
        )
    return replace(own, notes=[*own.notes, *lacking], identity=identity)


def _device_trace(traces: RankTraces) -> tuple[DeviceTrace, HostTrace | None]:
    """Read the device trace; if a linked trace replaces both traces, also read the host trace."""
    if traces.linked and traces.device_path == traces.host_path:
        return read_linked(traces.device_path)
    return read_device_trace(traces.device_path, with_arguments=traces.host_path is None), None


def read_rank(
    traces: RankTraces, trace: DeviceTrace | None = None, host: HostTrace | None = None
) -> tuple[DeviceTrace, HostTrace, list[str]]:
    """Return the device trace and host trace of a rank, and notes on missing information.

    *trace* and *host* are the traces that are already in memory. Raises `TraceError` for unusable files.
    """
    if trace is None:
        trace, host = _device_trace(traces)
    if traces.host_path is None:
        trace = with_own_records(trace)
        host, lacking = read_recorded_host(trace)
        return trace, host, [lacking]
    if not traces.linked:
        return trace, read_host_trace(traces.host_path), []
    if host is not None:
        return trace, host, [LINKED_LACKS]
    return trace, read_linked_host(traces.host_path), []


def _refuse_lost_device(traces: RankTraces, trace: DeviceTrace, host: HostTrace) -> None:
    """Raise `TraceError` if the rank used a device, but the trace lacks the work of the device."""
    named = traces.device if traces.device not in HOST_DEVICES else _tensor_device(host)
    if not named and any(text.startswith(NCCL) for text in trace.texts):
        named = "a GPU"
    if named in HOST_DEVICES and not len(trace.calls):
        return
    lacking = (
        f"{traces.device_path}: rank {traces.rank} computed on {named or 'an accelerator'}, but the trace "
    )
    # The profiler's records of its own overhead are not device work.
    kinds = {kind: count for kind, count in trace.unread.items() if kind != "overhead"}
    held = " and ".join(f"{count:,} events of kind '{kind}'" for kind, count in kinds.items())
    if held:
        raise TraceError(
            f"{lacking}holds no kernel that chakrascope can read: it holds {len(trace.calls):,} runtime "
            f"calls and {held}. Supported are devices whose work PyTorch records as 'kernel', 'gpu_memcpy' "
            "and 'gpu_memset' (CUDA, ROCm, XPU); for such a device, capture again with its activities, "
            "and without counters."
        )
    calls = f"{len(trace.calls):,} runtime calls" if len(trace.calls) else "what the host did"
    raise TraceError(
        f"{lacking}holds no kernel, only {calls}. The profiler did not record the device. Next: capture "
        "again with device activities (ProfilerActivity.CUDA or XPU), and without another profiler."
    )


def _refuse_untied(traces: RankTraces, graph: Graph, trace: DeviceTrace) -> None:
    """Raise `TraceError` if no device work could be matched with a host call."""
    if not (graph.node_columns["stream"] >= DEVICE_LANE).any():
        raise TraceError(
            f"{traces.device_path}: none of rank {traces.rank}'s {len(trace.works)} kernels and copies was "
            "issued by a call in the chosen step. The trace lacks the runtime calls, or the device work is "
            "outside of the step. Next: capture CPU and device activities together, or choose another step."
        )


def _tensor_device(host: HostTrace) -> str:
    """Return an accelerator with tensors of the script, or "" if all tensors are on the host."""
    for kind in np.unique(host.kind[:_LOOKED_AT]).tolist():
        op = host.kinds[kind]
        for tensor in [*op.inputs, *op.outputs] if tensors(op.inputs) or tensors(op.outputs) else []:
            device = tensor[5] if isinstance(tensor, list) and len(tensor) == 6 else ""
            if isinstance(device, str) and device.partition(":")[0] not in ("", "cpu", "meta"):
                return device
    return ""


def _captures_of(traces: RankTraces, trace: DeviceTrace) -> tuple[list[CapturedGraph], list[str]]:
    """Return the captured graphs in a rank's capture traces, and notes on unusable capture traces.

    Capture traces that the user did not name are read only if *trace* launches a graph. Raises `TraceError`
    for named capture traces that cannot be read or have no capture.
    """
    if not traces.captures_given and not launches_graphs(trace):
        return [], []
    graphs: list[CapturedGraph] = []
    unread: list[str] = []
    for path in traces.capture_paths:
        try:
            graphs += captured_graphs(read_device_trace(path, with_arguments=True))
        except TraceError as error:  # noqa: PERF203 - another file may be readable
            if traces.captures_given:
                raise
            unread.append(f"the capture trace {path.name} next to the trace is ignored: {error}")
    if traces.captures_given and not graphs:
        raise TraceFormatError(
            f"{traces.capture_paths[0]} (rank {traces.rank}) holds no capture of a graph: no call such as "
            "cudaStreamBeginCapture and cudaStreamEndCapture with launches between them. Next: give the "
            "trace that was recorded while the graphs were captured, or leave out --capture-trace."
        )
    return graphs, unread
