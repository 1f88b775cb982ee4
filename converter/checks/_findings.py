"""The findings of checks on traces, a workload or a configuration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]
_ORDER = {"error": 0, "warning": 1, "note": 2}


@dataclass(frozen=True)
class Finding:
    """A problem or a remark: an *error* makes results wrong, a *warning* may, a *note* does not.

    *place* is a file, rank, node or part of a configuration, *cause* the problem there, *remedy* the next
    step, ``""`` if there is none or the cause contains it.
    """

    severity: Severity
    place: str
    cause: str
    remedy: str = ""

    @property
    def text(self) -> str:
        """The cause and the remedy, without the place."""
        return f"{self.cause} {self.remedy}".rstrip()

    def with_paths(self, old: str, new: str) -> Finding:
        """Return the finding with *new* instead of *old* in its paths."""
        place, cause, remedy = (text.replace(old, new) for text in (self.place, self.cause, self.remedy))
        return Finding(self.severity, place, cause, remedy)

    def to_dict(self) -> dict[str, str]:
        """Return the finding as a JSON-able mapping."""
        return asdict(self)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return *findings*, errors before warnings before notes, otherwise in their order."""
    return sorted(findings, key=lambda finding: _ORDER[finding.severity])
