"""The number of training steps of a workload, without reading its graphs."""

from __future__ import annotations

import functools
import json
from pathlib import Path

__all__ = ["steps_of"]


def steps_of(prefix: Path) -> int:
    """Return the number of captured steps in the workload at *prefix*: 1 if its description has none."""
    description = prefix.parent / f"{prefix.name}.workload.json"
    try:
        return _steps_in(description, description.stat().st_mtime_ns)
    except OSError:  # of a run whose workload was removed
        return 1


@functools.lru_cache(maxsize=256)
def _steps_in(description: Path, _modified_ns: int) -> int:
    try:
        steps = json.loads(description.read_text(encoding="utf-8")).get("steps")
    except (
        ValueError,
        AttributeError,
        RecursionError,
    ):  # damaged, which is reported when the workload is opened
        return 1
    return max(1, len(steps)) if isinstance(steps, list) else 1
