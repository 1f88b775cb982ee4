"""Convert, replay and explain a GPU trace, and collect the figures that other tools also have."""

from __future__ import annotations

import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd
from gpu_intervals import CLASSES, Times, times_of

from chakrascope.converter import Workload, convert_files
from chakrascope.errors import ChakrascopeError
from chakrascope.runner import Detail, RunAnalysis, Study, analyse_run, get_backend, prepare
from chakrascope.runner.analysis import Target, what_if

__all__ = ["Gain", "Ours", "Replay", "measure"]


@dataclass(frozen=True)
class Gain:
    """The promised gain of a piece of advice, and the gain of its what-if (-1: no what-if)."""

    what: str
    promised_ns: int
    simulated_ns: int


@dataclass(frozen=True)
class Replay:
    """A step as measured and as replayed."""

    step: str
    measured_ns: int
    replayed_ns: int

    @property
    def error(self) -> float:
        """The relative error of the replayed step: 0.01 is 1 % too long."""
        return self.replayed_ns / max(1, self.measured_ns) - 1


@dataclass(frozen=True)
class Ours:
    """The results for one trace: why it was *refused*, the place where it *crashed*, or all figures.

    *graph* are the plain sums of the graph's nodes at measured times, and *answer* are the sums of the
    replay's summary. *own* is the interval of the steps' own time, in ns after the device's first work; empty
    if unknown.
    """

    refused: str = ""
    crashed: str = ""
    seconds: float = 0.0
    steps: tuple[int, ...] = ()
    step_names: tuple[str, ...] = ()
    own: tuple[int, ...] = ()
    graph: Times | None = None
    answer: Times | None = None
    headline: str = ""
    replays: tuple[Replay, ...] = ()
    gains: tuple[Gain, ...] = ()
    operators: int = 0
    workload: Workload | None = field(default=None, repr=False)


def measure(path: Path) -> Ours:
    """Return the product's answers about the trace in *path*."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _measure(path, Path(folder))
    except ChakrascopeError as error:
        return Ours(refused=" ".join(str(error).split()))
    except Exception:  # any exception is a crash of the product, which the page names
        last = traceback.format_exc().strip().splitlines()
        return Ours(crashed=f"{last[-1]} ({last[-3].strip() if len(last) > 2 else ''})")


def _measure(path: Path, folder: Path) -> Ours:
    began = time.perf_counter()
    workload = convert_files(None, str(path), None, step="all")
    run = _replayed(workload, folder / "all")
    seconds = time.perf_counter() - began
    steps = tuple(int(step) for step in workload.metadata.get("steps", []))
    replays = [_replay("all", run)]
    if len(steps) > 1:
        median = convert_files(None, str(path), None, step="median")
        replays.append(_replay("median", _replayed(median, folder / "median")))
    nodes = workload.graphs[0].nodes
    device = nodes[~nodes["is_cpu_op"].astype(bool) & nodes["kind"].isin(CLASSES)]
    return Ours(
        seconds=seconds,
        steps=steps,
        step_names=tuple(dict(workload.metadata.get("step_names") or {}).values()),
        own=_own(workload, int(device["measured_start_ns"].min())),
        graph=_graph_times(device),
        answer=_answer(run, device),
        headline=run.summary.headline,
        replays=tuple(replays),
        gains=tuple(_gains(run)),
        operators=int((device["operator"] != "").sum()),
        workload=workload,
    )


def _replayed(workload: Workload, folder: Path) -> RunAnalysis:
    study = Study.create(folder)
    experiment = prepare(study.add_workload(workload, "trace"), "default", None, backend="replay")
    study.add_run(experiment, get_backend("replay").run(experiment))
    return analyse_run(study)


def _replay(step: str, run: RunAnalysis) -> Replay:
    measured = run.workload.metadata.get("measured_step_ns") or {}
    return Replay(step, max(measured.values(), default=0), run.result.makespan_ns)


def _own(workload: Workload, first_ns: int) -> tuple[int, ...]:
    shares = next(iter((workload.metadata.get("step_shares") or {}).values()), [])
    begins, ends = ([int(share[column]) for share in shares] for column in (1, 2))
    return (min(begins) - first_ns, max(ends) - first_ns) if shares else ()


def _graph_times(device: pd.DataFrame) -> Times:
    start = device["measured_start_ns"].to_numpy(np.int64)
    end = start + device["duration_ns"].to_numpy(np.int64)
    return times_of(start, end, device["kind"].map(CLASSES.index).to_numpy(np.int8))


def _answer(run: RunAnalysis, device: pd.DataFrame) -> Times:
    """Return the row of the rank table, without idle time before the device's first work and after its last.

    Other tools count from the first to the last work of a device, whereas a step begins on the host.
    """
    row = run.summary.ranks.iloc[0]
    ran = run.result.nodes.set_index("node_id").loc[device["node_id"]]
    first, last = int(ran["start_ns"].min()), int(ran["end_ns"].max())
    around = first + run.result.makespan_ns - last
    copies = next((int(row[name]) for name in ("exposed_copy_ns", "copy_ns") if name in row), 0)
    comm = int(row["exposed_comm_ns"])
    return Times(
        count=len(device),
        kernels=int((device["kind"] != "copy").sum()),
        span_ns=last - first,
        compute_ns=int(row["compute_ns"]),
        exposed_comm_ns=comm,
        exposed_copy_ns=copies,
        idle_ns=int(row["idle_ns"]) - around,
        comm_ns=comm + int(row["overlap_ns"]),
        overlap_ns=int(row["overlap_ns"]),
    )


def _gains(run: RunAnalysis) -> Iterator[Gain]:
    """Yield every advice with the gain of its what-if."""
    experiment = replace(run.study.experiment(run.info.id), detail=Detail.TOTALS)
    for item in run.advices():
        name, _, times = item.key.rpartition("=")
        try:
            after_ns = what_if(experiment, [(Target.parse(name), float(times))]).makespan_ns
        except ChakrascopeError:
            yield Gain(item.what, item.gain_ns, -1)
        else:
            yield Gain(item.what, item.gain_ns, run.result.makespan_ns - after_ns)
