"""The measurement of a workload as a result, and how far a simulation deviates from it."""

from __future__ import annotations

import pandas as pd

from ...converter import Workload
from ...errors import ConfigError
from ...support import duration_text, share_text
from .._captured import is_captured
from .._result import Result
from .._simulate import prepare
from .._traits import REPLAY
from ..backends import get_backend
from ._differences import collective_differences, of_measured_ranks, rank_differences
from ._foreign_times import measured_ranks
from ._summary import DEVIATES

_PARTS = {
    "compute_ns": "computation",
    "exposed_comm_ns": "exposed communication",
    "exposed_copy_ns": "exposed copies",
    "idle_ns": "idle time",
}


def measured_result(workload: Workload) -> Result:
    """Return the measurement of a captured *workload* as a result: every node at its measured time.

    In a workload that was scaled out, each replica has the times of its captured ranks; `compare`
    leaves out values that cannot be compared with more ranks. Raises `ConfigError` for a workload
    that was not measured.
    """
    if not is_captured(workload.metadata):
        raise ConfigError(
            "The workload was not measured, so there are no measured times. Next: compare runs only, or "
            "capture the job with `chakrascope trace`."
        )
    experiment = prepare(workload, "default", None, backend=REPLAY)
    measured = get_backend(REPLAY).run(experiment)
    return of_measured_ranks(measured, measured_ranks(workload))


def deviation_text(simulated: Result, workload: Workload, collectives: pd.DataFrame) -> str:
    """Describe how the *simulated* step deviates most from the measured one; "" for at most 10 %.

    *collectives* is the `collective_overview` of the simulation.
    """
    measured = measured_result(workload)
    delta_ns = simulated.makespan_ns - measured.makespan_ns
    if abs(delta_ns) <= DEVIATES * measured.makespan_ns:
        return ""
    sign, longer, more = (1, "longer", "more") if delta_ns > 0 else (-1, "shorter", "less")
    by_rank = rank_differences(measured, simulated).set_index("rank")
    parts = pd.DataFrame({part: by_rank[f"{part}_other"] - by_rank[f"{part}_base"] for part in _PARTS})
    excess_ns = sign * parts.stack()
    rank, part = excess_ns.idxmax()
    share = share_text(abs(delta_ns) / measured.makespan_ns)
    steps = ", not ".join(duration_text(result.makespan_ns) for result in (simulated, measured))
    text = (
        f"The simulated step is {share} {longer} than the measured step: {steps}. It differs most in "
        f"{_PARTS[part]}: {duration_text(int(excess_ns.max()))} {more} on rank {rank}."
    )
    calls = collective_differences(simulated, measured, collectives)
    calls = calls[sign * calls["delta_ns"] < 0]
    if calls.empty:
        return text
    most = calls.iloc[0]
    return (
        f"{text} Of the collectives, {most['operation']} {most['collective']} differs most: "
        f"{duration_text(abs(int(most['delta_ns'])))} {more}, mean over its ranks."
    )
