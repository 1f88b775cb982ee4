"""Configurations that ship with the package, selected by name."""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from ...errors import ConfigError, did_you_mean

_NODES = re.compile(r"(?P<family>.+)-(?P<nodes>\d{1,6})x(?P<size>\d{1,4})")
_NO_NODES = ("tpu",)  # names in which WxH is the shape of a torus
_FILES = {"network": "network.yml", "system": "system.json", "memory": "memory.json"}
_BLOCKS = {
    ".yml": re.compile(r"^([^\s#:]+):\n((?:  .*\n)+)", re.MULTILINE),
    ".json": re.compile(r'^  "([^"]+)": (\{\n(?:    .*\n)*  \}),?\n', re.MULTILINE),
}


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


def preset_text(kind: str, name: str) -> str:
    """Return the preset *name* as the text of a file; raises `ConfigError` and suggests the closest name."""
    return _presets(kind).text(name)


def _presets(kind: str) -> Shipped:
    if kind not in _FILES:
        raise ConfigError(f"There are no presets of kind '{kind}'{did_you_mean(kind, _FILES)}")
    path = Path(__file__).parent.parent / "presets" / _FILES[kind]
    return Shipped(f"{kind} preset", path, listed_by="chakrascope network")


@lru_cache(8)
def _texts(file: Path, _changed: int) -> dict[str, str]:
    """Return the text of each block in *file*, by name, until the modification time changes."""
    blocks = _BLOCKS[file.suffix].findall(file.read_text(encoding="utf-8"))
    return {name: re.sub("^  ", "", block, flags=re.MULTILINE).rstrip() + "\n" for name, block in blocks}


@dataclass(frozen=True)
class Shipped:
    """A file that ships with the package, with a block below each name; messages call a block *what*.

    The blocks are indented by two spaces. *other_names* are aliases. *listed_by* is the command that
    lists the names, or "" if messages list them.
    """

    what: str
    path: Path
    listed_by: str = ""
    other_names: Mapping[str, str] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Return the sorted names."""
        return sorted(self._blocks())

    def full_name(self, name: str) -> str:
        """Return *name* without an alias; raises `ConfigError` and suggests the closest name."""
        names, real_name = self.names(), self.other_names.get(name, name)
        if real_name not in names:
            raise ConfigError(f"There is no {self.what} '{name}'{did_you_mean(name, names, self.listed_by)}")
        return real_name

    def text(self, name: str) -> str:
        """Return the block called *name* as the text of a file; raises `ConfigError` for an unknown name."""
        return self._blocks()[self.full_name(name)]

    def means(self, name: str | Path) -> bool:
        """Return whether *name* means a block: a known name, or a plain word that is not a file.

        Known names come first, so that a file in the working directory cannot replace a shipped
        block.
        """
        if not isinstance(name, str) or name in self.other_names or name in self.names():
            return isinstance(name, str)
        path = Path(name)
        # `Path.is_file` raises an error for names that no file can have.
        return path.name == name and not path.suffix and not os.path.isfile(name)

    def _blocks(self) -> dict[str, str]:
        return _texts(self.path, self.path.stat().st_mtime_ns)
