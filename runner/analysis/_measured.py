"""The measurement as a result for comparisons."""

from __future__ import annotations

from ...converter import Workload
from ...errors import ConfigError
from .._captured import is_captured
from .._result import Result
from .._simulate import prepare
from .._traits import REPLAY
from ..backends import get_backend
from ._differences import of_measured_ranks
from ._foreign_times import measured_ranks


def measured_result(workload: Workload) -> Result:
    """Return the measurement of a captured *workload* as a result: every node at its measured time.

    In a workload that was scaled out, each replica has the times of its captured ranks; `compare` omits
    figures that are not comparable with more ranks. Raises `ConfigError` for a workload that does not come
    from a measurement.
    """
    if not is_captured(workload.metadata):
        raise ConfigError(
            "The workload does not come from a measurement, so there are no measured times; "
            "compare runs only, or capture the job with 'chakrascope trace'."
        )
    experiment = prepare(workload, "default", None, backend=REPLAY)
    measured = get_backend(REPLAY).run(experiment)
    return of_measured_ranks(measured, measured_ranks(workload))
