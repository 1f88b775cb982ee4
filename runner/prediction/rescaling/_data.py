"""More data-parallel replicas: the same computation on each, and larger groups."""

from __future__ import annotations

from ....converter.chakra import Workload, recognise
from ....errors import UsageError, WorkloadError

__all__ = ["with_data_parallelism"]

_MOST_RANKS = 65_536


def with_data_parallelism(workload: Workload, degree: int) -> Workload:
    """Return *workload* with *degree* data-parallel replicas, a multiple of those it has.

    Each replica computes what it did; what is exchanged keeps its size, in groups of more ranks. Raises
    `UsageError` for another degree, and `WorkloadError` where nothing shows what replicas exchange.
    """
    found = recognise(workload.graphs, workload.program_of_rank, workload.groups)
    if found.why_not:
        raise WorkloadError(found.why_not)
    sizes = {len(workload.groups.get(key, range(workload.num_ranks))) for key in found.replicas}
    if not sizes:
        raise WorkloadError(
            f"The {workload.num_ranks} rank(s) of the workload exchange no gradients, so nothing shows what "
            "more replicas would exchange. Capture the job with two data-parallel replicas, or record its "
            "script as a job of more ranks."
        )
    now = max(sizes)
    if degree < now or degree % now:
        raise UsageError(
            f"The captured job has {now} data-parallel replicas, and --dp {degree} is not a multiple of "
            f"that. Ask for {now}, {2 * now}, {3 * now}, ...; for fewer, capture fewer."
        )
    ranks = workload.num_ranks * (degree // now)
    if ranks > _MOST_RANKS:
        raise UsageError(
            f"--dp {degree:,} makes a job of {ranks:,} ranks, each with a file; at most {_MOST_RANKS:,} are "
            f"made. Ask for --dp {_MOST_RANKS * now // workload.num_ranks} or less."
        )
    return workload.scale_out(workload.num_ranks * (degree // now))
