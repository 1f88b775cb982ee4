"""Capture a few training steps of the process this module is loaded into.

Needs the standard library and torch only, and is loaded by file path into training processes where
chakrascope may not be importable; torch is touched only once a step is seen. Outside the captured window the
cost is one Python call per optimizer step. Nothing here may raise into the training script: failures become
a reason in the rank's status file, which the launcher merges into ``manifest.json``.

Files of rank R in the output folder: ``rankR.host.json.gz`` (execution trace), ``rankR.device.json.gz``
(Kineto), ``rankR.comms.json.gz`` (flight recorder), ``status/HOST.PID.json`` (what the launcher reads).
"""

from __future__ import annotations

from .agent import (
    ENVIRONMENT_KEY,
    Agent,
    current_agent,
    keep_launch_options,
    launch_options,
    set_current_agent,
)
from .install import INSTALLATIONS, watch_profiled_steps, watch_profilers

__all__ = [
    "ENVIRONMENT_KEY",
    "INSTALLATIONS",
    "Agent",
    "current_agent",
    "keep_launch_options",
    "launch_options",
    "set_current_agent",
    "watch_profiled_steps",
    "watch_profilers",
]
