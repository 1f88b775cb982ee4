"""The trace set: the files of one capture, described by ``manifest.json``.

This module contains the only data model, reader and writer of trace sets. Capture, collection, conversion,
checks and import all use this module.
"""

from __future__ import annotations

import json
import os
import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec

from ..errors import TraceError, TraceFormatError
from ..support import open_file, sync_files, write_file

MANIFEST_NAME = "manifest.json"
MAX_RANKS = 1_000_000
_FORMAT = "chakrascope-trace-set"
_VERSION = 1
# The largest size of a manifest, which is enough for the process groups of ten thousand ranks.
_MAX_BYTES = 1 << 28
_NAMED_AT_MOST = 8

_Nanoseconds = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Rank = Annotated[int, msgspec.Meta(ge=0, lt=MAX_RANKS)]


class StepRange(msgspec.Struct, frozen=True):
    """The start and end of one captured step in Unix nanoseconds."""

    index: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    start_ns: _Nanoseconds
    end_ns: _Nanoseconds


class ProcessGroup(msgspec.Struct, frozen=True):
    """A process group (communicator) and its global ranks, in the group's order."""

    name: str
    ranks: list[_Rank]
    description: str = ""


class RankEntry(msgspec.Struct, frozen=True):
    """The files of one rank, and the conditions of their recording.

    Files are names in the trace set's folder. The host trace covers *structure_step*, or all *steps* if
    *structure_step* is None. *complete* states whether all requested steps are in the files. *all_groups* are
    the ranks of every group that the script created in a fake world. *unprofiled_steps* are up to 32
    unprofiled steps nearest to the captured steps. `read_evidence` reads the file *evidence*.
    `read_step_times` reads the file *step_times*, with the steps of a capture of 0 steps.
    """

    rank: _Rank
    host_trace: str | None = None
    device_trace: str | None = None
    flight_record: str | None = None
    evidence: str | None = None
    step_times: str | None = None
    complete: bool = True
    hostname: str = ""
    pid: int = 0
    device: str = ""
    backend: str | None = None
    process_groups: list[ProcessGroup] = msgspec.field(default_factory=list)
    structure_step: StepRange | None = None
    steps: list[StepRange] = msgspec.field(default_factory=list)
    all_groups: list[list[_Rank]] = msgspec.field(default_factory=list)
    trigger: str = ""
    unprofiled_steps: list[StepRange] = msgspec.field(default_factory=list)

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the rank's files in the trace set's folder."""
        traces = (self.host_trace, self.device_trace, self.flight_record)
        return tuple(filter(None, (*traces, self.evidence, self.step_times)))


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``manifest.json``; see docs/how-to/capture.md.

    *partial* means that a rank or a step is missing, and *reasons* has one sentence per reason. *notes* are
    other remarks. *exit_code* is the exit code of the training command, or 128 + n if signal n ended the
    command. In a *fake_world*, one process acted as rank 0 of all ranks. *ranks* are in rank order.
    """

    format: str = _FORMAT
    version: int = _VERSION
    created: str = ""
    partial: bool
    reasons: list[str]
    notes: list[str] = msgspec.field(default_factory=list)
    command: list[str]
    exit_code: int
    torch_version: str = ""
    world_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_RANKS)]
    fake_world: bool = False
    ranks: list[RankEntry]
    options: dict[str, int | bool] = msgspec.field(default_factory=dict)


class TraceSet(Manifest, frozen=True, kw_only=True):
    """A trace set: the folder of a capture and the content of the manifest."""

    path: Path

    @classmethod
    def load(cls, folder: str | Path, *, need_files: bool = True) -> TraceSet:
        """Read and check a trace set; with *need_files*, all listed files must exist.

        Raises:
            TraceError: the manifest is missing or cannot be read, or a listed file is missing.
            TraceFormatError: the manifest is truncated, damaged, or of another format or version.

        """
        path = Path(folder)
        manifest = _read(path / MANIFEST_NAME)
        _check(path / MANIFEST_NAME, manifest)
        if need_files:
            _check_files(path, manifest)
        return cls(path=path, **msgspec.structs.asdict(manifest))

    def save(self) -> None:
        """Write the manifest atomically, after all listed files are on the disk."""
        sync_files(self.path / name for entry in self.ranks for name in entry.files)
        document = msgspec.to_builtins(self.manifest)
        write_file(self.path / MANIFEST_NAME, json.dumps(document, indent=1) + "\n")

    @property
    def manifest(self) -> Manifest:
        """The content of the manifest, without the folder."""
        return Manifest(**{name: getattr(self, name) for name in Manifest.__struct_fields__})

    @property
    def why_partial(self) -> str:
        """The reasons for a partial capture as one text."""
        return "; ".join(reason.rstrip(". ") for reason in self.reasons) or "its manifest does not say why"

    def check_usable(self) -> None:
        """Raise `TraceError` if a rank (in a fake world, rank 0) left no host trace or no device trace."""
        if any(entry.step_times for entry in self.ranks):
            raise TraceError(
                f"{self.path} holds the times of all steps, and no traces (--steps 0). Next: find stragglers "
                f"with `chakrascope diagnose {self.path}`, or capture a few steps."
            )
        if self.unusable_ranks:
            raise TraceError(
                f"{self.lacking(self.unusable_ranks)}. Capture again if the ranks died; if another "
                "`chakrascope trace` captured these ranks, merge both captures with "
                "`chakrascope trace --collect`."
            )

    @property
    def unusable_ranks(self) -> list[int]:
        """The ranks without a host or a device trace; a fake world needs only rank 0."""
        usable = {entry.rank for entry in self.ranks if entry.device_trace and entry.host_trace}
        return [rank for rank in range(1 if self.fake_world else self.world_size) if rank not in usable]

    def lacking(self, ranks: Sequence[int]) -> str:
        """Return a sentence on *ranks* without usable traces, with the known reasons."""
        named = ", ".join(map(str, ranks[:_NAMED_AT_MOST]))
        more = len(ranks) - _NAMED_AT_MOST
        return (
            f"{self.path / MANIFEST_NAME}: the job had {self.world_size} ranks, but there is no usable trace "
            f"of rank {named}{f' and {more} more' if more > 0 else ''}"
            f"{f' ({self.why_partial})' if self.reasons else ''}"
        )


def _read(file: Path) -> Manifest:
    """Return the manifest in *file*, with the type and range of each value checked."""
    data = _contents(file)
    try:
        head = msgspec.json.decode(data)
    except (RecursionError, ValueError) as error:
        raise TraceFormatError(
            f"{file} is not valid JSON ({error}); it is damaged or truncated. Copy it again or capture again."
        ) from None
    if not isinstance(head, dict) or head.get("format") != _FORMAT:
        raise TraceFormatError(
            f'{file} is not a trace set\'s manifest: its "format" is not "{_FORMAT}". '
            "Give the folder that `chakrascope trace` wrote."
        )
    version = head.get("version")
    if type(version) is not int or version != _VERSION:
        raise TraceFormatError(
            f"{file} has version {reprlib.repr(version)}; this chakrascope reads version {_VERSION}. "
            "Use the chakrascope that captured it, or capture again."
        )
    try:
        return msgspec.convert(head, Manifest)
    except msgspec.ValidationError as error:
        _refuse(file, str(error))


def _contents(file: Path) -> bytes:
    try:
        size = file.stat().st_size
        if size > _MAX_BYTES:
            raise TraceFormatError(
                f"{file} is {size >> 20} MiB, too large for a manifest. "
                "Give the folder that `chakrascope trace` wrote."
            )
        with open_file(file) as content:
            return content.read()
    except FileNotFoundError:
        raise TraceError(
            f"{file.parent} holds no trace set: there is no {MANIFEST_NAME}, which a capture writes last. "
            f"Let it finish, or capture with `chakrascope trace -o {file.parent} -- python train.py`."
        ) from None
    except OSError as error:
        raise TraceError(f"{file} cannot be read: {error.strerror}. Check its permissions.") from None


def _check(file: Path, manifest: Manifest) -> None:
    """Refuse contradictions and file names outside the folder in *manifest*, and sort the ranks."""
    world_size = manifest.world_size
    manifest.ranks.sort(key=lambda entry: entry.rank)
    seen: set[int] = set()
    for entry in manifest.ranks:
        if entry.rank in seen:
            _refuse(file, f"rank {entry.rank} is listed twice")
        seen.add(entry.rank)
        if entry.rank >= world_size:
            _refuse(file, f"it lists rank {entry.rank} of a job of {world_size} ranks")
        for ranks in (*(group.ranks for group in entry.process_groups), *entry.all_groups):
            if ranks and max(ranks) >= world_size:
                _refuse(file, f"a group of rank {entry.rank} has rank {max(ranks)} of {world_size} ranks")
        for name in entry.files:
            if not _is_plain(name):
                named = reprlib.repr(name)
                _refuse(file, f"rank {entry.rank} lists {named}, which is not the name of a file there")


def _is_plain(name: str) -> bool:
    return name not in (".", "..") and Path(name).name == name and "\0" not in name


def _refuse(file: Path, why: str) -> NoReturn:
    raise TraceFormatError(f"{file}: {why}. The manifest was edited or damaged; capture again.") from None


def _check_files(path: Path, manifest: Manifest) -> None:
    for entry in manifest.ranks:
        for name in entry.files:
            if not os.path.isfile(path / name):
                raise TraceError(
                    f"{path / name} is missing: the manifest lists it as a file of rank {entry.rank}. "
                    "Copy the whole trace set folder, or capture again."
                )
