"""Configuration files that ship with the package, selected by name."""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import ConfigError, did_you_mean

PRESETS = Path(__file__).resolve().parent.parent / "presets"
_NODES = re.compile(r"(?P<family>.+)-(?P<nodes>\d{1,6})x(?P<size>\d{1,4})")
_NO_NODES = ("tpu",)  # names in which WxH is the shape of a torus
_SUFFIXES = {"network": ".yml", "system": ".json", "memory": ".json"}


def list_presets(kind: str = "network") -> list[str]:
    """Return the sorted names of the presets of *kind* (``network``, ``system`` or ``memory``)."""
    return _presets(kind).names()


def preset_of_nodes(name: str) -> tuple[int, str] | None:
    """Return the node count in *name* (``hgx-h100-64x8``) and a preset of other node count, or None."""
    match = _NODES.fullmatch(name)
    if match is None or int(match["nodes"]) < 2:
        return None
    alike = re.compile(rf"{re.escape(match['family'])}-\d+x{match['size']}")
    like = next((preset for preset in list_presets("network") if alike.fullmatch(preset)), None)
    return None if like is None or like.startswith(_NO_NODES) else (int(match["nodes"]), like)


def is_preset(kind: str, name: str | Path) -> bool:
    """Return whether *name* means a preset of *kind*: a known name, or a plain word that is not a file."""
    if kind == "network" and isinstance(name, str) and preset_of_nodes(name) is not None:
        return True
    return _presets(kind).means(name)


def preset_path(kind: str, name: str) -> Path:
    """Return the file of the preset *name*; raises `ConfigError` and suggests the closest name."""
    return _presets(kind).path_of(name)


def _presets(kind: str) -> Shipped:
    if kind not in _SUFFIXES:
        raise ConfigError(f"There are no presets of kind '{kind}'{did_you_mean(kind, _SUFFIXES)}")
    return Shipped(f"{kind} preset", PRESETS / kind, _SUFFIXES[kind], listed_by="chakrascope network")


@dataclass(frozen=True)
class Shipped:
    """Files *folder*/NAME*suffix* of one kind that ship with the package; messages call them *what*.

    *other_names* are aliases. *listed_by* is the command that lists the names, or "" if messages
    list them.
    """

    what: str
    folder: Path
    suffix: str = ".yml"
    listed_by: str = ""
    other_names: Mapping[str, str] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Return the sorted names of the files."""
        return sorted(path.stem for path in self.folder.glob(f"*{self.suffix}"))

    def path_of(self, name: str) -> Path:
        """Return the file called *name*; raises `ConfigError` and suggests the closest name."""
        names, full_name = self.names(), self.other_names.get(name, name)
        if full_name not in names:
            raise ConfigError(f"There is no {self.what} '{name}'{did_you_mean(name, names, self.listed_by)}")
        return self.folder / f"{full_name}{self.suffix}"

    def find(self, name: str | Path) -> Path:
        """Return the file called *name*, or *name* as a path if it does not mean a shipped file."""
        return self.path_of(str(name)) if self.means(name) else Path(name)

    def means(self, name: str | Path) -> bool:
        """Return whether *name* means a shipped file: a known name, or a plain word that is not a file.

        Known names come first, so that a file in the working directory cannot replace a shipped
        one.
        """
        if not isinstance(name, str) or name in self.other_names or name in self.names():
            return isinstance(name, str)
        path = Path(name)
        # `Path.is_file` raises an error for names that no file can have.
        return path.name == name and not path.suffix and not os.path.isfile(name)
