"""Capture a few training steps of the process this module is loaded into.

Needs the standard library and torch only, and is loaded by file path into training processes where
chakrascope may not be importable; torch is used only once a step is detected. Outside the captured window the
cost is about 10 us per step and a sample of the Python stacks every 25 ms. Nothing here may raise an
exception into the training script: failures become a reason in the rank's status file, which the launcher
merges into ``manifest.json``.

Files of rank R in the output folder: ``rankR.host.json.gz`` (execution trace), ``rankR.device.json.gz``
(Kineto), ``rankR.comms.json.gz`` (flight recorder), ``rankR.evidence.json.gz`` (step times, stacks),
``rankR.steps.json.gz`` (the times of all steps, if nothing else is captured),
``status/HOST.PID.json`` (what the launcher reads).
"""

from __future__ import annotations

from .agent import Agent, current_agent, set_current_agent
from .install import INSTALLATIONS, watch_loaders, watch_profiled_steps, watch_profilers
from .options import ENVIRONMENT_KEY, keep_launch_options, launch_options
from .phases import watch_backward, watch_communication

__all__ = [
    "ENVIRONMENT_KEY",
    "INSTALLATIONS",
    "Agent",
    "current_agent",
    "keep_launch_options",
    "launch_options",
    "set_current_agent",
    "watch_backward",
    "watch_communication",
    "watch_loaders",
    "watch_profiled_steps",
    "watch_profilers",
]
