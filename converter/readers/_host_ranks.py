"""Infer the rank of a host trace, which does not state it, from its device trace, name or process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from ._file_kinds import stated_process
from ._file_names import name_of_capture

__all__ = ["host_ranks"]


def host_ranks(
    hosts: Mapping[Path, int | None], devices: Mapping[Path, int | None]
) -> dict[Path, int | None]:
    """Return the rank of each of *hosts*, None if unknown; the arguments are files with the ranks they state.

    The order of precedence is a device trace of the same name, the host trace's own name, and the only device
    trace of the same process. In containers all processes may have the same number, which is then not used.
    """
    named = _alone([(name_of_capture(device.name), device) for device in devices])
    ranks: dict[Path, int | None] = {}
    for host, own_word in hosts.items():
        twin = named.get(name_of_capture(host.name))
        rank = devices[twin] if twin is not None else None
        ranks[host] = own_word if rank is None else rank
    lost = [host for host, rank in ranks.items() if rank is None]
    if lost:
        device_of = _alone([(stated_process(device), device) for device in devices])
        for process, host in _alone([(stated_process(host), host) for host in lost]).items():
            ranks[host] = devices[device_of[process]] if process in device_of else None
    return ranks


def _alone(pairs: Sequence[tuple[str | int | None, Path]]) -> dict[str | int | None, Path]:
    """Return *pairs* by key, without keys that occur twice."""
    times = Counter(key for key, _ in pairs)
    return {key: path for key, path in pairs if times[key] == 1 and key is not None}
