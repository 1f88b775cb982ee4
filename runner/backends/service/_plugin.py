"""The plug-in for the user's list of services: traits, names and availability."""

from __future__ import annotations

from ....errors import BackendError
from ..._traits import BackendPlugin, Traits
from ._address import ServiceAddress, configured_services
from ._backend import service_backend
from ._client import ServiceClient

__all__ = ["PLUGIN"]

_WHAT = "an ASTRA-sim Service"
_CALL_S = 2.0


def _names() -> list[str]:
    return [address.name for address in configured_services()]


def _report() -> list[dict[str, str]]:
    """Check for each service in the user's list whether it answers."""
    addresses = configured_services()
    answers = {place: _ask(address) for place, address in {one.place: one for one in addresses}.items()}
    return [{"backend": address.name, "what": _WHAT} | answers[address.place] for address in addresses]


def _ask(address: ServiceAddress) -> dict[str, str]:
    try:
        with ServiceClient(address, call_s=_CALL_S) as client:
            return {"usable": "yes", "found": f"version {client.version()}, {client.status()}"}
    except BackendError as error:
        return {"usable": "no", "found": error.message}


PLUGIN = BackendPlugin(
    Traits(_WHAT, variant="address", efficiency="none"), service_backend, names=_names, report=_report
)
