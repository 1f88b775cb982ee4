"""The trace set: what one capture leaves on disk, described by ``manifest.json``."""

from __future__ import annotations

import json
import os
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import TraceError, TraceFormatError
from ..support import sync_files, write_file

__all__ = ["MANIFEST_NAME", "TraceSet"]

MANIFEST_NAME = "manifest.json"
FORMAT = "chakrascope-trace-set"
VERSION = 1
REQUIRED = {
    "partial": bool,
    "reasons": list,
    "command": list,
    "exit_code": int,
    "world_size": int,
    "ranks": list,
}
FILE_KEYS = ("host_trace", "device_trace", "flight_record")


@dataclass(frozen=True)
class TraceSet:
    """One capture: its folder and its manifest (see the docs for the manifest's keys)."""

    path: Path
    manifest: Mapping[str, Any]

    @property
    def exit_code(self) -> int:
        """The training command's exit code, 128 + n when signal n ended it."""
        return int(self.manifest["exit_code"])

    @property
    def partial(self) -> bool:
        """Whether a rank or a step is missing; ``reasons`` says why."""
        return bool(self.manifest["partial"])

    @property
    def reasons(self) -> list[str]:
        """Why the capture is partial, one sentence each."""
        return list(self.manifest["reasons"])

    @property
    def world_size(self) -> int:
        """Number of ranks of the training job."""
        return int(self.manifest["world_size"])

    @property
    def ranks(self) -> list[dict[str, Any]]:
        """The captured ranks' entries, in rank order."""
        return list(self.manifest["ranks"])

    @classmethod
    def load(cls, folder: str | Path) -> TraceSet:
        """Read and check a trace set.

        Raises:
            TraceError: there is no manifest, or a file it names is missing.
            TraceFormatError: the manifest is truncated or of another format or version.

        """
        path = Path(folder)
        manifest = _read_manifest(path / MANIFEST_NAME)
        _check_manifest(path / MANIFEST_NAME, manifest)
        _check_files(path, manifest)
        return cls(path, manifest)

    def save(self) -> None:
        """Write the manifest, whole or not at all, once the files it names are on the disk."""
        names = (rank.get(key) for rank in self.ranks for key in FILE_KEYS)
        sync_files(self.path / name for name in names if name is not None)
        write_file(self.path / MANIFEST_NAME, json.dumps(self.manifest, indent=1) + "\n")


def _read_manifest(file: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TraceError(
            f"{file.parent} holds no trace set: there is no {MANIFEST_NAME}. It is written at the end. "
            f"Capture one with `chakrascope trace -o {file.parent} -- python train.py`."
        ) from None
    except OSError as error:
        raise TraceError(f"{file} cannot be read: {error.strerror}. Check its permissions.") from None
    except (RecursionError, ValueError) as error:
        raise TraceFormatError(
            f"{file} is not valid JSON ({error}); it is damaged or truncated. Copy it again or capture anew."
        ) from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise TraceFormatError(
            f'{file} is not a trace set\'s manifest: its "format" is not "{FORMAT}". '
            "Give the folder that `chakrascope trace` wrote."
        )
    return manifest


def _check_manifest(file: Path, manifest: dict[str, Any]) -> None:
    if manifest.get("version") != VERSION:
        raise TraceFormatError(
            f"{file} has version {reprlib.repr(manifest.get('version'))}; this chakrascope reads version "
            f"{VERSION}. Use the chakrascope that captured it, or capture anew."
        )
    for key, kind in REQUIRED.items():
        if not isinstance(manifest.get(key), kind):
            raise TraceFormatError(
                f'{file}: "{key}" is missing or no {kind.__name__}: the manifest is damaged. Capture anew.'
            )
    for position, rank in enumerate(manifest["ranks"]):
        if not isinstance(rank, dict) or not isinstance(rank.get("rank"), int):
            raise TraceFormatError(
                f'{file}: entry {position} of "ranks" has no rank number. '
                "The manifest was edited or damaged; capture anew."
            )


def _check_files(path: Path, manifest: dict[str, Any]) -> None:
    for rank in manifest["ranks"]:
        for key in FILE_KEYS:
            name = rank.get(key)
            if name is not None and (not isinstance(name, str) or Path(name).name != name):
                raise TraceFormatError(
                    f"{path / MANIFEST_NAME}: rank {rank['rank']} lists {reprlib.repr(name)}, which is not "
                    "the name of a file in its folder. The manifest was edited or damaged; capture anew."
                )
            if name is not None and not os.path.isfile(path / name):
                raise TraceError(
                    f"{path / name} is missing: the manifest lists it as a file of rank {rank['rank']}. "
                    "Copy the whole trace set folder, or capture anew."
                )
