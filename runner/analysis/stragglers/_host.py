"""Delays before operations that no other operation accounts for: late hosts and input pipelines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ._replay import Replay


@dataclass(frozen=True)
class HostDelay:
    """Where steps wait for a host: most often before *operation* of *replica* and *stage*.

    *is_first* says whether it is the first of its rank in the step; *median_ns* is the median delay there,
    *total_ns* that of all operations of the rank together.
    """

    operation: str
    replica: int
    stage: int
    is_first: bool
    median_ns: int
    total_ns: int


def host_delay(replay: Replay, steps: npt.NDArray[np.bool_]) -> HostDelay:
    """Return where the longest delay of each of *steps* is, in most of them."""
    layout = replay.layout
    delays = replay.delays_ns()[:, steps]
    count = delays.shape[1]
    longest = delays.transpose(1, 0, 2).reshape(count, -1).argmax(axis=1)
    places, replicas = np.unravel_index(longest, (len(layout.operations), layout.replicas))
    workers = Counter(
        (int(replica), layout.operations[place].stage)
        for place, replica in zip(places, replicas, strict=True)
    )
    (replica, stage), _ = workers.most_common(1)[0]
    own = [
        (int(place), int(delays[place, at, replica]))
        for at, (place, other) in enumerate(zip(places, replicas, strict=True))
        if other == replica and layout.operations[place].stage == stage
    ]
    place = Counter(place for place, _ in own).most_common(1)[0][0]
    of_worker = [at for at, op in enumerate(layout.operations) if op.stage == stage]
    first = min(of_worker, key=lambda at: int(np.median(layout.start_ns[at, :, replica])))
    median = round(float(np.median([delay for _, delay in own])))
    total = round(float(np.median(delays[of_worker, :, replica].sum(axis=0))))
    return HostDelay(layout.operations[place].type, replica, stage, place == first, median, total)
