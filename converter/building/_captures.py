"""The graphs that a rank captured, from the traces of their capture."""

from __future__ import annotations

from pathlib import Path

from ...errors import TraceError, TraceFormatError
from ..linking import CapturedGraph, captured_graphs, launches_graphs
from ..readers import DeviceTrace, RankTraces, read_device_trace

__all__ = ["captures_of"]


def captures_of(traces: RankTraces, trace: DeviceTrace) -> tuple[list[CapturedGraph], list[str]]:
    """Return the graphs in a rank's capture traces, and sentences on those that cannot be used.

    Traces that were only found beside a *trace* that launches no graph are not read.

    Raises `TraceError` for traces that were given and cannot be read, or hold no capture.
    """
    if not traces.captures_given and not launches_graphs(trace):
        return [], []
    graphs: list[CapturedGraph] = []
    unread: list[str] = []
    for path in traces.capture_paths:
        found, why = _captured(path)
        if why is not None and traces.captures_given:
            raise why
        graphs += found
        unread += (
            [] if why is None else [f"the capture trace {path.name} beside the trace is left out: {why}"]
        )
    if traces.captures_given and not graphs:
        raise TraceFormatError(
            f"{traces.capture_paths[0]} (rank {traces.rank}) holds no capture of a graph: no call such as "
            "cudaStreamBeginCapture and cudaStreamEndCapture with launches between them. Give the trace that "
            "was taken while the graphs were captured, or leave --capture-trace out."
        )
    return graphs, unread


def _captured(path: Path) -> tuple[list[CapturedGraph], TraceError | None]:
    """Return the graphs captured in the trace at *path*, or why it cannot be read."""
    try:
        return captured_graphs(read_device_trace(path, with_arguments=True)), None
    except TraceError as error:
        return [], error
