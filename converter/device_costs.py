"""The cost of every piece of device work: its share of its operator's."""

from __future__ import annotations

from collections.abc import Sequence

from .costs import operator_cost
from .device_links import Launch
from .host_lanes import Lane
from .host_trace import HostTrace

__all__ = ["work_costs"]


def work_costs(launches: Sequence[Launch], lanes: Sequence[Lane], host: HostTrace) -> list[tuple[int, int]]:
    """Return (operations, bytes) of each launch, at least 1.

    What an operator costs is divided among its kernels in proportion to their measured time; copies and
    memory sets count the bytes the trace gives them.
    """
    kernels: dict[tuple[int, int], list[int]] = {}
    costs = [(1, 1)] * len(launches)
    for index, launch in enumerate(launches):
        if launch.work.category != "kernel":
            costs[index] = (1, max(1, launch.work.size_bytes))
        elif launch.op >= 0 and not launch.is_comm:
            kernels.setdefault((launch.lane, launch.op), []).append(index)
    for (lane, op), own in kernels.items():
        record = host.operators.get(lanes[lane].ops[op].event.record_id)
        if record is None:
            continue
        operations, moved = operator_cost(record)
        times = [max(1, launches[index].work.end_ns - launches[index].work.start_ns) for index in own]
        for index, time in zip(own, times, strict=True):
            share = time / sum(times)
            costs[index] = (max(1, round(operations * share)), max(1, round(moved * share)))
    return costs
