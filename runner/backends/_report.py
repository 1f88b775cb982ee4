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
            usable, found = _ns3()
        elif name.startswith("astra-sim:"):
            usable, found = _own_astra_sim(programs.get(name.removeprefix("astra-sim:")))
        else:
            usable, found = "yes", "built in"
        rows.append({"backend": name, "usable": usable, "what": about.what, "found": found})
    return rows + [row for plugin in backend_plugins() for row in plugin.report()]


def _own_astra_sim(program: AstraSimProgram | None) -> tuple[str, str]:
    if program is None:
        return "no", "not found; set ASTRA_SIM_HOME to its checkout"
    return "yes", f"{program.path} ({program.source}, version {program.version})"


def _ns3() -> tuple[str, str]:
    try:
        install, compiler = find_ns3(), find_compiler()
    except BackendUnavailable as error:
        return "no", str(error)
    return "yes", f"ns-3 {install.version} from {install.source}, compiled by {compiler.path}"
