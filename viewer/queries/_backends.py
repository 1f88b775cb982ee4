"""The backends a form can choose, and the machine of the one that has a choice of machines."""

from __future__ import annotations

from collections.abc import Sequence

from ...runner import about_backend, backend_names
from ...runner.gpu import DEFAULT_MACHINE, list_machines

__all__ = [
    "backend_command",
    "chosen_backends",
    "is_offered",
    "machine_of",
    "plain_backend",
    "plain_name",
    "takes_machine",
]


def takes_machine(name: str) -> bool:
    """Return whether the backend *name* has a choice of machines."""
    return about_backend(name).variant == "machine"


def is_offered(name: object) -> bool:
    """Return whether a form may ask for the backend *name*, such as ``flow`` or ``gpu:mi300x``.

    Machines are those that ship: a browser names no file.
    """
    if not isinstance(name, str):
        return False
    return name in backend_names() or (takes_machine(name) and name.partition(":")[2] in list_machines())


def plain_backend(name: str) -> str:
    """Return the backend *name* without its machine, as it stands in the list."""
    return name.partition(":")[0] if takes_machine(name) else name


def plain_name(name: str) -> str:
    """Return *name* as :func:`chosen_backends` writes it: the default machine goes without saying."""
    return plain_backend(name) if name.endswith(f":{DEFAULT_MACHINE}") else name


def machine_of(backends: Sequence[str]) -> str:
    """Return the machine that one of *backends* names, else the default."""
    named = (name.partition(":")[2] for name in backends if takes_machine(name))
    return next(filter(None, named), DEFAULT_MACHINE)


def chosen_backends(plain: Sequence[str] | None, machine: str | None) -> tuple[str, ...]:
    """Return the backends that the two fields name, leaving out what cannot be asked for."""
    named = "" if machine in {None, "", DEFAULT_MACHINE} else f":{machine}"
    chosen = (f"{name}{named}" if takes_machine(name) else name for name in plain or ())
    return tuple(name for name in dict.fromkeys(chosen) if is_offered(name))


def backend_command(backends: Sequence[str]) -> list[str]:
    """Return the options of ``chakrascope run`` that choose *backends*."""
    options = [part for name in backends for part in ("--backend", plain_backend(name))]
    named = any(plain_backend(name) != name for name in backends)
    return [*options, "--machine", machine_of(backends)] if named else options
