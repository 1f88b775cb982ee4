"""A public ASTRA-sim Service, on this machine or another, as a backend."""

from ._address import SCHEME as SCHEME
from ._address import ServiceAddress as ServiceAddress
from ._address import configured_services as configured_services
from ._address import parse_address as parse_address
from ._backend import ServiceBackend as ServiceBackend
from ._client import ServiceClient as ServiceClient

__all__ = [
    "SCHEME",
    "ServiceAddress",
    "ServiceBackend",
    "ServiceClient",
    "configured_services",
    "parse_address",
]
