"""The hosts of an emulation: machines with agents, namespaces of this machine, or its loopback."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import ConfigError, did_you_mean
from ...support import open_file, parse_bandwidth, parse_duration
from ...support.documents import read_yaml
from ..config import refuse_unknown, reported_at, shown
from ._namespaces import addresses_of
from ._transports import check_transport

TOKEN_VARIABLE = "CHAKRASCOPE_EMULATION_TOKEN"
LOOPBACK = "127.0.0.1"
_SHORTEST_TOKEN = 16
_MAX_REPEATS = 1000
_DEFAULT_JOIN_S = 60.0
_HOST_KEYS = ("name", "address", "nics", "ranks", "slots", "location")
_FILE_KEYS = (
    "listen",
    "token_file",
    "transport",
    "repeat",
    "join",
    "limit",
    "hosts",
    "namespaces",
    "loopback",
)
_OPTIONS = ("transport", "repeat", "limit")
_NAMESPACE_KEYS = ("count", "link", "slow", "nics")


@dataclass(frozen=True)
class Host:
    """A host with its name, addresses, and location (free text, such as a leaf switch).

    *ranks* are the ranks of the host. If *ranks* is None, the host runs one rank per slot (*slots*), in the
    order of ranks.
    """

    name: str
    addresses: tuple[str, ...]
    ranks: tuple[int, ...] | None = None
    slots: int = 1
    location: str = ""


@dataclass(frozen=True)
class Place:
    """The location of a rank: a host, and the addresses of the rank's network interfaces."""

    rank: int
    host: str
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class Setup:
    """The setup of an emulation: *hosts* that join at *listen*, namespaces of this machine, or its loopback.

    *namespaces* is the number of namespaces (None: one per rank). Each namespace has *nics* interfaces at
    *link_bps*, except for the namespaces in *slow_bps*. *repeats* is the number of runs, of which the median
    run is the result.
    """

    hosts: tuple[Host, ...] = ()
    listen: tuple[str, int] = ("", 0)
    token: bytes = field(default=b"", repr=False)
    transport: str = "tcp"
    repeats: int = 1
    join_s: float = _DEFAULT_JOIN_S
    limit_s: float | None = None
    is_namespaced: bool = False
    namespaces: int | None = None
    link_bps: int | None = None
    slow_bps: tuple[tuple[int, int], ...] = ()
    nics: int = 1

    @property
    def is_local(self) -> bool:
        """Whether all hosts are on this machine, without external agents."""
        return not self.hosts

    def places(self, num_ranks: int) -> list[Place]:
        """Return the location of each of *num_ranks* ranks; raises `ConfigError` for too many ranks."""
        if self.is_local:
            return self._local_places(num_ranks)
        assigned = _assigned(self.hosts, num_ranks)
        result: dict[int, Place] = {}
        for host, ranks in zip(self.hosts, assigned, strict=True):
            for rank in ranks:
                if rank in result:
                    raise ConfigError(
                        f"Rank {rank} is on the hosts '{result[rank].host}' and '{host.name}'; leave one out."
                    )
                result[rank] = Place(rank, host.name, host.addresses)
        missing = [rank for rank in range(num_ranks) if rank not in result]
        if missing or len(result) > num_ranks:
            what = f"no host has rank {missing[0]}" if missing else f"the hosts have {len(result)}"
            raise ConfigError(
                f"The workload has {num_ranks} ranks, but {what}. Next: give the hosts as many ranks or "
                "slots."
            )
        return [result[rank] for rank in range(num_ranks)]

    def num_namespaces(self, num_ranks: int) -> int:
        """Return the number of network namespaces for *num_ranks* ranks."""
        return min(self.namespaces or num_ranks, num_ranks)

    def rates_bps(self, num_ranks: int) -> list[int | None]:
        """Return each namespace's link rate; raises `ConfigError` if a slow namespace does not exist."""
        count = self.num_namespaces(num_ranks)
        rates: list[int | None] = [self.link_bps] * count
        for host, rate in self.slow_bps:
            if host >= count:
                raise ConfigError(f"Host {host} is slow, but the last of {count} namespaces is {count - 1}.")
            rates[host] = rate
        return rates

    def _local_places(self, num_ranks: int) -> list[Place]:
        if not self.is_namespaced:
            return [Place(rank, "localhost", (LOOPBACK,)) for rank in range(num_ranks)]
        count = self.num_namespaces(num_ranks)
        hosts = [rank * count // num_ranks for rank in range(num_ranks)]
        return [Place(rank, f"host{host}", addresses_of(host, self.nics)) for rank, host in enumerate(hosts)]


def _assigned(hosts: Sequence[Host], num_ranks: int) -> list[list[int]]:
    """Return the ranks of each host: the ranks that the host names, or one rank per slot."""
    named = {rank for host in hosts for rank in host.ranks or ()}
    free = iter([rank for rank in range(num_ranks) if rank not in named])
    return [
        list(host.ranks)
        if host.ranks is not None
        else [rank for _, rank in zip(range(host.slots), free, strict=False)]
        for host in hosts
    ]


def read_setup(spec: str) -> Setup:
    """Return the setup for *spec*, the part of a backend's name after ``emulation:``.

    *spec* is the path of a hosts file, ``loopback`` or ``namespaces``, with options after commas:
    ``namespaces=4,link=400Mbit,slow.2=100Mbit,repeat=5``. Raises `ConfigError`.
    """
    where = f"The backend 'emulation:{spec}'"
    head, *given = spec.split(",")
    kind, _, count = head.partition("=")
    plain: dict[str, Any] = {"count": count} if count else {}
    outer: dict[str, Any] = {}
    for option in given:
        key, _, value = option.partition("=")
        name, dot, host = key.partition(".")
        known = [*_OPTIONS, *_NAMESPACE_KEYS]
        if name not in known or (dot and name != "slow"):
            raise ConfigError(f"{where}: there is no option '{key}'{did_you_mean(name, known)}")
        keys, last = (plain.setdefault(name, {}), host) if name == "slow" else (plain, name)
        keys = outer if name in _OPTIONS else keys
        if last in keys:
            raise ConfigError(f"{where}: '{key}' is given twice; leave one out.")
        keys[last] = value
    if plain and kind != "namespaces":
        raise ConfigError(f"{where}: '{next(iter(plain))}' is an option of namespaces.")
    if kind in ("namespaces", "loopback"):
        return _read({kind: plain or True, **outer}, where, Path())
    path = Path(head)
    if not path.is_file() and path.suffix not in (".yml", ".yaml"):
        raise ConfigError(
            f"There is no hosts file {shown(head)} to emulate on. Next: name one (emulation:hosts.yml), or "
            "use emulation:loopback or emulation:namespaces,link=400Mbit for this machine."
        )
    return _read({**read_yaml(path, "hosts file"), **outer}, str(path), path.parent)


def _read(data: Mapping[str, Any], where: str, folder: Path) -> Setup:
    refuse_unknown(data, _FILE_KEYS, where)
    kinds = [key for key in ("hosts", "namespaces", "loopback") if data.get(key)]
    if len(kinds) != 1:
        raise ConfigError(f"{where}: give one of 'hosts', 'namespaces' and 'loopback'.")
    common: dict[str, Any] = {
        "transport": check_transport(str(data.get("transport", "tcp")), where),
        "repeats": _whole(data.get("repeat", 1), "repeat", where, most=_MAX_REPEATS),
        "join_s": _seconds(data.get("join", _DEFAULT_JOIN_S), "join", where),
        "limit_s": _seconds(data["limit"], "limit", where) if "limit" in data else None,
    }
    if kinds == ["loopback"]:
        return Setup(**common)
    if kinds == ["namespaces"]:
        return Setup(**common, **_namespaces(data["namespaces"], where))
    if "listen" not in data:
        raise ConfigError(f"{where}: 'listen' is missing: the ADDRESS:PORT at which agents join.")
    return Setup(
        **common,
        hosts=_hosts(data["hosts"], where),
        listen=parse_address(str(data["listen"]), f"{where}: 'listen'"),
        token=read_token(folder / str(data["token_file"]) if "token_file" in data else None),
    )


def _namespaces(data: Any, where: str) -> dict[str, Any]:
    given = {} if data is True else data
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where}: 'namespaces' must have keys such as 'link: 400Mbit'.")
    refuse_unknown(given, _NAMESPACE_KEYS, where)
    slow = given.get("slow", {})
    if not isinstance(slow, Mapping):
        raise ConfigError(f"{where}: 'slow' must give hosts and their rates, such as {{2: 100Mbit}}.")
    rates = [
        (_whole(host, "slow", where, least=0), parse_rate(rate, f"{where}: 'slow'"))
        for host, rate in slow.items()
    ]
    if rates and "link" not in given:
        raise ConfigError(f"{where}: 'slow' requires 'link', the rate of the others.")
    return {
        "is_namespaced": True,
        "namespaces": _whole(given["count"], "count", where, most=250) if "count" in given else None,
        "link_bps": parse_rate(given["link"], f"{where}: 'link'") if "link" in given else None,
        "slow_bps": tuple(rates),
        "nics": _whole(given.get("nics", 1), "nics", where, most=16),
    }


def _hosts(data: Any, where: str) -> tuple[Host, ...]:
    if not isinstance(data, list) or not all(isinstance(entry, Mapping) for entry in data):
        raise ConfigError(f"{where}: 'hosts' must be a list of hosts, each with an 'address'.")
    hosts: list[Host] = []
    for place, entry in enumerate(data):
        here = f"{where}: host {place}"
        refuse_unknown(entry, _HOST_KEYS, here)
        if "address" not in entry and "nics" not in entry:
            raise ConfigError(f"{here} needs an 'address', or addresses of its interfaces under 'nics'.")
        nics = entry.get("nics", [entry.get("address")])
        if not isinstance(nics, list) or not nics or not all(isinstance(nic, str) for nic in nics):
            raise ConfigError(f"{here}: 'nics' must be a list of addresses, such as [10.0.0.1, 10.1.0.1].")
        if "ranks" in entry and "slots" in entry:
            raise ConfigError(f"{here} has 'ranks' and 'slots'; leave one out.")
        name = str(entry.get("name", entry.get("address", nics[0])))
        if any(name == host.name for host in hosts):
            raise ConfigError(f"{where}: there are two hosts called '{name}'.")
        hosts.append(
            Host(
                name,
                tuple(nics),
                _ranks(entry["ranks"], here) if "ranks" in entry else None,
                _whole(entry.get("slots", 1), "slots", here),
                str(entry.get("location", "")),
            )
        )
    return tuple(hosts)


def _ranks(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise ConfigError(f"{where}: 'ranks' must be a list of ranks, such as [0, 1].")
    return tuple(_whole(rank, "ranks", where, least=0) for rank in value)


def _whole(value: Any, key: str, where: str, least: int = 1, most: int = 1 << 20) -> int:
    try:
        number = int(str(value))
    except ValueError:
        number = least - 1
    if not least <= number <= most or isinstance(value, bool):
        raise ConfigError(
            f"{where}: '{key}' must be a whole number from {least} to {most}, not {shown(value)}."
        )
    return number


def _seconds(value: Any, key: str, where: str) -> float:
    with reported_at(f"{where}: '{key}'"):
        seconds = float(parse_duration(value, bare="s")) / 1e9
    if not seconds > 0:
        raise ConfigError(f"{where}: '{key}' must be above 0.")
    return seconds


def parse_rate(value: Any, where: str) -> int:
    """Return the rate in bit/s of a text in the notation of `tc` or Chakrascope (``400Mbit``, ``50MB/s``).

    Raises `ConfigError`.
    """
    text = str(value)
    with reported_at(where):
        rate = round(parse_bandwidth(f"{text}/s" if text.endswith("bit") else text, bare="bps") * 8 * 10**9)
    if rate < 1:
        raise ConfigError(f"{where}: a rate must be above 0.")
    return rate


def parse_address(text: str, where: str) -> tuple[str, int]:
    """Return the host and port in ``HOST:PORT``; raises `ConfigError` for any other text."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{where} must be HOST:PORT, such as 10.0.0.1:7401, not {shown(text)}.")
    return host.removeprefix("[").removesuffix("]"), int(port)


def read_token(file: Path | None) -> bytes:
    """Return the token from *file* or from the environment; raises `ConfigError` without a token."""
    text = os.environ.get(TOKEN_VARIABLE, "")
    if file is not None:
        try:
            with open_file(file.expanduser()) as content:
                text = content.read().decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"The token file {file} cannot be read ({error}); check the path and its permissions."
            ) from error
    token = text.strip().encode()
    if len(token) < _SHORTEST_TOKEN:
        where = f"the file {file}" if file is not None else f"the environment's {TOKEN_VARIABLE}"
        raise ConfigError(
            f"Coordinator and agents need a shared token of at least {_SHORTEST_TOKEN} characters in "
            f"{where}. Next: openssl rand -hex 32 > FILE, readable by you alone, on every host; name it as "
            "'token_file' in the hosts file, and to agents as --token-file."
        )
    return token
