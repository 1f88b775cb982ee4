"""The backend interface, and the registry of backends by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Protocol

from ...errors import ConfigError, did_you_mean
from .._experiment import Experiment
from .._result import Result
from .._traits import FAMILIES, SHIPPED, Traits, backend_plugins, plugin_of, remember_traits

Progress = Callable[[int, int], bool]
"""Called with the simulated ns and the number of finished ranks; returning False cancels the run."""


class Backend(Protocol):
    """A simulation backend: anything that can run an experiment."""

    def run(self, experiment: Experiment, progress: Progress | None = None) -> Result:
        """Simulate *experiment*; raises `BackendError` or `ConfigError` if the backend cannot simulate it.

        If ``experiment.detail`` is `Detail.TOTALS`, the result may omit every table but ``ranks``.
        """
        ...


_BACKENDS: dict[str, Backend] = {}


def register(name: str, backend: Backend, traits: Traits | None = None) -> None:
    """Register *backend* with its *traits* under *name*.

    Raises `ConfigError` if the name is already registered.
    """
    if name in _BACKENDS or name in SHIPPED:
        raise ConfigError(
            f"There is already a backend called '{name}' ({get_backend(name)!r}); choose another name."
        )
    _BACKENDS[name] = backend
    remember_traits(name, traits or Traits())


def get_backend(name: str) -> Backend:
    """Return the backend called *name*, importing it on first use.

    Raises `ConfigError` for an unknown name and suggests the closest known one.
    """
    plugin = plugin_of(name)
    if plugin is not None:
        made: Backend = plugin.make(name)
        return made
    for prefix, family in FAMILIES.items():
        if name.startswith(prefix):
            return _made(family, name)
    if name not in _BACKENDS:
        if name not in SHIPPED:
            raise ConfigError(f"There is no backend '{name}'{did_you_mean(name, backend_names())}")
        _BACKENDS[name] = _made(SHIPPED[name], name)
    return _BACKENDS[name]


def _made(traits: Traits, name: str) -> Backend:
    module, _, function = traits.make.partition(":")
    backend: Backend = getattr(import_module(module, __name__.rpartition(".backends.")[0]), function)(name)
    return backend


def backend_names() -> list[str]:
    """Return the names of all backends in alphabetical order, including those from plug-ins."""
    return sorted({*_BACKENDS, *SHIPPED, *(name for plugin in backend_plugins() for name in plugin.names())})
