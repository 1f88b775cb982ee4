"""Read the file of ``chakrascope.runner.calibration.gloo`` as records of a calibration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec

from ...errors import ConfigError, did_you_mean
from ._records import EXCHANGE, MESSAGE, MUTUAL, ROOTED, Call, Records, Transfer

__all__ = ["are_gloo_records", "gloo_records"]

_MARK = b'{"library"'
_OPERATIONS = (*(kind.name.lower() for kind in (*MUTUAL, *ROOTED)), MESSAGE, EXCHANGE)
# From gloo's source: an all-gather posts half of its sends and receives, and then the other half; an
# all-to-all posts all of them. Its all-reduce sends requests before data.
_SENDS_FIRST = {"all_gather": 2, "all_to_all": 1}
# Replacements that PyTorch may run on gloo: an all-reduce moves twice the data of a reduce-scatter.
_STAND_INS = {"reduce_scatter": "all_reduce"}
_TAKES_AS_LONG = 0.75
_MOST_RANKS = 1 << 16
_MOST_BYTES = 256 << 20


class _Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    operation: str
    size_bytes: int
    durations_ns: list[int]
    members: list[int] | None = None
    last: int | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    library: str
    hosts: list[str]
    calls: list[_Call]


def are_gloo_records(path: str | Path) -> bool:
    """Return whether *path* is a file of gloo measurements, by its first bytes."""
    file = Path(path)
    if file.suffix != ".json" or not file.is_file():
        return False
    with file.open("rb") as stream:
        return stream.read(len(_MARK)) == _MARK


def gloo_records(path: str | Path) -> Records:
    """Return the transfers in the file at *path*; raises `ConfigError` for errors in it.

    The duration of a transfer is that of the last rank to arrive. If the file does not name that rank, it is
    the one with the shortest duration. Round trips of messages were timed with one clock, so a message takes
    half of the first rank's time.
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
    transfers = tuple(_transfer(call, ranks, f"{file}: call {n}") for n, call in enumerate(read.calls))
    source = f"measurements of {read.library} in {file.name}"
    is_gloo = read.library == "gloo"
    says_last = all(call.last is not None for call in read.calls)
    return Records(
        transfers,
        ranks,
        source,
        dict(enumerate(read.hosts)),
        sends_first=_SENDS_FIRST if is_gloo and says_last else {},
        substitutes=_substitutes(transfers) if is_gloo else {},
    )


def _substitutes(transfers: Sequence[Transfer]) -> dict[str, str]:
    """Return the operations that take as long as another one with twice the data, at the largest size."""
    times: dict[tuple[tuple[int, ...], str], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for transfer in transfers:
        ((operation, size_bytes),) = transfer.calls
        times[transfer.members, operation][size_bytes].append(transfer.transfer_ns)
    found = {}
    for operation, other in _STAND_INS.items():
        shares = []
        for (members, name), own in times.items():
            theirs = times.get((members, other), {})
            if name == operation and own.keys() & theirs.keys():
                largest = max(own.keys() & theirs.keys())
                shares.append(median(own[largest]) / median(theirs[largest]))
        if shares and median(shares) > _TAKES_AS_LONG:
            found[operation] = other
    return found


def _transfer(call: _Call, ranks: int, place: str) -> Transfer:
    if call.operation not in _OPERATIONS:
        raise ConfigError(
            f"{place}: there is no operation '{call.operation}'{did_you_mean(call.operation, _OPERATIONS)}"
        )
    members = tuple(range(ranks)) if call.members is None else tuple(call.members)
    if len(set(members)) != len(members) or not set(members) <= set(range(ranks)) or len(members) < 2:
        raise ConfigError(f"{place}: 'members' must name two ranks or more, each once, below {ranks}.")
    durations = call.durations_ns
    if len(durations) != len(members) or min(durations, default=0) <= 0 or call.size_bytes <= 0:
        raise ConfigError(f"{place} needs a size above 0, and a duration above 0 of every rank.")
    if call.last is not None and call.last not in members:
        raise ConfigError(f"{place}: 'last' names rank {call.last}, which is none of its members.")
    taken = min(durations) if call.last is None else durations[members.index(call.last)]
    return Transfer(members, (Call(call.operation, call.size_bytes),), taken, max(durations) - taken)
