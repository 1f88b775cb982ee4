"""The durations of steps, recurring long steps, and free CPU cores, as a workload states them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from ...support import duration_text, ordinal_text
from ..chakra import COLLECTING, DELAYED, HOST_CAUSES

STEP_TIMES = "step_times"
# Metadata keys: the time for which a thread waited for a processor in the median unprofiled step and in
# captured steps (by number), and the same times by rank.
RUN_DELAYS, RANK_DELAYS = "run_delay_ns", "rank_delays_ns"
# Metadata keys: the CPU cores of each rank, and whether the processors have units for bfloat16.
CORES, BFLOAT16 = "cores", "bfloat16"
# Minimum share of the run in which long steps matter.
MATTERS = 0.05
# Minimum number of long steps for a pattern, and minimum number of long steps for a cause.
TIMES, SEVERAL = 3, 2
# Causes that a script repeats, so two long steps with such a cause are enough.
REPEATED = ("checkpoint", "validation")
WORKER_WAIT = "worker_wait"
# Causes of scattered long steps that may result from the machine or from another rank.
_NOT_THE_SCRIPTS = ("", "python", "dispatch", DELAYED, "communication_call")
_ORDINALS = ("", "", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


class StepTimes(NamedTuple):
    """Durations of *steps* unprofiled (*is_captured*: captured) steps of the slowest rank.

    *long_count* steps exceed 1.5 times the median. Long steps have the period *every* (0: none) and the mean
    *long_ns*. *cause* and the source location *place* account for most of the additional time of long steps
    ("" if unknown). Without the additional time, the mean step would be *gain_ns* shorter. *is_distinct* is 1
    if only long steps run the function at *place*, and if these steps have most of the additional time. The
    other fields are means per unprofiled step: the time of garbage collections, the wait for data loader
    workers, the time of compilation, and the number and time of page faults.
    """

    steps: int
    least_ns: int
    median_ns: int
    p90_ns: int
    most_ns: int
    long_count: int = 0
    every: int = 0
    long_ns: int = 0
    gain_ns: int = 0
    cause: str = ""
    place: str = ""
    collection_ns: int = 0
    worker_wait_ns: int = 0
    is_distinct: int = 0
    compilation_ns: int = 0
    faults: int = 0
    fault_ns: int = 0
    is_captured: int = 0

    def mean_ns(self, cause: str) -> int:
        """Return the mean time (ns) of *cause* in a step of the run, or 0 if unknown."""
        means = {COLLECTING: self.collection_ns, WORKER_WAIT: self.worker_wait_ns}
        return {**means, "compilation": self.compilation_ns}.get(cause, 0)

    @property
    def matters(self) -> bool:
        """Whether long steps take a significant share of the run."""
        return self.gain_ns >= MATTERS * self.median_ns

    @property
    def is_the_scripts(self) -> bool:
        """Whether the script makes steps long: regularly, for a specific cause or in a certain function."""
        is_its_own = self.every > 0 or self.is_distinct > 0 or self.cause not in _NOT_THE_SCRIPTS
        fewest = SEVERAL if self.cause in REPEATED else TIMES
        return self.matters and self.long_count >= fewest and is_its_own

    @property
    def text(self) -> str:
        """A sentence on the long steps, or "" if long steps do not matter."""
        if not self.matters:
            return ""
        long, usual = duration_text(self.long_ns), duration_text(self.median_ns)
        step = "captured step" if self.is_captured else "step"
        if self.every:
            word = _ORDINALS[self.every] if self.every < len(_ORDINALS) else ordinal_text(self.every)
            which = f"Every {word} {step} takes {long} instead of {usual}"
        else:
            which = f"{self.long_count} of {self.steps} {step}s take {long} on average instead of {usual}"
        cause = HOST_CAUSES.get(self.cause, "")
        why = f": {cause[:1].lower()}{cause[1:]}" if cause else ""
        return f"{which}{why}{f' in {self.place}' if cause and self.place else ''}."


def rank_delays(metadata: Mapping[str, Any]) -> list[int]:
    """Return each rank's wait for a processor in its median unprofiled step (ns), or [] if unknown."""
    stated = metadata.get(RANK_DELAYS)
    values = list(stated.values()) if isinstance(stated, Mapping) else []
    return values if all(type(value) is int for value in values) else []


def run_delays(metadata: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the usual wait for a processor and the wait in the workload's steps (ns), or None if unknown.

    The usual wait is the wait in the median unprofiled step, multiplied by the number of the workload's
    steps.
    """
    stated, steps = metadata.get(RUN_DELAYS), metadata.get("steps")
    if not isinstance(stated, Mapping) or not isinstance(steps, list):
        return None
    values = [stated.get(key) for key in ("median", *map(str, steps))]
    usual, *shown = [value for value in values if isinstance(value, int)] or [0]
    return (usual * len(steps), sum(shown)) if len(shown) == len(steps) else None


def step_times(metadata: Mapping[str, Any], *, or_captured: bool = False) -> StepTimes | None:
    """Return the times of unprofiled steps in the *metadata* of a workload, or None if there are none.

    If *or_captured* is true, the times may be those of captured steps, unless the workload has several of
    these.
    """
    stated = metadata.get(STEP_TIMES)
    required = set(StepTimes._fields) - StepTimes._field_defaults.keys()
    if not isinstance(stated, Mapping) or not required <= set(stated) <= set(StepTimes._fields):
        return None
    texts = all(isinstance(stated.get(name, ""), str) for name in ("cause", "place"))
    numbers = (value for name, value in stated.items() if name not in ("cause", "place"))
    if not texts or not all(type(value) is int for value in numbers):
        return None
    times = StepTimes(**stated)
    converted = metadata.get("steps")
    has_several = isinstance(converted, list) and len(converted) > 1
    return times if not times.is_captured or (or_captured and not has_several) else None


_Row = tuple[float, float, float]


class FreeCores(NamedTuple):
    """The number of *usable* cores of a rank, and how many were *busy* and *free* on average."""

    usable: float
    busy: float
    free: float

    @property
    def movable_share(self) -> float:
        """The maximum share of a step that can be saved by moving (unchanged) work to free cores."""
        return self.free / max(1e-9, self.busy + self.free)

    @property
    def text(self) -> str:
        """The free and the usable cores as text, such as ``0.9 of 2 cores were free``."""
        return f"{self.free:.2g} of {self.usable:.3g} cores were free"


def lacks_bfloat16(metadata: Mapping[str, Any]) -> bool:
    """Return whether a workload was captured on processors that are known to have no units for bfloat16."""
    return metadata.get(BFLOAT16) is False


def free_cores(metadata: Mapping[str, Any], ranks: Iterable[int] | None = None) -> FreeCores | None:
    """Return the cores of the rank of *ranks* (default: all) with the fewest free cores, None if unknown."""
    stated = metadata.get(CORES)
    if not isinstance(stated, Mapping):
        return None
    own = stated.values() if ranks is None else [stated.get(str(rank)) for rank in ranks]
    try:
        rows = [FreeCores(*row) for row in msgspec.convert([row for row in own if row], list[_Row])]
    except msgspec.ValidationError:
        return None
    return min(rows, key=lambda row: row.movable_share, default=None)
