"""What a rank holds in memory over a step that was predicted, and whether that fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...support import bytes_text
from .._state import OpenRun

__all__ = ["fullest_curve", "memory_facts", "memory_verdict"]


def fullest_curve(run: OpenRun) -> Mapping[str, Any] | None:
    """Return the memory of the fullest rank over the step as `MemoryCurve` has it; None for other runs."""
    curves = run.result.provenance.get("memory_over_time") or []
    return max(curves, key=lambda curve: int(curve["peak_bytes"]), default=None)


def memory_facts(run: OpenRun) -> str:
    """Return in words which rank the fullest is and what it holds at most."""
    curves = run.result.provenance.get("memory_over_time") or []
    fullest = fullest_curve(run)
    if fullest is None:
        return ""
    stage = f" Of the {len(curves)} pipeline stages, stage {fullest['stage']} holds most."
    most = f"Predicted to hold at most {bytes_text(int(fullest['peak_bytes']))}."
    return f"{most}{stage if len(curves) > 1 else ''}"


def memory_verdict(run: OpenRun) -> str:
    """Return whether a predicted job fits in the memory of its chip, in words; ``""`` for other runs."""
    prediction = run.result.provenance.get("prediction")
    if not isinstance(prediction, dict):
        return ""
    room, holds = int(prediction.get("chip_memory_bytes", 0)), int(prediction["memory_bytes_per_rank"])
    verdict = "fits" if prediction["fits"] else "does NOT fit"
    return (
        f"{verdict}: the fullest rank holds {bytes_text(holds)} of the {bytes_text(room)} of "
        f"{prediction.get('chip', 'its chip')}"
    )
