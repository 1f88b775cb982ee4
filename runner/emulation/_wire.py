"""The wire format of a job and its measurements: plain values and bytes, no code."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import BackendError
from .. import engine
from ._channel import Message

__all__ = ["EngineJob", "columns_from_wire", "columns_to_wire", "config_of", "job_to_wire"]

# How a rank runs its program; of networks only the shape.
_FIELDS = [field for field in engine.FIELDS.values() if field.origin != "local"]
_DTYPES = {name: np.dtype(name) for name in ("int32", "int64", "uint8", "uint64")}


@dataclass(frozen=True)
class EngineJob:
    """The job that every rank receives: the engine's configuration, programs, and algorithm files by name.

    *program_of_rank* gives the index of each rank's program.
    """

    config: engine.Config
    programs: tuple[bytes, ...]
    program_of_rank: tuple[int, ...]
    algorithms: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def num_ranks(self) -> int:
        """The number of ranks."""
        return len(self.program_of_rank)


def job_to_wire(job: EngineJob) -> tuple[dict[str, Any], list[bytes]]:
    """Return the facts and byte strings of a message with the job."""
    config = {}
    for each in _FIELDS:
        value = getattr(job.config, each.name)
        # JSON would convert the numbers that are keys to texts.
        config[each.name] = list(value.items()) if isinstance(value, dict) else value
    collectives = job.config.collective_programs
    facts = {
        "config": config,
        "program_of_rank": list(job.program_of_rank),
        "programs": len(job.programs),
        "collectives": [[*named, len(graphs)] for *named, graphs in collectives],
        "algorithms": list(job.algorithms),
    }
    messages = [graph for *_, graphs in collectives for graph in graphs]
    return facts, [*job.programs, *messages, *job.algorithms.values()]


def algorithms_of(message: Message) -> dict[str, bytes]:
    """Return the algorithm files of a job; raises `BackendError` for a name outside its folder."""
    names = message.facts["algorithms"]
    for name in names:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise BackendError(f"The coordinator names a file '{name}' outside of the job's own folder.")
    first = message.facts["programs"] + sum(count for *_, count in message.facts["collectives"])
    return dict(zip(names, message.pieces[first:], strict=True))


def config_of(message: Message) -> tuple[engine.Config, list[bytes], list[int]]:
    """Return the configuration, the programs, and the program of each rank of a job."""
    config = engine.Config()
    for name, _, default, *_ in _FIELDS:
        value = message.facts["config"][name]
        setattr(config, name, dict(value) if isinstance(default, dict) else value)
    config.custom_base = str(message.facts.get("folder", ""))
    pieces = iter(message.pieces)
    programs = list(itertools.islice(pieces, message.facts["programs"]))
    for collective, members, size, name, count in message.facts["collectives"]:
        config.add_program(collective, members, size, name, list(itertools.islice(pieces, count)))
    return config, programs, [int(program) for program in message.facts["program_of_rank"]]


def columns_to_wire(tables: Mapping[str, Mapping[str, Any]]) -> tuple[list[list[str]], list[bytes]]:
    """Return the names (table, column, type) and the bytes of all columns."""
    names, pieces = [], []
    for table, columns in tables.items():
        for column, values in columns.items():
            names.append([table, column, str(values.dtype)])
            pieces.append(values.tobytes())
    return names, pieces


def columns_from_wire(message: Message) -> dict[str, dict[str, npt.NDArray[Any]]]:
    """Return the columns of an output by table and name; raises `BackendError` for invalid ones."""
    tables: dict[str, dict[str, npt.NDArray[Any]]] = {}
    try:
        for (table, column, dtype), piece in zip(message.facts["tables"], message.pieces, strict=True):
            tables.setdefault(table, {})[column] = np.frombuffer(piece, dtype=_DTYPES[dtype])
    except (KeyError, TypeError, ValueError) as error:
        raise BackendError(f"A rank sent measurements that cannot be read ({error}).") from error
    return tables
