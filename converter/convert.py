"""From a trace set to a workload: one graph a rank, with the durations that were measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from ..errors import TraceError, UsageError
from .assemble import Window, assemble
from .collectives import communications
from .graph import Graph
from .host_trace import HostTrace, read_host_trace
from .kineto import DeviceTrace, Event, read_device_trace
from .timeline import operators
from .trace_set import Flight, RankEntry, StepRange, TraceSet, read_flight_record, read_trace_set
from .workload import Workload

__all__ = ["Progress", "StepChoice", "convert"]

Progress = Callable[[int, int], None]
StepChoice = int | Literal["all", "median"]
_STEP = "ProfilerStep#"


def convert(trace_dir: Path, *, step: StepChoice = "median", progress: Progress | None = None) -> Workload:
    """Convert the trace set in *trace_dir* to a workload.

    *step* is the index of a captured step, ``"median"`` for the one whose slowest rank is the median, or
    ``"all"``. *progress* is called with (ranks done, ranks). Raises `TraceError` for an unusable trace set
    and `UsageError` for a step that was not captured.
    """
    trace_dir = Path(trace_dir)
    manifest = read_trace_set(trace_dir)
    entries = sorted(manifest.ranks, key=lambda entry: entry.rank)
    devices = [read_device_trace(trace_dir / str(entry.device_trace)) for entry in entries]
    steps = [_steps(entry, device) for entry, device in zip(entries, devices, strict=True)]
    chosen = _choose(steps, step, trace_dir)
    ids = _group_ids(entries, manifest.world_size)
    graphs = []
    for entry, device, own in zip(entries, devices, steps, strict=True):
        window = Window.of([item for item in own if item.index in chosen])
        graphs.append(_convert_rank(trace_dir, entry, device, window, ids))
        if progress is not None:
            progress(len(graphs), len(entries))
    return Workload(
        graphs=tuple(graphs),
        program_of_rank=np.arange(len(graphs), dtype=np.int32),
        groups={number: ranks for ranks, number in ids.items() if number},
        metadata=_metadata(trace_dir, manifest, chosen, graphs),
    )


def _convert_rank(
    folder: Path,
    entry: RankEntry,
    device: DeviceTrace,
    window: Window,
    ids: Mapping[tuple[int, ...], int],
) -> Graph:
    """Convert one rank's traces."""
    host = read_host_trace(folder / str(entry.host_trace))
    thread = _main_thread(device.events, window)
    ops = operators(
        (event for event in device.events if event.thread == thread), window.start_ns, window.end_ns
    )
    if not ops:
        raise TraceError(
            f"{folder / str(entry.device_trace)}: rank {entry.rank} ran no operator in the chosen step. Its "
            "clock and its manifest may disagree; choose another step or capture again."
        )
    flights = _flights(folder, entry)
    comms = communications(ops, device.events, host, _named_groups(entry, host), flights)
    return assemble(entry.rank, window, ops, comms, host, group_ids=ids)


def _flights(folder: Path, entry: RankEntry) -> Sequence[Flight]:
    if entry.flight_record is None or not (folder / entry.flight_record).exists():
        return ()
    return read_flight_record(folder / entry.flight_record)


def _named_groups(entry: RankEntry, host: HostTrace) -> dict[str, tuple[int, ...]]:
    """Return the groups by name: what the manifest lists, else what the host trace lists."""
    return {**host.groups, **{group.name: tuple(group.ranks) for group in entry.process_groups}}


def _group_ids(entries: Sequence[RankEntry], world_size: int) -> dict[tuple[int, ...], int]:
    """Return the number of each group, the same on all ranks: 0 is everyone, the others count from 1."""
    everyone = tuple(range(world_size))
    members = {tuple(group.ranks) for entry in entries for group in entry.process_groups}
    ids = {ranks: number for number, ranks in enumerate(sorted(members - {everyone, ()}), start=1)}
    return {(): 0, everyone: 0, **ids}


def _steps(entry: RankEntry, device: DeviceTrace) -> list[StepRange]:
    """Return the captured steps: the manifest's, else the profiler's annotations, else the whole trace."""
    if entry.steps:
        return entry.steps
    found = [
        StepRange(int(event.name[len(_STEP) :]), event.start_ns, event.end_ns)
        for event in device.events
        if event.name.startswith(_STEP) and event.name[len(_STEP) :].isdigit()
    ]
    if found:
        return found
    return [StepRange(0, device.events[0].start_ns, max(event.end_ns for event in device.events))]


def _choose(steps: Sequence[Sequence[StepRange]], step: StepChoice, folder: Path) -> set[int]:
    """Return the indices of the steps to convert; all ranks have them."""
    common = set.intersection(*({item.index for item in own if item.end_ns > item.start_ns} for own in steps))
    if not common:
        raise TraceError(f"{folder}: no step was captured on every rank. Capture again with more steps.")
    if step == "all":
        return common
    if step == "median":
        slowest = {
            index: max(item.end_ns - item.start_ns for own in steps for item in own if item.index == index)
            for index in common
        }
        return {sorted(common, key=lambda index: (slowest[index], index))[(len(common) - 1) // 2]}
    if step not in common:
        raise UsageError(
            f"Step {step} was not captured on every rank of {folder}. "
            f"Captured: {', '.join(map(str, sorted(common)))}; or 'median' or 'all'."
        )
    return {int(step)}


def _main_thread(events: Sequence[Event], window: Window) -> str:
    """Return the thread that ran most operators in the window."""
    counts: dict[str, int] = {}
    for event in events:
        if event.is_operator and window.start_ns <= event.start_ns < window.end_ns:
            counts[event.thread] = counts.get(event.thread, 0) + 1
    return max(counts, key=lambda thread: counts[thread], default="")


def _metadata(
    folder: Path, manifest: TraceSet, chosen: set[int], graphs: Sequence[Graph]
) -> dict[str, object]:
    """Return what the workload says about its origin; JSON-able."""
    accounting = {str(graph.rank): graph.metadata["accounting"] for graph in graphs}
    notes = sorted({note for graph in graphs for note in graph.metadata["notes"]})
    return {
        "captured": True,
        "trace_set": folder.name,
        "steps": sorted(chosen),
        "torch_version": manifest.torch_version,
        "measured_step_ns": {rank: figures["measured_step_ns"] for rank, figures in accounting.items()},
        "accounting": accounting,
        "assumptions": notes,
    }
