"""Estimate clock offsets between hosts from the times of message round trips."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class ClockEstimate:
    """The offset of a host's clock from the coordinator's clock at time *at_ns*, within *error_ns*."""

    at_ns: int
    offset_ns: int
    error_ns: int


def estimate(round_trips: Iterable[tuple[int, int, int]]) -> ClockEstimate:
    """Return the offset from the fastest of the *round_trips* (sent, host's clock, returned; ns).

    The host read its clock during the round trip, so the offset is known within half of the round-trip time.
    """
    sent, theirs, back = min(round_trips, key=lambda trip: trip[2] - trip[0])
    middle = (sent + back) // 2
    return ClockEstimate(middle, theirs - middle, (back - sent + 1) // 2)


@dataclass(frozen=True)
class HostClock:
    """A host's clock, estimated before and after a run; *shared* means that it is the coordinator's clock."""

    before: ClockEstimate
    after: ClockEstimate
    shared: bool = False

    @property
    def drift_ppm(self) -> float:
        """The clock drift relative to the coordinator's clock, in ppm."""
        elapsed = self.after.at_ns - self.before.at_ns
        if self.shared or elapsed <= 0:
            return 0.0
        return 1e6 * (self.after.offset_ns - self.before.offset_ns) / elapsed

    @property
    def error_ns(self) -> int:
        """The upper bound of the error of the host's corrected times, in ns."""
        return 0 if self.shared else max(self.before.error_ns, self.after.error_ns)

    def local(self, coordinator_ns: int) -> int:
        """Return the host's time at a coordinator time, by the estimate from before the run."""
        return coordinator_ns if self.shared else coordinator_ns + self.before.offset_ns

    def corrected(self, since_start_ns: npt.NDArray[np.int64], start_ns: int) -> npt.NDArray[np.int64]:
        """Convert the host's times to times since *start_ns* of the coordinator's clock.

        Times below 0, which mean that an event never happened, are not changed.
        """
        if self.shared:
            return since_start_ns
        drift = self.drift_ppm / 1e6
        shift = drift * (since_start_ns + (start_ns - self.before.at_ns)) / (1 + drift)
        moved = np.maximum(since_start_ns - np.rint(shift).astype(np.int64), 0)
        return np.where(since_start_ns < 0, since_start_ns, moved)

    def to_json(self) -> dict[str, Any]:
        """Return the figures for a result's provenance."""
        offset = 0 if self.shared else self.before.offset_ns
        return {
            "clock_offset_ns": offset,
            "clock_drift_ppm": round(self.drift_ppm, 3),
            "clock_error_ns": self.error_ns,
            "clock_shared": self.shared,
        }


def clock_name() -> str:
    """Return a name that two processes share only if they read the same monotonic clock."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/time').readlink()}"
    except OSError:
        return ""
