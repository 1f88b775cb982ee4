"""The user's file of backends: ``backends.yml`` in the configuration folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..config import read_yaml

__all__ = ["read_user_file"]


def read_user_file(part: str, variables: Mapping[str, str]) -> tuple[Path, Any]:
    """Return the path of the user's ``backends.yml`` and its content under *part*, ``None`` if empty.

    The file is in ``$XDG_CONFIG_HOME/chakrascope``. Raises `ConfigError` if it is not a YAML mapping.
    """
    base = variables.get("XDG_CONFIG_HOME") or os.path.join(variables.get("HOME", "~"), ".config")
    path = Path(base).expanduser() / "chakrascope" / "backends.yml"
    return path, read_yaml(path, "backend configuration").get(part) if path.is_file() else None
