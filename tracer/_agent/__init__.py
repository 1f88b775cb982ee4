"""Capture a few training steps of the process that loads this package.

The package needs only the standard library and torch. Training processes load the package by file path,
because chakrascope may not be importable there. Torch is used only after a step is detected. Outside the
captured window, the agent takes about 10 us per step, and samples the Python stacks every 25 ms. The agent
never raises an exception into the training script. Failures become a reason in the rank's status file, which
the launcher merges into ``manifest.json``.

Files of rank R in the output folder: ``rankR.host.json.gz`` (execution trace), ``rankR.device.json.gz``
(Kineto), ``rankR.comms.json.gz`` (flight recorder), ``rankR.evidence.json.gz`` (step times, stacks),
``rankR.steps.json.gz`` (the times of all steps, if nothing else is captured), ``status/HOST.PID.json`` (the
status for the launcher).
"""

from .agent import Agent as Agent
from .agent import current_agent as current_agent
from .agent import set_current_agent as set_current_agent
from .install import INSTALLATIONS as INSTALLATIONS
from .install import watch_loaders as watch_loaders
from .install import watch_profiled_steps as watch_profiled_steps
from .install import watch_profilers as watch_profilers
from .modules import mark_gradients as mark_gradients
from .phases import watch_backward as watch_backward
from .phases import watch_communication as watch_communication
from .process import keep_launch_options as keep_launch_options
from .process import launch_options as launch_options
