"""Import the exports of a package lazily, on first use."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

_EXPORT = re.compile(r"^    from (\.[\w.]*) import \w+ as (\w+)$", re.MULTILINE)


def exports_of(package: str, file: str) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for *package* that imports an export from its module on first use.

    The module of each export is read from the imports for type checkers in *file*, the package's
    ``__init__.py``. As a result, exports are listed only once, and importing one export does not load the
    modules of the other exports. Only packages that users import repeat the exports in ``__all__``.
    """
    homes = {name: module for module, name in _EXPORT.findall(Path(file).read_text(encoding="utf-8"))}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(import_module(homes[name], package), name)
        vars(sys.modules[package])[name] = value
        return value

    return get
