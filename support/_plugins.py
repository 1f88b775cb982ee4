"""Load plug-ins and a package's exports on first use, and read our own version.

Plug-ins are entry points of installed distributions.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from glob import glob
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ._files import size_and_time

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


KERNEL_PATTERNS = "CHAKRASCOPE_KERNEL_PATTERNS"
"""The environment variable with the path of a user's own kernel patterns, which take precedence over the
built-in patterns."""
_CODE = (".json", ".py", ".so", ".yml")
_EXPORT = re.compile(r"^    from (\.[\w.]*) import \w+ as (\w+)$", re.MULTILINE)


def exports_of(package: str, file: str) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for *package* that imports an export from its module on first use.

    Each export's module is read from the imports for type checkers in *file*, the package's
    ``__init__.py``. So exports are listed once, and importing one export does not load the modules of other
    exports. ``__all__`` is computed from the same list.
    """
    homes = {name: module for module, name in _EXPORT.findall(Path(file).read_text(encoding="utf-8"))}

    def get(name: str) -> Any:
        if name == "__all__":
            return sorted(homes)
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(import_module(homes[name], package), name)
        vars(sys.modules[package])[name] = value
        return value

    return get


def plugin_names(group: str) -> list[str]:
    """Return the sorted names of the plug-ins in the entry-point group ``chakrascope.GROUP``.

    Raises `ConfigError` if two distributions register the same name.
    """
    return sorted(_entries(group))


@cache
def load_plugin(group: str, name: str) -> Any:
    """Import the plug-in *name*, one of `plugin_names`, of the group ``chakrascope.GROUP``.

    Raises `ConfigError` naming the distribution if the import fails.
    """
    entry = _entries(group)[name]
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"The plug-in '{name}' ({entry.value}) of {_distribution(entry)} cannot be imported ({error}). "
            "Next: install that distribution again, or uninstall it."
        ) from error


@cache
def _entries(group: str) -> Mapping[str, EntryPoint]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - reads the metadata of all distributions

    entries: dict[str, EntryPoint] = {}
    for entry in entry_points(group=f"chakrascope.{group}"):
        other = entries.setdefault(entry.name, entry)
        if other.value != entry.value:
            raise ConfigError(
                f"{_distribution(other)} and {_distribution(entry)} both register '{entry.name}' as "
                f"chakrascope.{group}. Next: uninstall one of them."
            )
    return entries


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unknown distribution"


@cache
def package_version() -> str:
    """Return the installed version of Chakrascope, or "" if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow, and rarely needed

    try:
        return version("chakrascope")
    except PackageNotFoundError:
        return ""


@cache
def code_version() -> str:
    """Return a digest of the version, the code and the data of Chakrascope, for caches of answers.

    The data include the user's kernel patterns. As in Python's cache of byte code, size and modification time
    stand for the content of a file.
    """
    import hashlib  # noqa: PLC0415 - slow, and rarely needed

    package = Path(__file__).parent.parent
    # The name of this folder has the version, which importlib.metadata would read slowly.
    names = glob("chakrascope-*.dist-info", root_dir=package.parent)
    digest = hashlib.blake2b("".join(sorted(names)).encode(), digest_size=12)
    own = os.environ.get(KERNEL_PATTERNS)
    files = [os.path.abspath(own)] if own else []
    for part in ("converter", "runner", "support", "tracer"):
        inside = sorted(glob(f"{part}/**/*", root_dir=package, recursive=True))
        files += [f"{package}/{name}" for name in inside if name.endswith(_CODE)]
    for file in files:
        name = file.removeprefix(f"{package}/")
        size, time_ns = size_and_time(file)
        digest.update(f"{name}\0{size}\0{time_ns}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
