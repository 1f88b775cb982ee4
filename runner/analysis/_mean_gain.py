"""Estimate the gain of advice in other steps of the run, if they differ from the displayed step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ...converter import Workload
from ...converter.building import (
    captured_steps,
    computed_on_host,
    profiler_overhead,
    run_delays,
    step_times,
    usually_late_ns,
)
from ...converter.chakra import COLLECTING, DELAYED
from ...support import duration_text
from ...support.table import Ints
from .._result import Result
from .._traits import about_backend
from ._advised import MEAN_STEP, MEDIAN_STEP, SHOWN_STEP, Advice
from ._candidate import Candidate, sum_ns
from ._critical_path import CriticalPath
from ._host_time import cause_ns

_ALIKE = 0.2  # fraction of a cause's time in the shown step; a smaller difference of the mean is ignored
_NEAR = 0.1  # fraction of the shown step; a smaller difference is ignored
# Causes that need no processor, and causes of host work whose run delays are mostly separate segments.
_IDLE = ("sleep", DELAYED)
_SPLIT = ("", "dispatch", COLLECTING, "anomaly_detection")
_SCATTERED = "steps that vary from "


def over_the_run(
    one: Candidate, item: Advice, path: CriticalPath, result: Result, workload: Workload
) -> Advice:
    """Return advice with its mean gain in the run, if that is known and differs from the shown step.

    For a cause recorded in every step, the mean gain is the mean of its times in the unprofiled
    steps, each on the slowest rank.
    """
    if about_backend(result.backend).network:
        return item
    times, steps = step_times(workload.metadata), captured_steps(workload.metadata)
    is_counted = one.target.what == "cause"  # a function can have several causes
    mean_ns = times.mean_ns(one.cause) * steps if is_counted and times is not None else 0
    own_ns = max((cause_ns(graph, one.cause) for graph in workload.graphs), default=0) if mean_ns else 0
    if not own_ns:
        return _in_the_median_step(one, item, path, result, workload)
    if abs(mean_ns - own_ns) <= _ALIKE * own_ns:
        return item
    gain_ns, half_ns, whole_ns = (
        round(ns * mean_ns / own_ns) for ns in (item.gain_ns, item.half_ns, item.whole_ns)
    )
    share = gain_ns / max(gain_ns, result.makespan_ns + mean_ns - own_ns)
    return replace(
        item, gain_ns=gain_ns, share=share, key="", then="", half_ns=half_ns, whole_ns=whole_ns,
        steps=MEAN_STEP,
    )  # fmt: skip


def _in_the_median_step(
    one: Candidate, item: Advice, path: CriticalPath, result: Result, workload: Workload
) -> Advice:
    """Return advice with its gain in the median unprofiled step, if that is known and differs.

    For a late rank, the gain is the rank's usual lateness; for a busy machine, it is the thread's usual run
    delay. Other host causes are assumed to have the same share of the work in each step, and run delays are
    assumed to grow with the work; sleep needs no processor, and device work takes the same time in each step.
    """
    steps = captured_steps(workload.metadata)
    delays = run_delays(workload.metadata) if one.remedy == DELAYED else None
    overhead, times = profiler_overhead(workload.metadata), step_times(workload.metadata)
    usual_step_ns = (overhead.usual_ns if overhead else 0) or (times.median_ns if times else 0)
    own_delays_ns, step_ns = 0, usual_step_ns * steps
    if delays is not None:
        usual_ns, shown_ns = max(1, delays[0]), max(1, delays[1])
        which = MEDIAN_STEP
    elif one.remedy == DELAYED:
        return item  # the waits of unprofiled steps are unknown
    elif one.remedy == "skew":
        usual_ns, shown_ns = usually_late_ns(workload.metadata, int(one.target.name)) * steps, one.bound_ns
        which = MEDIAN_STEP
    else:
        usual_ns, shown_ns, which = _usual_step(path, result, workload)
        hidden_ns = _hidden_delays(path, workload)
        own_delays_ns, step_ns = delays_on(path, one.rows) + int(hidden_ns[one.rows].sum()), usual_ns
        shown_ns = max(1, shown_ns - int(hidden_ns.sum()))
        waited = run_delays(workload.metadata) if one.cause == "sleep" else None
        usual_ns = max(1, usual_ns - waited[0]) if waited and usual_ns else usual_ns
    if not usual_ns or abs(usual_ns - shown_ns) <= _NEAR * shown_ns:
        return item
    # Half of the work has half of the run delays.
    worked = max(0.0, 1 - own_delays_ns / max(1, one.path_ns, item.gain_ns, item.whole_ns))
    most_ns = step_ns or result.makespan_ns
    if delays is not None:  # another rank may have waited longer in the shown step
        most_ns = min(most_ns, usual_ns)
    gain_ns, half_ns, whole_ns = (
        min(most_ns, round(ns * worked * usual_ns / shown_ns))
        for ns in (item.gain_ns, item.half_ns, item.whole_ns)
    )
    share = gain_ns / max(1, step_ns or result.makespan_ns)
    is_bound = item.is_bound or which.startswith(_SCATTERED)
    return replace(
        item, gain_ns=gain_ns, half_ns=half_ns, whole_ns=whole_ns, share=share, is_bound=is_bound, steps=which
    )


def _usual_step(path: CriticalPath, result: Result, workload: Workload) -> tuple[int, int, str]:
    """Return the median unprofiled step time, the shown step without run delays (ns), and its name.

    If unprofiled steps scatter for no reason in the script, and the shown step is outside their
    quartiles, the upper quartile replaces the median. If the script is the reason, or the shown
    step is within the quartiles, the shown step is used instead. The first value is 0 if the host does not
    compute the step or no profiler overhead is known.
    """
    overhead = profiler_overhead(workload.metadata) if computed_on_host(workload) else None
    if overhead is None:
        return 0, 1, ""
    steps, shown_ns = captured_steps(workload.metadata), result.makespan_ns
    usual_ns, which = overhead.usual_ns * steps, MEDIAN_STEP
    low_ns, high_ns = overhead.quartiles_ns or (0, 0)
    times = step_times(workload.metadata)
    is_explained = times is not None and times.is_the_scripts
    if not (usual_ns or is_explained or low_ns * steps <= shown_ns <= high_ns * steps):
        usual_ns = high_ns * steps
        which = f"{_SCATTERED}{duration_text(low_ns)} to {duration_text(high_ns)}"
    elif not usual_ns:
        usual_ns, which = shown_ns, f"{SHOWN_STEP} with its waits for a processor"
    return usual_ns, max(1, shown_ns - delays_on(path)), which


def _hidden_delays(path: CriticalPath, workload: Workload) -> npt.NDArray[np.float64]:
    """Return the run delay (ns) inside each segment of the path that is not itself a run delay.

    Long host work contains its run delays, because the recording does not show where in it they were. It is
    assumed to have at most the same share of run delays as the step. The remaining run delays belong to
    computation and other host work; causes that need no processor have no run delays. With several ranks, the
    run delays on the path are unknown.
    """
    segments, delays = path.columns, run_delays(workload.metadata)
    hidden_ns = np.zeros(len(segments["cause"]))
    if delays is None or workload.num_ranks > 1:
        return hidden_ns
    causes, left_ns = segments["cause"], float(max(0, delays[1] - delays_on(path)))
    runs = segments["kind"].passes(("compute", "host").__contains__) & ~causes.passes(_IDLE.__contains__)
    is_long = runs & (segments["kind"] == "host") & ~causes.passes(_SPLIT.__contains__)
    for chosen, most in ((is_long, delays[1] / max(1, path.makespan_ns)), (runs & ~is_long, 1.0)):
        time_ns = sum_ns(segments, np.flatnonzero(chosen))
        share = min(1.0, most, left_ns / max(1, time_ns))
        hidden_ns[chosen] = segments["duration_ns"][chosen] * share
        left_ns -= share * time_ns
    return hidden_ns


def delays_on(path: CriticalPath, rows: Ints | None = None) -> int:
    """Return the run delays (ns) on the path, or among its *rows*."""
    chosen = np.arange(len(path.columns["cause"])) if rows is None else rows
    return sum_ns(path.columns, chosen[path.columns["cause"][chosen] == DELAYED])
