"""The launcher's options for the agents, passed in the environment."""

from __future__ import annotations

import json
import os
from typing import Any

ENVIRONMENT_KEY = "CHAKRASCOPE_CAPTURE"
_state: dict[str, Any] = {"options": os.environ.get(ENVIRONMENT_KEY)}


def keep_launch_options(options: str | None) -> None:
    """Store the launcher's *options*, in JSON, before the script can change its environment."""
    _state["options"] = options


def launch_options() -> dict[str, Any]:
    """Return the launcher's options, or an empty mapping if there is no launcher."""
    options: dict[str, Any] = json.loads(os.environ.get(ENVIRONMENT_KEY) or _state["options"] or "{}")
    return options
