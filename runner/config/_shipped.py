"""Files that ship with the package and are selected by name: presets, chips, machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import ConfigError, did_you_mean

__all__ = ["Shipped", "is_name"]


@dataclass(frozen=True)
class Shipped:
    """The shipped files of one kind, called *what* in messages: those in *folder* that end in *suffix*.

    *other_names* are aliases; *listed_by* is the command that lists the names, "" if messages do.
    """

    what: str
    folder: Path
    suffix: str = ".yml"
    listed_by: str = ""
    other_names: Mapping[str, str] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Return their names, sorted."""
        return sorted(path.stem for path in self.folder.glob(f"*{self.suffix}"))

    def path_of(self, name: str) -> Path:
        """Return the file called *name*; raises `ConfigError` with the closest name."""
        names, known = self.names(), self.other_names.get(name, name)
        if known not in names:
            raise ConfigError(f"There is no {self.what} '{name}'{did_you_mean(name, names, self.listed_by)}")
        return self.folder / f"{known}{self.suffix}"

    def find(self, name: str | Path) -> Path:
        """Return the file called *name* if it is a shipped name, else *name* itself as a path."""
        return self.path_of(str(name)) if is_name(name) else Path(name)


def is_name(name: str | Path) -> bool:
    """Return whether *name* is a plain word, and no file here."""
    path = Path(name)
    return isinstance(name, str) and path.name == name and not path.suffix and not path.is_file()
