"""The cost of every piece of device work: its share of its operator's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..linking import KERNEL, Lane, Launches, host_rows
from ..readers import DeviceTrace, HostTrace
from ._costs import operator_cost

__all__ = ["work_costs"]


def work_costs(trace: DeviceTrace, launches: Launches, lanes: Sequence[Lane], host: HostTrace) -> np.ndarray:
    """Return operations and bytes of each launch, at least 1, as two columns.

    What an operator costs is divided among its kernels in proportion to their measured time; copies and
    memory sets count the bytes the trace gives them.
    """
    costs = np.ones((len(launches), 2), dtype=np.int64)
    is_kernel = launches.category == KERNEL
    costs[~is_kernel, 1] = np.maximum(1, trace.works.size_bytes[launches.work[~is_kernel]])
    rows = host_rows(launches, lanes, host)
    own = np.flatnonzero(is_kernel & ~launches.is_comm & (rows >= 0))
    kinds, kind = np.unique(host.kind[rows[own]], return_inverse=True)
    whole = np.array([operator_cost(host.kinds[number]) for number in kinds.tolist()], dtype=np.float64)
    _, operator = np.unique((launches.lane[own] << 32) + launches.op[own], return_inverse=True)
    times = np.maximum(1, launches.end_ns[own] - launches.start_ns[own])
    total = np.zeros(len(own), dtype=np.int64)
    np.add.at(total, operator, times)
    share = times / total[operator]
    costs[own] = np.maximum(1, np.rint(whole.reshape(-1, 2)[kind] * share[:, None])).astype(np.int64)
    return costs
