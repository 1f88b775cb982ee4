"""Report which backends can run on this machine."""

from __future__ import annotations

from ...errors import BackendUnavailable
from .._traits import about_backend, backend_plugins
from ._base import backend_names
from .astra_sim import AstraSimProgram, find_astra_sim
from .ns3 import find_compiler, find_ns3


def backend_report() -> list[dict[str, str]]:
    """Return a row per backend: ``backend``, ``usable`` (yes or no), ``what`` and ``found``.

    Services are contacted to see whether they answer.
    """
    rows = []
    programs = find_astra_sim()
    for name in backend_names():
        about = about_backend(name)
        if not about.offered or "://" in name:
            continue
        if name == "ns3":
            rows.append(_ns3(about.what))
        elif name.startswith("astra-sim:"):
            rows.append(_own_astra_sim(name, about.what, programs.get(name.removeprefix("astra-sim:"))))
        else:
            rows.append(_row(name, "yes", about.what, "built in"))
    return rows + [row for plugin in backend_plugins() for row in plugin.report()]


def _own_astra_sim(name: str, what: str, program: AstraSimProgram | None) -> dict[str, str]:
    if program is None:
        return _row(name, "no", what, "not found; set ASTRA_SIM_HOME to its checkout")
    return _row(name, "yes", what, f"{program.path} ({program.source}, version {program.version})")


def _ns3(what: str) -> dict[str, str]:
    try:
        install, compiler = find_ns3(), find_compiler()
    except BackendUnavailable as error:
        return _row("ns3", "no", what, str(error))
    return _row(
        "ns3", "yes", what, f"ns-3 {install.version} from {install.source}, compiled by {compiler.path}"
    )


def _row(backend: str, usable: str, what: str, found: str) -> dict[str, str]:
    return {"backend": backend, "usable": usable, "what": what, "found": found}
