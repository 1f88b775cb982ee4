"""The backend ``auto``: runs the flow model, and the packet model if the flow model may be inaccurate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...support import share_text
from .._experiment import Experiment
from .._result import Result
from ._base import Progress
from ._flow import flow_backend
from ._outcome import more_provenance
from ._packet import packet_backend

DEFAULT_ERROR = 0.02
# Measured errors of `flow` relative to `packet`, by flag. benchmarks/flow_accuracy.py writes this
# file.
_TABLE = Path(__file__).with_name("flow_errors.json")
_UNFLAGGED = "none"
_MOST, _NEARLY_ALL = "0.9", "0.99"


class AutoBackend:
    """Runs `flow`, and reruns on `packet` if `flow` is flagged or its measured error exceeds *error*.

    *error* is a fraction of the makespan, compared with the 90th percentile of measured cases with
    the same flags. If links change during the simulation, only `packet` runs.

    ``provenance["auto"]`` records the tolerated error (*asked*), the 90th and 99th percentile of
    the flow model's error (*expected*, *expected_99*, fractions of the makespan), and the
    *attempts* in order. Each attempt has its backend, makespan and flags, and *rejected_because*, the
    reason for the next attempt. *answered* is the backend whose result was returned.
    """

    def __init__(self, error: float = DEFAULT_ERROR) -> None:
        self.error = error

    def run(self, experiment: Experiment, progress: Progress | None = None) -> Result:
        """Simulate *experiment* with `flow`, `packet` or both; raises whatever they raise."""
        if experiment.fabric.changes_later:
            packet = packet_backend().run(experiment, progress)
            sentence = (
                "'auto' used 'packet', because links change during the simulation and 'flow' may be "
                "inaccurate."
            )
            return _answer(packet, {"asked": self.error, "attempts": [_attempt(packet)]}, sentence)
        flow = flow_backend().run(experiment, progress)
        flags = flow.provenance["flow"]["flags"]
        expected = _expected(flags)
        provenance: dict[str, Any] = {
            "asked": self.error,
            "expected": expected[_MOST],
            "expected_99": expected[_NEARLY_ALL],
            "flags": flags,
            "cases": expected["cases"],
            "flow_makespan_ns": flow.makespan_ns,
        }
        likely = (
            f"{share_text(expected[_MOST])} (90th percentile of {expected['cases']} measured cases) or "
            f"{share_text(expected[_NEARLY_ALL])} (99th percentile)"
        )
        if expected[_MOST] <= self.error and not flags:
            sentence = (
                f"'auto' used 'flow', whose error in cases without a warning sign was at most {likely}."
            )
            return _answer(flow, provenance | {"attempts": [_attempt(flow)]}, sentence)
        packet = packet_backend().run(experiment, progress)
        reason = ", ".join(flags) if flags else "the requested error"
        error = abs(flow.makespan_ns / packet.makespan_ns - 1) if packet.makespan_ns else 0.0
        sentence = (
            f"'auto' used 'packet' because of {reason}: in such cases, the error of 'flow' was at most "
            f"{likely}; in this case, it is {share_text(error)}."
        )
        attempts = [_attempt(flow) | {"rejected_because": reason}, _attempt(packet)]
        return _answer(packet, provenance | {"attempts": attempts}, sentence)


def auto_backend(name: str) -> AutoBackend:
    """Return the automatic backend for a name such as ``auto``, ``auto:2%`` or ``auto:0.02``."""
    return AutoBackend(_named_error(name)) if ":" in name else AutoBackend()


def _named_error(name: str) -> float:
    """Return the tolerated error in a backend name such as ``auto:2%`` or ``auto:0.02``, as a fraction.

    Raises `ConfigError` unless it is above 0 and at most 1.
    """
    text = name.partition(":")[2].strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ConfigError(
            f"'{name[:40]}' has no tolerated error; write a share above 0 and up to 100 %, such as 'auto:2%'."
        )
    return share


def _attempt(result: Result) -> dict[str, Any]:
    model = "flow" if "flow" in result.provenance else "packet"
    flags = result.provenance.get("flow", {}).get("flags", [])
    return {"backend": model, "makespan_ns": result.makespan_ns, "flags": flags}


def _answer(result: Result, provenance: dict[str, Any], sentence: str) -> Result:
    facts = provenance | {"answered": provenance["attempts"][-1]["backend"]}
    more = more_provenance(result.provenance, {"auto": facts}, assumptions=[sentence])
    return replace(result, provenance=more)


def _expected(flags: Sequence[str]) -> dict[str, Any]:
    """Return the measured errors for the worst of *flags*, or the errors of runs without flags."""
    table = _errors()
    errors = [table[flag] for flag in flags or [_UNFLAGGED] if flag in table]
    unknown: dict[str, Any] = {_MOST: 1.0, _NEARLY_ALL: 1.0, "cases": 0}
    return max(errors, key=lambda row: float(row[_MOST]), default=unknown)


@lru_cache
def _errors() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = json.loads(_TABLE.read_text(encoding="utf-8"))
    return table
