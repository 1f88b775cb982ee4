"""Read the recording of one rank's step, taken without devices, peers or data."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import msgspec

from ..errors import TraceError, TraceFormatError
from ..support import open_file


class RecordedEntry(msgspec.Struct, frozen=True):
    """An operator or a communication, with the arguments in the format of host traces.

    An entry waits for the previous entry on its *stream* and for the entries with the indices *waits*. For a
    communication, *group* is the name of the process group, and *peer* is the position of a message's other
    rank in the group. *module* is an index into the recording's modules. *phase* is forward, backward,
    optimizer or other.
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
    """The reason for a missing recording: an exception with its source location and its traceback."""

    kind: str
    message: str
    place: str
    stack: list[str]


class Mesh(msgspec.Struct, frozen=True):
    """A device mesh that the script created."""

    names: list[str]
    sizes: list[int]


class Memory(msgspec.Struct, frozen=True):
    """The bytes of tensors at the start of a step, and the peak during the step."""

    fixed: int
    most: int


class Recording(msgspec.Struct, frozen=True):
    """The recording of one training step of one rank.

    *groups* maps the names of this rank's groups to their ranks. *made_groups* contains the ranks of every
    group that was created, in order of creation. *compiled* are the modules that the script compiles. *tf32*
    are the classes of operators (``gemm``, ``attention``, ``convolution``) for which the script allows TF32.
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
    tf32: list[str] = []
    failure: Failure | None = None

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Read the recording in *path*; raises `TraceError` if it cannot be read."""
        try:
            with open_file(path) as packed, gzip.open(packed) as file:
                return msgspec.json.decode(file.read(), type=cls)
        except OSError as error:
            raise TraceError(
                f"{path} cannot be read: {error.strerror or error}. Record the script again."
            ) from None
        except (EOFError, ValueError, zlib.error) as error:
            raise TraceFormatError(
                f"{path} is not a recording of a script ({error}); it is damaged. Record the script again."
            ) from None

    @property
    def peers(self) -> set[int]:
        """The ranks with which the recorded rank exchanges messages."""
        return {
            self.groups[entry.group][entry.peer]
            for entry in self.entries
            if entry.peer >= 0 and entry.group is not None
        }
