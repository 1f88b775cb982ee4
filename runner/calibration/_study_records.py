"""Locate the measurements for a calibration in a study, or among logs."""

from __future__ import annotations

from collections.abc import Sequence

from ...converter import convert, match_logs, read_logs
from ...errors import ConfigError
from ...tracer import TraceSet
from ..study import Study
from ._log_records import log_records
from ._records import Records
from ._workload_records import workload_records

__all__ = ["records_of_logs", "records_of_study"]


def records_of_study(study: Study, workload: str | None = None) -> Records:
    """Return the transfers of the newest trace set of *study*, all its steps, or else of its newest workload.

    *workload* selects one instead, with only its step. Raises `ConfigError` for a study with neither, and the
    errors of reading.
    """
    if workload is None and study.trace_sets():
        folder = study.latest_trace_set()
        entries = TraceSet.load(folder).ranks
        hosts = {entry.rank: entry.hostname for entry in entries if entry.hostname}
        return workload_records(convert(folder, step="all"), f"the capture {folder.name}", hosts)
    names = study.workloads()
    if not names:
        raise ConfigError(
            f"The study {study.path} holds nothing measured; capture a job with 'chakrascope trace -o "
            f"{study.path}', or give production logs instead of a study."
        )
    chosen = workload or names[-1]
    return workload_records(study.workload(chosen), f"the workload {chosen}")


def records_of_logs(targets: Sequence[str]) -> Records:
    """Return the transfers in production logs: files, folders or archives; raises the errors of reading."""
    return log_records(match_logs(read_logs(targets)))
