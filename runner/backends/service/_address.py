"""The address of a service.

The backend name ``service://HOST:PORT[/KIND]``, and the user's list of services.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ....errors import ConfigError, did_you_mean
from .._process import read_user_file
from ._request import KINDS

__all__ = ["SCHEME", "VARIABLE", "ServiceAddress", "configured_services", "parse_address"]

SCHEME = "service://"
VARIABLE = "CHAKRASCOPE_SERVICE"
_DEFAULT_KIND = "analytical-unaware"
_PLACE = re.compile(r"(?P<host>[A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True)
class ServiceAddress:
    """The *host* (a name or an IP address, IPv6 in brackets), *port* and network *kind* of a service."""

    host: str
    port: int
    kind: str = _DEFAULT_KIND

    @property
    def place(self) -> str:
        """``HOST:PORT``."""
        return f"{self.host}:{self.port}"

    @property
    def name(self) -> str:
        """The backend's full name."""
        return f"{SCHEME}{self.place}/{self.kind}"


def parse_address(name: str) -> ServiceAddress:
    """Return the address in the backend name ``service://HOST:PORT[/KIND]``; raises `ConfigError`."""
    rest = name.removeprefix(SCHEME)
    if "@" in rest:
        # The text before it may contain a password, so it is not repeated.
        raise ConfigError(
            "The address of an ASTRA-sim Service holds '@', but the service knows no users; write "
            "service://HOST:PORT."
        )
    place, _, kind = rest.partition("/")
    match = _PLACE.fullmatch(place)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise ConfigError(
            f"'{name}' is not an address of an ASTRA-sim Service; write service://HOST:PORT, such as "
            "service://127.0.0.1:8989."
        )
    kind = kind.strip("/") or _DEFAULT_KIND
    if kind not in KINDS:
        raise ConfigError(f"'{name}': a service has no backend '{kind}'{did_you_mean(kind, KINDS)}")
    return ServiceAddress(match["host"], int(match["port"]), kind)


def configured_services(environment: Mapping[str, str] | None = None) -> list[ServiceAddress]:
    """Return the services in the user's list, each with every kind of network.

    They are ``HOST:PORT``, separated by commas, in the variable ``CHAKRASCOPE_SERVICE``, else a list under
    ``service`` in the user's ``backends.yml``. Raises `ConfigError` for an invalid address.
    """
    variables = os.environ if environment is None else environment
    path, part = read_user_file("service", variables)
    source, noted = str(path), [part] if isinstance(part, str) else part or []
    if variables.get(VARIABLE):
        source, noted = VARIABLE, [item.strip() for item in variables[VARIABLE].split(",")]
    if not isinstance(noted, list) or not all(isinstance(item, str) for item in noted):
        raise ConfigError(f"{source}: 'service' must be HOST:PORT, or a list of such; correct it.")
    found = []
    for item in noted:
        try:
            first = parse_address(SCHEME + item.removeprefix(SCHEME))
        except ConfigError as error:
            raise ConfigError(f"{source}: {error.message}") from error
        found += [ServiceAddress(first.host, first.port, kind) for kind in KINDS]
    return found
