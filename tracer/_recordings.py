"""What one rank of a script does in a step, as it was recorded without devices, peers or data."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import msgspec

from ..errors import TraceError, TraceFormatError

__all__ = ["RecordedEntry", "Recording"]


class RecordedEntry(msgspec.Struct, frozen=True):
    """An operator or a communication, with its arguments as host traces have them.

    It waits for the entry before it on its *stream* and for those whose places are in *waits*. Of a
    communication, *group* is the name of its group, and *peer* the place there of whom a message is for or
    from. *module* counts the recording's, *phase* is forward, backward, optimizer or other.
    """

    name: str
    inputs: list[Any]
    shapes: list[Any]
    outputs: list[Any]
    output_shapes: list[Any]
    changes: bool
    stream: int
    waits: list[int]
    module: int
    phase: str
    group: str | None = None
    peer: int = -1
    tag: int = -1


class Failure(msgspec.Struct, frozen=True):
    """Why nothing was recorded: an exception's kind and message, where in the script, and its traceback."""

    kind: str
    message: str
    place: str
    stack: list[str]


class Mesh(msgspec.Struct, frozen=True):
    """A device mesh that the script made."""

    names: list[str]
    sizes: list[int]


class Memory(msgspec.Struct, frozen=True):
    """Bytes of tensors: those held when the step begins, and the most at any time in it."""

    fixed: int
    most: int


class Recording(msgspec.Struct, frozen=True):
    """One step of one rank.

    *groups* are the ranks of this rank's groups by name, *made_groups* those of every group made, in order;
    *compiled* are the modules that the script would have compiled.
    """

    rank: int
    world: int
    groups: dict[str, list[int]]
    made_groups: list[list[int]]
    meshes: list[Mesh]
    notes: list[str]
    memory_bytes: Memory
    torch_version: str
    entries: list[RecordedEntry] = []
    modules: list[str] = []
    compiled: list[str] = []
    failure: Failure | None = None

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Read the recording in *path*; raises `TraceError` if it cannot be read."""
        try:
            return msgspec.json.decode(gzip.decompress(path.read_bytes()), type=cls)
        except OSError as error:
            raise TraceError(
                f"{path} cannot be read: {error.strerror or error}. Record the script again."
            ) from None
        except (EOFError, msgspec.DecodeError, ValueError) as error:
            raise TraceFormatError(
                f"{path} is not a recording of a script ({error}); it is damaged. Record the script again."
            ) from None

    @property
    def peers(self) -> set[int]:
        """The ranks that this one sends messages to or receives them from."""
        return {
            self.groups[entry.group][entry.peer]
            for entry in self.entries
            if entry.peer >= 0 and entry.group is not None
        }
