"""An ASTRA-sim Service, on this machine or another, as a backend."""

from typing import TYPE_CHECKING

from ....support import exports_of

if TYPE_CHECKING:
    from ._backend import PLUGIN as PLUGIN
    from ._backend import ServiceBackend as ServiceBackend
    from ._client import ServiceAddress as ServiceAddress
    from ._client import ServiceClient as ServiceClient
    from ._client import configured_services as configured_services
    from ._client import parse_address as parse_address
else:
    __getattr__ = exports_of(__name__, __file__)
