"""The summary of a run as plain data, cached in a file of the run.

This module imports neither NumPy nor PyArrow, which takes longer than to print a cached summary.
"""

from __future__ import annotations

from typing import Any

from ..study import Study
from ._json_cache import cached_json

TIME_FORMULA = (
    "compute + exposed communication + exposed copies + idle = the step. Communication is exposed while no "
    "computation runs (communication - overlap), copies while neither computation nor communication runs"
)


def answer_of(study: Study, run_id: str | None = None) -> dict[str, Any]:
    """Return the summary of the run *run_id* of *study* as plain JSON (see `RunAnalysis.answer`)."""
    info = study.run_info(run_id)

    def make() -> dict[str, Any]:
        from ._run import analyse_run  # noqa: PLC0415 - imports NumPy and PyArrow

        return analyse_run(study, info.id).answer()

    answer: dict[str, Any] = cached_json(
        study.cache_file(info.id, "answer.json"), study.files_of_run(info.id, info.workload), make
    )
    return answer
