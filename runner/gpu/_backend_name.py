"""Which machine the name of a backend means: ``gpu``, ``gpu:h100``, ``gpu:my-machine.yml``."""

from __future__ import annotations

from ._machine import Machine
from ._machine_files import find_machine

__all__ = ["DEFAULT_MACHINE", "GPU_BACKEND", "machine_of_backend"]

GPU_BACKEND = "gpu"
DEFAULT_MACHINE = "h100"


def machine_of_backend(name: str) -> Machine | None:
    """Return the machine of the backend called *name*, None if that is not the GPU model.

    Raises `ConfigError` for a machine that there is not.
    """
    base, _, machine = name.partition(":")
    return find_machine(machine or DEFAULT_MACHINE) if base == GPU_BACKEND else None
