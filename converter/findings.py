"""What the doctor finds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

__all__ = ["Finding", "Severity"]

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """Something that is wrong, or worth knowing.

    An *error* makes results wrong or impossible, a *warning* may, a *note* does not. *place* is a file, rank
    or node, *cause* what is the matter there, *remedy* what to do about it.
    """

    severity: Severity
    place: str
    cause: str
    remedy: str

    def to_dict(self) -> dict[str, str]:
        """Return the finding as a JSON-able mapping."""
        return asdict(self)
