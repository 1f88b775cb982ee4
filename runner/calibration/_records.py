"""The input of a calibration: times of collectives after the last arrival, and levels of the network.

A level is a set of rank pairs that a calibration can distinguish from other pairs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
import numpy as np
import pandas as pd

from ...converter import CollectiveType, Workload
from ...errors import ConfigError, did_you_mean
from ...support import bandwidth_text, count_text
from .._result import Result

# These collectives end on no rank before all ranks have arrived, so the shortest duration includes no waiting
# time.
MUTUAL = (
    CollectiveType.ALL_REDUCE,
    CollectiveType.ALL_GATHER,
    CollectiveType.REDUCE_SCATTER,
    CollectiveType.ALL_TO_ALL,
)
# In these collectives, a rank may leave before another rank arrives, so their durations are known only with a
# common clock or a common end.
ROOTED = tuple(kind for kind in CollectiveType if kind.is_rooted)
MESSAGE = "message"
"""The operation of a message from one rank to another."""
EXCHANGE = "exchange"
"""The operation of two messages in opposite directions: each rank sends, and then receives."""


class Call(NamedTuple):
    """A collective or message: its operation (such as ``all_reduce``), and its bytes per rank."""

    operation: str
    size_bytes: int


class Transfer(NamedTuple):
    """Consecutive collectives of the global ranks *members* without pauses, with their duration.

    A transfer has several collectives if each collective was requested before the previous collective had
    ended. *transfer_ns* begins at the arrival of the last rank, and *wait_ns* is the additional time of the
    first rank.
    """

    members: tuple[int, ...]
    calls: tuple[Call, ...]
    transfer_ns: int
    wait_ns: int


@dataclass(frozen=True)
class Records:
    """The measurements of one job, with a short description of their origin as *source*.

    * *hosts* and *leaves* map a rank to its host and to its leaf switch. The location of a missing rank is
      unknown.
    * *left_out* has sentences on unusable measurements.
    * *message_costs_ns* has measured times for which a message keeps its sender from sending the next
      message.
    * *sends_first* has the operations in which ranks send before the receiver's request, with the number of
      concurrent pieces. A transfer of these operations is timed on a rank that arrived long after all other
      ranks.
    * *substitutes* maps an operation to the operation that the library runs in its place.
    """

    transfers: tuple[Transfer, ...]
    num_ranks: int
    source: str
    hosts: Mapping[int, str] = field(default_factory=dict)
    leaves: Mapping[int, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    message_costs_ns: tuple[float, ...] = ()
    sends_first: Mapping[str, int] = field(default_factory=dict)
    substitutes: Mapping[str, str] = field(default_factory=dict)


def result_records(
    result: Result, workload: Workload, source: str, hosts: Mapping[int, str] | None = None
) -> Records:
    """Return the transfers in *result*; a transfer's time is its duration on the last rank to arrive.

    The last rank to arrive has the shortest duration, so no common clock is needed. Collectives of a group
    count as one transfer if, on each rank, each collective begins before the previous collective has ended.
    """
    calls = result.collectives[result.collectives["comm_type"].isin(MUTUAL)]
    everyone = tuple(range(workload.num_ranks))
    transfers: list[Transfer] = []
    for group, part in calls.groupby("group", sort=True):
        members = tuple(workload.groups.get(int(str(group))) or everyone)
        ranks = part.groupby("collective")["rank"].transform("size")
        transfers += _transfers(part[ranks == len(members)], members)
    return Records(tuple(transfers), workload.num_ranks, source, hosts or {})


def _transfers(calls: pd.DataFrame, members: tuple[int, ...]) -> list[Transfer]:
    transfers: list[Transfer] = []
    overlapping: list[pd.DataFrame] = []
    columns = ["collective", "comm_type", "size_bytes", "start_ns", "end_ns"]
    for _, call in calls.set_index("rank")[columns].groupby("collective", sort=True):
        ordered = call.sort_index()
        if overlapping and (ordered["start_ns"] >= overlapping[-1]["end_ns"]).any():
            transfers.append(_transfer(overlapping, members))
            overlapping = []
        overlapping.append(ordered)
    return [*transfers, _transfer(overlapping, members)] if overlapping else transfers


def _transfer(calls: list[pd.DataFrame], members: tuple[int, ...]) -> Transfer:
    ends = pd.concat([call["end_ns"] for call in calls], axis=1).max(axis=1)
    took = ends - calls[0]["start_ns"]
    named = tuple(
        Call(CollectiveType(int(call["comm_type"].iloc[0])).name.lower(), int(call["size_bytes"].iloc[0]))
        for call in calls
    )
    return Transfer(members, named, int(took.min()), int(took.max() - took.min()))


_MARK = b'{"library"'
_OPERATIONS = (*(kind.name.lower() for kind in (*MUTUAL, *ROOTED)), MESSAGE, EXCHANGE)
# In gloo's source, an all-gather posts half of its sends and receives, and later the other half. An
# all-to-all posts all its sends and receives at once. An all-reduce sends requests before data.
_SENDS_FIRST = {"all_gather": 2, "all_to_all": 1}
# Substitutes for collectives that PyTorch may run on gloo. An all-reduce moves twice the data of a
# reduce-scatter.
_STAND_INS = {"reduce_scatter": "all_reduce"}
_TAKES_AS_LONG = 0.75
_MAX_RANKS = 1 << 16
_MAX_BYTES = 256 << 20


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
    """Return whether the first bytes of *path* mark a file of gloo measurements."""
    file = Path(path)
    if file.suffix != ".json" or not file.is_file():
        return False
    with file.open("rb") as stream:
        return stream.read(len(_MARK)) == _MARK


def gloo_records(path: str | Path) -> Records:
    """Return the transfers in the file at *path*, or raise `ConfigError` for an invalid file.

    The time of a transfer is its duration on the last rank to arrive. If the file does not name the last
    rank, the rank with the shortest duration is used. The time of a message is half of the round trip on the
    first rank.
    """
    file = Path(path)
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise ConfigError(
                f"{file} is too large for a file of measurements: more than {_MAX_BYTES} bytes."
            )
        read = msgspec.json.decode(file.read_bytes(), type=_File)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            f"{file} cannot be read as measurements of gloo: {error}. Make them with 'python -m "
            "chakrascope.runner.calibration.gloo FILE' on every rank."
        ) from None
    ranks = len(read.hosts)
    if not 2 <= ranks <= _MAX_RANKS:
        raise ConfigError(f"{file}: 'hosts' names {ranks} ranks; measure between two or more.")
    transfers = tuple(_timed_transfer(call, ranks, f"{file}: call {n}") for n, call in enumerate(read.calls))
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
    """Return the operations that, at the largest size, take as long as a substitute with twice the data."""
    times: dict[tuple[tuple[int, ...], str], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for transfer in transfers:
        ((operation, size_bytes),) = transfer.calls
        times[transfer.members, operation][size_bytes].append(transfer.transfer_ns)
    substitutes = {}
    for operation, other in _STAND_INS.items():
        shares = []
        for (members, name), own in times.items():
            theirs = times.get((members, other), {})
            if name == operation and own.keys() & theirs.keys():
                largest = max(own.keys() & theirs.keys())
                shares.append(median(own[largest]) / median(theirs[largest]))
        if shares and median(shares) > _TAKES_AS_LONG:
            substitutes[operation] = other
    return substitutes


def _timed_transfer(call: _Call, ranks: int, place: str) -> Transfer:
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
        raise ConfigError(f"{place}: 'last' names rank {call.last}, which is not a member.")
    taken = min(durations) if call.last is None else durations[members.index(call.last)]
    return Transfer(members, (Call(call.operation, call.size_bytes),), taken, max(durations) - taken)


_SAME_HOST, _SAME_LEAF, _OTHER_LEAF = "same host", "same leaf", "other leaf"
_OTHER_HOST, _ALL = "other host", "all ranks"


@dataclass(frozen=True)
class Level:
    """A network dimension with *count* units below each switch.

    *units* contains each rank's unit at this level, such as its host. *above* contains the group of units
    that the level joins.
    """

    name: str
    count: int
    units: tuple[int, ...]
    above: tuple[int, ...]

    def joins(self, members: Sequence[int]) -> bool:
        """Return whether *members* differ only at this level: they are in different units of one switch."""
        below = [self.units[rank] for rank in members]
        return len({self.above[rank] for rank in members}) == 1 and len(set(below)) == len(below)


def levels_of(records: Records) -> tuple[list[Level], str]:
    """Return the network levels, innermost first, and the reason for missing levels ("" if none).

    Like network dimensions, levels require the same number of consecutive ranks on each host, and the same
    number of consecutive hosts below each leaf switch.
    """
    ranks = range(records.num_ranks)
    everyone = (0,) * records.num_ranks
    own = tuple(ranks)
    hosts, leaves = _units(records.hosts, ranks), _units(records.leaves, ranks)
    if hosts is None:
        return [Level(_ALL, records.num_ranks, own, everyone)], "the records do not contain the ranks' hosts"
    names = [(_SAME_HOST, hosts)]
    if leaves is not None:
        names += [(_SAME_LEAF, leaves), (_OTHER_LEAF, everyone)]
    else:
        names += [(_OTHER_HOST, everyone)]
    levels, below = [], own
    for name, above in names:
        sizes = _even(below, above)
        if sizes is None:
            flat = Level(_ALL, records.num_ranks, own, everyone)
            return [flat], "the hosts do not have equal numbers of consecutive ranks, which dimensions need"
        if sizes > 1:
            levels.append(Level(name, sizes, below, above))
        below = above
    why = "" if leaves is not None or max(hosts) == 0 else "the hosts that share a leaf switch are unknown"
    return levels or [Level(_ALL, records.num_ranks, own, everyone)], why


def _units(named: Mapping[int, str], ranks: range) -> tuple[int, ...] | None:
    """Return the number of each rank's unit in order of appearance, or None if a rank has no unit name."""
    if any(rank not in named for rank in ranks):
        return None
    numbers: dict[str, int] = {}
    return tuple(numbers.setdefault(named[rank], len(numbers)) for rank in ranks)


def _even(below: Sequence[int], above: Sequence[int]) -> int | None:
    """Return the number of units *below* per unit *above*; None if it varies or units are not consecutive."""
    if list(below) != sorted(below) or list(above) != sorted(above):
        return None
    inside: dict[int, set[int]] = {}
    for unit, outer in zip(below, above, strict=True):
        inside.setdefault(outer, set()).add(unit)
    sizes = {len(units) for units in inside.values()}
    ranks = {sum(1 for unit in below if unit == one) for one in set(below)}
    return sizes.pop() if len(sizes) == 1 and len(ranks) == 1 else None


_ALIKE = 1.25  # the factor by which equal rates may differ
_MAX_NAMED = 6
_Pair = tuple[int, ...]


def without_faster_pairs(records: Records, levels: list[Level]) -> tuple[Records, list[str]]:
    """Return *records* without messages of rank pairs that are faster than their level, and remarks.

    Faster pairs are removed, because a dimension has one bandwidth, and collectives of all ranks wait for the
    slowest pair.
    """
    faster: set[_Pair] = set()
    sentences = []
    for level in levels:
        paces = {pair: pace for pair, pace in _paces(records).items() if level.joins(pair)}
        slowest = max(paces.values(), default=0.0)
        quick = {pair for pair, pace in paces.items() if pace * _ALIKE < slowest}
        if not quick:
            continue
        faster |= quick
        slow = sorted(set(paces) - quick, key=lambda pair: (-paces[pair], pair))
        named = "; ".join(
            f"{_name(records, pair)} {bandwidth_text(1 / paces[pair])}" for pair in slow[:_MAX_NAMED]
        )
        more = f" and {count_text(len(slow) - _MAX_NAMED, 'more pair')}" if len(slow) > _MAX_NAMED else ""
        sentences.append(
            f"One bandwidth for '{level.name}': its pairs differ. The slowest: {named}{more}; the fastest "
            f"reaches {bandwidth_text(1 / min(paces.values()))}. The bandwidth of the slowest was "
            "written, because collectives of all ranks wait for it; messages between other pairs are faster."
        )
    if not faster:
        return records, []
    transfers = tuple(
        transfer
        for transfer in records.transfers
        if transfer.calls[0].operation != MESSAGE or tuple(sorted(transfer.members)) not in faster
    )
    return replace(records, transfers=transfers), sentences


def _paces(records: Records) -> dict[_Pair, float]:
    """Return the marginal ns per byte between two ranks, for pairs with messages of two sizes."""
    times: dict[_Pair, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for transfer in records.transfers:
        if len(transfer.calls) == 1 and transfer.calls[0].operation == MESSAGE:
            times[tuple(sorted(transfer.members))][transfer.calls[0].size_bytes].append(transfer.transfer_ns)
    paces = {}
    for pair, sizes in times.items():
        if len(sizes) < 2:
            continue
        small, large = sorted(sizes)[-2:]
        pace = float(np.median(sizes[large]) - np.median(sizes[small])) / (large - small)
        if pace > 0:
            paces[pair] = pace
    return paces


def _name(records: Records, pair: _Pair) -> str:
    return " - ".join(
        f"rank {rank} ({records.hosts[rank]})" if rank in records.hosts else f"rank {rank}" for rank in pair
    )
