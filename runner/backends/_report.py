"""Which simulators can be used on this machine."""

from __future__ import annotations

from ...errors import BackendError, BackendUnavailable
from ._base import backend_names
from .astra_sim import KINDS, find_astra_sim
from .ns3 import find_compiler, find_ns3
from .service import ServiceAddress, ServiceClient, configured_services

__all__ = ["backend_report"]

_BUILT_IN = {
    "analytical-unaware": "our engine, messages never wait",
    "analytical-aware": "our engine, messages queue on links",
    "auto": "'flow', and 'packet' where that may be too far off",
    "flow": "our engine, messages share links",
    "packet": "our engine, every packet of a RoCE network",
    "replay": "our engine, every node takes its measured time",
}
_SERVICE_S = 2.0


def backend_report() -> list[dict[str, str]]:
    """Return ``backend``, ``usable`` (yes, no or slow), ``what`` and ``found`` of every known backend.

    The services that the user has noted are asked whether they answer.
    """
    rows = []
    programs = find_astra_sim()
    for name in backend_names():
        if name in _BUILT_IN:
            rows.append(_row(name, "yes", _BUILT_IN[name], "built in"))
        elif name == "ns3":
            rows.append(_ns3())
        elif name.removeprefix("astra-sim:") in KINDS:
            program = programs.get(name.removeprefix("astra-sim:"))
            what = "the user's own ASTRA-sim"
            if program is None:
                rows.append(_row(name, "no", what, "not found; set ASTRA_SIM_HOME to its checkout"))
            else:
                usable = "slow: a debug build" if program.debug else "yes"
                found = f"{program.path} ({program.source}, version {program.version})"
                rows.append(_row(name, usable, what, found))
    return rows + _services()


def _services() -> list[dict[str, str]]:
    addresses = configured_services()
    told = {place: _ask(address) for place, address in {one.place: one for one in addresses}.items()}
    return [_row(address.name, *told[address.place]) for address in addresses]


def _ask(address: ServiceAddress) -> tuple[str, str, str]:
    what = "an ASTRA-sim Service"
    try:
        with ServiceClient(address, call_s=_SERVICE_S) as client:
            return "yes", what, f"version {client.version()}, {client.status()}"
    except BackendError as error:
        return "no", what, error.message


def _ns3() -> dict[str, str]:
    what = "ns-3's TCP; on RoCE networks an alias of 'packet'"
    try:
        install, compiler = find_ns3(), find_compiler()
    except BackendUnavailable as error:
        return _row("ns3", "no", what, str(error))
    return _row(
        "ns3", "yes", what, f"ns-3 {install.version} from {install.source}, compiled by {compiler.path}"
    )


def _row(backend: str, usable: str, what: str, found: str) -> dict[str, str]:
    return {"backend": backend, "usable": usable, "what": what, "found": found}
