"""What a backend is, and the names under which backends are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...errors import ConfigError, did_you_mean
from ..experiment import Experiment
from ..result import Result

__all__ = ["Backend", "Progress", "backend_names", "get_backend", "register"]

Progress = Callable[[int, int], bool]
"""Called with the simulated ns and the number of finished ranks; returning False cancels the run."""


class Backend(Protocol):
    """Anything that turns an experiment into a result."""

    def run(self, experiment: Experiment, progress: Progress | None = None) -> Result:
        """Simulate *experiment*; raises `BackendError` or `ConfigError` when it cannot."""
        ...


_BACKENDS: dict[str, Backend] = {}


def register(name: str, backend: Backend) -> None:
    """Make *backend* known as *name*; raises `ConfigError` if the name is taken."""
    if name in _BACKENDS:
        raise ConfigError(
            f"There is already a backend called '{name}' ({_BACKENDS[name]!r}); choose another name."
        )
    _BACKENDS[name] = backend


def get_backend(name: str) -> Backend:
    """Return the backend called *name*; raises `ConfigError` naming the closest one."""
    if name not in _BACKENDS:
        raise ConfigError(f"There is no backend '{name}'{did_you_mean(name, _BACKENDS)}")
    return _BACKENDS[name]


def backend_names() -> list[str]:
    """Return the names of all backends, sorted."""
    return sorted(_BACKENDS)
