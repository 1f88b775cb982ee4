"""The hosts of an emulation: machines with agents, namespaces of this machine, or its loopback."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...errors import ConfigError, did_you_mean
from ...support import open_file, parse_bandwidth, parse_duration
from ...support.documents import read_yaml
from ..config import Reader, mapping_of, read_keys, reported_at, shown, whole, wrong
from ._namespaces import addresses_of
from ._transports import check_transport

TOKEN_VARIABLE = "CHAKRASCOPE_EMULATION_TOKEN"
LOOPBACK = "127.0.0.1"
_SHORTEST_TOKEN = 16
_MAX_REPEATS = 1000
_MAX_HOSTS = 1 << 20
_RANK = whole(0, _MAX_HOSTS)
_OPTIONS = ("transport", "repeat", "limit")
_COMMON = {"transport": "transport", "repeat": "repeats", "join": "join_s", "limit": "limit_s"}


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
    join_s: float = 60.0
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
    plain: dict[Any, Any] = {"count": _number(count)} if count else {}
    outer: dict[Any, Any] = {}
    for option in given:
        key, _, value = option.partition("=")
        name, dot, host = key.partition(".")
        known = [*_OPTIONS, *_NAMESPACES]
        if name not in known or (dot and name != "slow"):
            raise ConfigError(f"{where}: there is no option '{key}'{did_you_mean(name, known)}")
        keys, last = (plain.setdefault(name, {}), _number(host)) if name == "slow" else (plain, name)
        keys = outer if name in _OPTIONS else keys
        if last in keys:
            raise ConfigError(f"{where}: '{key}' is given twice; leave one out.")
        keys[last] = _number(value)
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
    given = read_keys(data, _FILE, where)
    kinds = [key for key in ("hosts", "namespaces", "loopback") if data.get(key)]
    if len(kinds) != 1:
        raise ConfigError(f"{where}: give one of 'hosts', 'namespaces' and 'loopback'.")
    common = {name: given[key] for key, name in _COMMON.items() if key in given}
    if kinds == ["loopback"]:
        return Setup(**common)
    if kinds == ["namespaces"]:
        return Setup(**common, is_namespaced=True, **given["namespaces"])
    if "listen" not in given:
        raise ConfigError(f"{where}: 'listen' is missing: the ADDRESS:PORT at which agents join.")
    token = read_token(folder / given["token_file"] if "token_file" in given else None)
    return Setup(**common, hosts=given["hosts"], listen=given["listen"], token=token)


def _namespaces(value: Any, where: str) -> dict[str, Any]:
    given = read_keys({} if value is True else value, _NAMESPACES, where)
    if given.get("slow") and "link" not in given:
        raise ConfigError(f"{where}: 'slow' requires 'link', the rate of the others.")
    names = {"count": "namespaces", "link": "link_bps", "slow": "slow_bps", "nics": "nics"}
    return {names[key]: item for key, item in given.items()}


def _slow(value: Any, where: str) -> tuple[tuple[int, int], ...]:
    rates = mapping_of(value, where).items()
    return tuple((_RANK(host, where), parse_rate(rate, where)) for host, rate in rates)


def _hosts(value: Any, where: str) -> tuple[Host, ...]:
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        raise wrong(where, "a list of hosts, each with an 'address'", value)
    hosts: list[Host] = []
    for number, entry in enumerate(value):
        given = read_keys(entry, _HOST, f"{where}, host {number}")
        if "address" not in given and "nics" not in given:
            raise ConfigError(
                f"{where}, host {number} needs an 'address', or addresses of its interfaces under 'nics'."
            )
        if "ranks" in given and "slots" in given:
            raise ConfigError(f"{where}, host {number} has 'ranks' and 'slots'; leave one out.")
        address = given.pop("address", None)
        host = Host(**{"addresses": given.pop("nics", (address,)), "name": address, **given})
        host = replace(host, name=host.name or host.addresses[0])
        if any(host.name == other.name for other in hosts):
            raise ConfigError(f"{where}: there are two hosts called '{host.name}'.")
        hosts.append(host)
    return tuple(hosts)


def _addresses(value: Any, where: str) -> tuple[str, ...]:
    if not value or not isinstance(value, list) or not all(isinstance(address, str) for address in value):
        raise wrong(where, "a list of addresses, such as [10.0.0.1, 10.1.0.1]", value)
    return tuple(value)


def _ranks(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise wrong(where, "a list of ranks, such as [0, 1]", value)
    return tuple(_RANK(rank, where) for rank in value)


def _text(value: Any, _where: str) -> str:
    return str(value)


def _seconds(value: Any, where: str) -> float:
    with reported_at(where):
        seconds = float(parse_duration(value, bare="s")) / 1e9
    if not seconds > 0:
        raise ConfigError(f"{where} must be above 0.")
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


def _number(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


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


_HOST: dict[str, Reader] = {
    "name": _text,
    "address": _text,
    "nics": _addresses,
    "ranks": _ranks,
    "slots": whole(1, _MAX_HOSTS),
    "location": _text,
}
_NAMESPACES: dict[str, Reader] = {
    "count": whole(1, 250),
    "link": parse_rate,
    "slow": _slow,
    "nics": whole(1, 16),
}
_FILE: dict[str, Reader] = {
    "listen": lambda value, where: parse_address(str(value), where),
    "token_file": _text,
    "transport": lambda value, where: check_transport(str(value), where),
    "repeat": whole(1, _MAX_REPEATS),
    "join": _seconds,
    "limit": _seconds,
    "hosts": _hosts,
    "namespaces": _namespaces,
    "loopback": lambda value, _where: value,
}
