"""Custom collective algorithms of a system: their files, content hashes, and copies in a study."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os.path import isfile
from pathlib import Path
from typing import Any

import yaml

from ...errors import ConfigError, did_you_mean
from ...support import new_folder, open_file, write_file
from ...support.documents import read_yaml
from ..engine import ALGORITHMS, COLLECTIVES, WHOLE_ALGORITHMS, is_algorithm
from ..programs import PROGRAM_NAMES, is_program_name
from ._system import SystemConfig

_PER_NODE = "per_node_custom_implementation"
_PROGRAMS = tuple(f"{name.replace('-', '_')}_programs" for name in COLLECTIVES)
_CUSTOMS = tuple(f"{name.replace('-', '_')}_implementation_custom" for name in COLLECTIVES)
BUILTIN = "builtin"


def program_files(system: SystemConfig) -> dict[str, list[Path | str | None]]:
    """Return the program files and names for each collective, such as ``all-reduce``.

    None stands for ``builtin``, the system's own algorithm.
    """
    files: dict[str, list[Path | str | None]] = {}
    for collective, key in zip(COLLECTIVES, _PROGRAMS, strict=True):
        names = getattr(system, key) or ()
        if names:
            files[collective] = [_program_of(system, name) for name in names]
    return files


def _program_of(system: SystemConfig, name: str) -> Path | str | None:
    if name == BUILTIN:
        return None
    return name if is_program_name(name) else system.folder / name


def with_absolute_algorithms(system: SystemConfig) -> SystemConfig:
    """Return *system* with absolute paths for algorithms that exist in the working directory.

    ASTRA-sim searches the working directory first. All other paths are relative to the system's
    file.
    """
    here = Path.cwd()

    def exists(key: str, name: str) -> bool:
        if key in _CUSTOMS:
            return bool(_files_of(here / name))
        return not is_program_name(name) and isfile(here / name)

    changes: dict[str, Any] = {}
    for key in (*_CUSTOMS, *_PROGRAMS):
        names = getattr(system, key)
        if names:
            changes[key] = tuple(str(here / name) if exists(key, name) else name for name in names)
    per_node = getattr(system, _PER_NODE)
    if per_node is not None and isfile(here / per_node):
        changes[_PER_NODE] = str(here / per_node)
    return replace(system, **changes)


def with_algorithms(
    system: SystemConfig, algorithms: Mapping[str, Sequence[str]], dimensions: int
) -> SystemConfig:
    """Return *system* with the algorithms of the collectives in *algorithms* replaced.

    *algorithms* maps a collective, such as ``all-reduce``, to program files or names such as
    ``nccl``; the first that fits is used. The last entry may be a built-in algorithm, for
    collectives that no program fits. Raises `ConfigError` for an unknown name.
    """
    changes: dict[str, Any] = {}
    for collective, names in algorithms.items():
        if collective not in COLLECTIVES:
            raise ConfigError(f"There is no collective '{collective}'{did_you_mean(collective, COLLECTIVES)}")
        key = collective.replace("-", "_")
        built_in = [name for name in names if is_algorithm(name)]
        if built_in:
            changes[f"{key}_implementation"] = (built_in[0],)
        files = tuple(
            BUILTIN if name == BUILTIN or is_algorithm(name) else _resolved_program(name) for name in names
        )
        changes[f"{key}_programs"] = files if set(files) != {BUILTIN} else None
        changes[f"{key}_implementation_custom"] = None
    return replace(system, **changes).for_dimensions(dimensions)


def refuse_programs(system: SystemConfig, backend: str) -> None:
    """Raise `ConfigError` if *system* has programs, which *backend* does not support."""
    given = [key for key in _PROGRAMS if getattr(system, key)]
    if given:
        raise ConfigError(
            f"'{given[0].replace('_', '-')}' is an extension, which '{backend}' would ignore. Next: write "
            "the program as messages with 'chakrascope algorithm export', and name those under "
            f"'{given[0].removesuffix('_programs').replace('_', '-')}-implementation-custom'."
        )


def _resolved_program(name: str) -> str:
    if is_program_name(name):
        return name
    path = Path(name)
    if not isfile(path):
        built_in = (*ALGORITHMS, *WHOLE_ALGORITHMS, *PROGRAM_NAMES)
        hint = "" if "/" in name or "." in name else did_you_mean(name, built_in)
        raise ConfigError(
            f"There is no program and no built-in algorithm '{name}'{hint or '; check the path.'}"
        )
    return str(path.resolve())


def without_paths(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return a system file's mapping with every algorithm path reduced to its file name."""
    shown = dict(plain)
    for key in (key.replace("_", "-") for key in (*_CUSTOMS, *_PROGRAMS)):
        if key in shown:
            shown[key] = [Path(name).name for name in shown[key]]
    key = _PER_NODE.replace("_", "-")
    if key in shown:
        shown[key] = Path(shown[key]).name
    return shown


def digests(system: SystemConfig) -> dict[str, str]:
    """Return a content hash for each algorithm of *system*, keyed by collective or node."""
    found = {}
    for use, name in _names(system).items():
        files_by_place = sorted(_files_of(system.folder / name).items())
        lines = [f"{number} {_digest(file)}" for number, file in files_by_place]
        found[use] = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    for collective, files in program_files(system).items():
        for place, file in enumerate(files):
            named = BUILTIN if file is None else file
            found[f"{collective}-program-{place}"] = named if isinstance(named, str) else _digest(named)
    return found


def copied_into(system: SystemConfig, folder: Path, inside: str = "algorithms") -> SystemConfig:
    """Copy the algorithm files of *system* to ``folder/inside``; return the system as stored in *folder*.

    Raises `ConfigError` for an algorithm without files.
    """
    changes: dict[str, Any] = {}
    per_node = {}
    lead = f"{inside}/" if inside else ""
    for use, name in _names(system).items():
        _copy(system, name, folder / inside, use)
        if use.startswith("node-"):
            per_node[int(use.removeprefix("node-"))] = f"{lead}{use}"
        else:
            changes[f"{use}_implementation_custom"] = (f"{lead}{use}",)
    for collective, files in program_files(system).items():
        key = f"{collective.replace('-', '_')}_programs"
        changes[key] = tuple(
            lead + _copy_program(file, folder / inside, f"{collective}-{place}")
            if isinstance(file, Path)
            else file or BUILTIN
            for place, file in enumerate(files)
        )
    if getattr(system, _PER_NODE) is not None:  # the table may name no node
        write_file(folder / inside / "nodes.yml", yaml.safe_dump(per_node), parents=True)
        changes[_PER_NODE] = f"{lead}nodes.yml"
    return replace(system, folder=folder, **changes)


def with_stored_algorithms(folder: Path, system: SystemConfig) -> tuple[SystemConfig, str]:
    """Copy the algorithms of *system* into *folder* under a name made of their content; return both.

    Files are written atomically, and equal content only once. A system without algorithms has the
    name "".
    """
    if not _names(system) and not any(getattr(system, key) for key in _PROGRAMS):
        return system, ""
    content = "\n".join(f"{use} {digest}" for use, digest in sorted(digests(system).items()))
    name = hashlib.sha256(content.encode()).hexdigest()[:16]
    with new_folder(folder / name, existing="keep") as temporary:
        kept = copied_into(system, temporary, "")
    return replace(kept, folder=folder / name), name


def read_per_node(system: SystemConfig) -> dict[int, str]:
    """Return the custom algorithm of each node id in *system*; raises `ConfigError` for invalid YAML."""
    path = system.folder / str(getattr(system, _PER_NODE))
    data = read_yaml(path, "list of single nodes' custom algorithms")
    try:
        return {int(key): str(value) for key, value in data.items()}
    except ValueError as error:
        raise ConfigError(
            f"The custom algorithms of single nodes in {path} cannot be read ({error}); "
            "the file must map node ids to names."
        ) from error


def _names(system: SystemConfig) -> dict[str, str]:
    """Return the custom algorithms, keyed by collective or by ``node-ID``."""
    found = {}
    for key in _CUSTOMS:
        names = getattr(system, key)
        if names:
            found[key.removesuffix("_implementation_custom")] = names[0]
    if getattr(system, _PER_NODE) is not None:
        found |= {f"node-{node}": name for node, name in read_per_node(system).items()}
    return found


def _files_of(prefix: Path) -> dict[int, Path]:
    """Return the trace files PREFIX.N.et of a custom algorithm, keyed by N."""
    pattern = re.compile(rf"{re.escape(prefix.name)}\.(\d+)\.et")
    places = prefix.parent.iterdir() if prefix.parent.is_dir() else ()
    matches = [(pattern.fullmatch(file.name), file) for file in places]
    return {int(match[1]): file for match, file in matches if match}


def _copy(system: SystemConfig, name: str, folder: Path, use: str) -> None:
    files = _files_of(system.folder / name)
    if not files:
        raise ConfigError(
            f"The custom algorithm '{name}' has no files {system.folder / name}.N.et, one for each position "
            "N; they are searched relative to the working directory, then to the folder of the system file."
        )
    folder.mkdir(parents=True, exist_ok=True)
    for number, file in files.items():
        shutil.copyfile(file, folder / f"{use}.{number}.et")


def _copy_program(file: Path, folder: Path, name: str) -> str:
    """Copy a collective program into *folder*; return the copy's name, which starts with *name*."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copyfile(file, folder / f"{name}-{file.name}")
    except OSError as error:
        raise ConfigError(
            f"The collective program {file} cannot be read ({error.strerror}); check the path."
        ) from error
    return f"{name}-{file.name}"


def _digest(file: Path) -> str:
    try:
        with open_file(file) as content:
            return hashlib.sha256(content.read()).hexdigest()
    except OSError as error:
        raise ConfigError(
            f"The custom algorithm {file} cannot be read ({error.strerror}); check the path."
        ) from error
