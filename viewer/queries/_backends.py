"""The backends a form can choose, and the machine of the one that has a choice of machines."""

from __future__ import annotations

from collections.abc import Sequence

from ...runner import backend_names
from ...runner.gpu import DEFAULT_MACHINE, GPU_BACKEND, list_machines

__all__ = ["backend_command", "chosen_backends", "is_offered", "machine_of", "plain_backend", "plain_name"]


def is_offered(name: object) -> bool:
    """Return whether a form may ask for the backend *name*, such as ``flow`` or ``gpu:mi300x``.

    Machines are those that ship: a browser names no file.
    """
    if not isinstance(name, str):
        return False
    base, _, machine = name.partition(":")
    return name in backend_names() or (base == GPU_BACKEND and machine in list_machines())


def plain_backend(name: str) -> str:
    """Return the backend *name* without its machine, as it stands in the list."""
    return GPU_BACKEND if name.startswith(f"{GPU_BACKEND}:") else name


def plain_name(name: str) -> str:
    """Return *name* as :func:`chosen_backends` writes it: the default machine goes without saying."""
    return GPU_BACKEND if name == f"{GPU_BACKEND}:{DEFAULT_MACHINE}" else name


def machine_of(backends: Sequence[str]) -> str:
    """Return the machine that one of *backends* names, else the default."""
    named = (name.partition(":")[2] for name in backends if plain_backend(name) == GPU_BACKEND)
    return next(filter(None, named), DEFAULT_MACHINE)


def chosen_backends(plain: Sequence[str] | None, machine: str | None) -> tuple[str, ...]:
    """Return the backends that the two fields name, leaving out what cannot be asked for."""
    named = f"{GPU_BACKEND}:{machine}" if machine not in {None, "", DEFAULT_MACHINE} else GPU_BACKEND
    chosen = (named if name == GPU_BACKEND else name for name in plain or ())
    return tuple(name for name in dict.fromkeys(chosen) if is_offered(name))


def backend_command(backends: Sequence[str]) -> list[str]:
    """Return the options of ``chakrascope run`` that choose *backends*."""
    options = [part for name in backends for part in ("--backend", plain_backend(name))]
    named = any(plain_backend(name) != name for name in backends)
    return [*options, "--machine", machine_of(backends)] if named else options
