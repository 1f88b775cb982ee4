"""Which machine the name of a backend means: ``gpu``, ``gpu:h100``, ``gpu:my-machine.yml``."""

from __future__ import annotations

from ._machine import Machine
from ._machine_files import find_machine

__all__ = ["DEFAULT_MACHINE", "machine_of_backend"]

DEFAULT_MACHINE = "h100"


def machine_of_backend(name: str) -> Machine:
    """Return the machine of the GPU model called *name*; raises `ConfigError` for one that there is not."""
    return find_machine(name.partition(":")[2] or DEFAULT_MACHINE)
