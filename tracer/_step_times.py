"""Read the times of all steps of a run on one rank from ``rankR.steps.json.gz``."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from ..errors import TraceError, TraceFormatError
from ._evidence import OPTIONAL_COLUMNS, StepReadings
from ._trace_set import MAX_RANKS, RankEntry, TraceSet

_Rank = Annotated[int, msgspec.Meta(ge=0, lt=MAX_RANKS)]
_MAX_BYTES = 1 << 28  # bytes of one part, which covers ten seconds
_READ_BYTES = 1 << 16


class StepTimes(msgspec.Struct, frozen=True):
    """Readings of consecutive steps of *rank*; *sends* are the ranks to which *rank* sends messages."""

    rank: _Rank
    steps: StepReadings
    sends: list[_Rank] = []


class _Part(StepTimes, frozen=True, kw_only=True):
    format: Literal["chakrascope-steps"]
    version: Literal[1]


def read_step_times(trace_set: TraceSet, entry: RankEntry) -> Iterator[StepTimes]:
    """Yield the recorded steps of *entry*, a rank of *trace_set*, part by part, in order of time.

    Only captures of 0 steps have recorded steps. An incomplete part, which a killed process leaves, is
    dropped.

    Raises:
        TraceError: the file cannot be read.
        TraceFormatError: the file is damaged or of another format or version.

    """
    if entry.step_times is None:
        return
    path = trace_set.path / entry.step_times
    for document in _documents(path):
        try:
            part = msgspec.json.decode(document, type=_Part)
        except (RecursionError, ValueError) as error:
            raise TraceFormatError(f"{path}: {error}. {_NEXT}") from None
        _check(path, part, entry.rank)
        yield part


_NEXT = "The file is damaged, or of another version: copy it again or record anew."


def _check(path: Path, part: StepTimes, rank: int) -> None:
    columns = part.steps.columns
    lengths = {len(own) for name, own in columns.items() if own or name not in OPTIONAL_COLUMNS}
    times = part.steps.time_ns
    if len(lengths) > 1:
        raise TraceFormatError(f"{path}: columns of one part have {sorted(lengths)} rows. {_NEXT}")
    if times != sorted(times) or part.steps.index != sorted(part.steps.index):
        raise TraceFormatError(f"{path}: its steps are not in order. {_NEXT}")
    if part.rank != rank:
        raise TraceFormatError(
            f"{path} belongs to rank {part.rank}, but the manifest lists it for rank {rank}. {_NEXT}"
        )


def _documents(path: Path) -> Iterator[bytes]:
    """Yield the content of each gzip member in order; an incomplete last member is dropped."""
    try:
        with path.open("rb") as file:
            rest = file.read(_READ_BYTES)
            while rest:
                member: Any = zlib.decompressobj(zlib.MAX_WBITS | 16)
                document = bytearray()
                while rest and not member.eof:
                    document += member.decompress(rest, _MAX_BYTES + 1 - len(document))
                    if len(document) > _MAX_BYTES:
                        raise TraceFormatError(
                            f"{path}: a part unpacks to over {_MAX_BYTES >> 20} MiB. {_NEXT}"
                        )
                    rest = member.unconsumed_tail or member.unused_data or file.read(_READ_BYTES)
                if member.eof:
                    yield bytes(document)
    except zlib.error as error:
        raise TraceFormatError(f"{path} cannot be decompressed ({error}). {_NEXT}") from None
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}. Check its permissions.") from None
