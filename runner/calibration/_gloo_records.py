"""The records of ``chakrascope.runner.calibration.gloo``: its file, made on a network, to a calibration's."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ...errors import ConfigError, did_you_mean
from ._records import MUTUAL, Call, Records, Transfer

__all__ = ["are_gloo_records", "gloo_records"]

_MARK = b'{"library"'
_OPERATIONS = tuple(kind.name.lower() for kind in MUTUAL)
_MOST_RANKS = 1 << 16
_MOST_BYTES = 256 << 20


class _Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    operation: str
    size_bytes: int
    durations_ns: list[int]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    library: str
    hosts: list[str]
    calls: list[_Call]


def are_gloo_records(path: str | Path) -> bool:
    """Return whether there is a file of measurements of gloo at *path*, by how it begins."""
    file = Path(path)
    if file.suffix != ".json" or not file.is_file():
        return False
    with file.open("rb") as stream:
        return stream.read(len(_MARK)) == _MARK


def gloo_records(path: str | Path) -> Records:
    """Return the transfers in the file at *path*; raises `ConfigError` for what is wrong in it.

    All ranks leave these collectives together, so that the rank which was in one for the shortest time came
    last: for so long it transferred, and no two clocks are compared.
    """
    file = Path(path)
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{file} is larger than any such file: more than {_MOST_BYTES} bytes.")
        read = msgspec.json.decode(file.read_bytes(), type=_File)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"{file} cannot be read as measurements of gloo: {error}. Make them with 'python -m "
            "chakrascope.runner.calibration.gloo FILE' on every rank."
        ) from None
    ranks = len(read.hosts)
    if not 2 <= ranks <= _MOST_RANKS:
        raise ConfigError(f"{file}: 'hosts' names {ranks} ranks; measure between two or more.")
    everyone = tuple(range(ranks))
    transfers = tuple(_transfer(call, everyone, f"{file}: call {n}") for n, call in enumerate(read.calls))
    source = f"measurements of {read.library} in {file.name}"
    return Records(transfers, ranks, source, dict(enumerate(read.hosts)))


def _transfer(call: _Call, everyone: tuple[int, ...], place: str) -> Transfer:
    if call.operation not in _OPERATIONS:
        raise ConfigError(
            f"{place}: there is no collective '{call.operation}'{did_you_mean(call.operation, _OPERATIONS)}"
        )
    durations = call.durations_ns
    if len(durations) != len(everyone) or min(durations, default=0) <= 0 or call.size_bytes <= 0:
        raise ConfigError(f"{place} needs a size above 0, and a duration above 0 of every rank.")
    least = min(durations)
    return Transfer(everyone, (Call(call.operation, call.size_bytes),), least, max(durations) - least)
