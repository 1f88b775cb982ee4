"""Faces of packages that import what they export when it is asked for."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["exports_of"]

_EXPORT = re.compile(r"^    from (\.[\w.]*) import \w+ as (\w+)$", re.MULTILINE)


def exports_of(package: str, file: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of *package*: a name is imported from its module when it is first asked for.

    The imports that *file*, the face, has for type checkers say which module that is; so a face says
    once what it exports, and who needs one name of it does not load what all the others need.
    """
    homes = {name: module for module, name in _EXPORT.findall(Path(file).read_text(encoding="utf-8"))}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(import_module(homes[name], package), name)
        vars(sys.modules[package])[name] = value
        return value

    return get
