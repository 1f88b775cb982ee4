"""Findings of checks on traces, a workload or a configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]
_ORDER = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True)
class Finding:
    """A finding of a check: an *error* makes results wrong, a *warning* may do so, and a *note* does not.

    *place* is a file, a rank, a node or a part of a configuration. *cause* is the problem at this place.
    *remedy* is the next step, or ``""`` without a remedy or if the cause contains the remedy.
    """

    severity: Severity
    place: str
    cause: str
    remedy: str = ""

    @property
    def text(self) -> str:
        """The cause and the remedy of the finding, without the place."""
        return f"{self.cause} {self.remedy}".rstrip()

    def with_paths(self, old: str, new: str) -> Finding:
        """Return the finding with *old* replaced by *new* in its paths."""
        place, cause, remedy = (text.replace(old, new) for text in (self.place, self.cause, self.remedy))
        return Finding(self.severity, place, cause, remedy)

    def to_dict(self) -> dict[str, str]:
        """Return the finding as a JSON-able mapping."""
        return asdict(self)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sort *findings* stably: errors before warnings, and warnings before notes."""
    return sorted(findings, key=lambda finding: _ORDER[finding.severity])
