"""Find the configuration files shipped with the package by name."""

from __future__ import annotations

from pathlib import Path

from ...errors import ConfigError, did_you_mean

__all__ = ["list_presets", "preset_path"]

PRESETS = Path(__file__).resolve().parent.parent / "presets"
_SUFFIXES = {"network": ".yml", "system": ".json", "memory": ".json"}


def list_presets(kind: str = "network") -> list[str]:
    """Return the names of the presets of *kind* (``network``, ``system`` or ``memory``), sorted."""
    if kind not in _SUFFIXES:
        raise ConfigError(f"There are no presets of kind '{kind}'{did_you_mean(kind, _SUFFIXES)}")
    return sorted(path.stem for path in (PRESETS / kind).glob(f"*{_SUFFIXES[kind]}"))


def preset_path(kind: str, name: str) -> Path:
    """Return the file of the preset *name*; raises `ConfigError` naming the closest one."""
    names = list_presets(kind)
    if name not in names:
        raise ConfigError(f"There is no {kind} preset '{name}'{did_you_mean(name, names)}")
    return PRESETS / kind / f"{name}{_SUFFIXES[kind]}"
