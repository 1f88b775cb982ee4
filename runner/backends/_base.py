"""What a backend is, and the names under which backends are found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from ...errors import ConfigError, did_you_mean
from .._experiment import Experiment
from .._result import Result
from ..config import NetworkConfig

__all__ = [
    "About",
    "Backend",
    "Progress",
    "about_backend",
    "backend_names",
    "get_backend",
    "register",
    "register_family",
    "register_late",
    "warm_up",
]

Progress = Callable[[int, int], bool]
"""Called with the simulated ns and the number of finished ranks; returning False cancels the run."""


class Backend(Protocol):
    """Anything that turns an experiment into a result: this one method is all that is asked of it.

    One that measures instead of computing, so that no two results are the same, says so with the attribute
    ``measures``.
    """

    def run(self, experiment: Experiment, progress: Progress | None = None) -> Result:
        """Simulate *experiment*; raises `BackendError` or `ConfigError` when it cannot.

        Where ``experiment.detail`` is `Detail.TOTALS`, the result may lack all tables but the ranks.
        """
        ...


@dataclass(frozen=True)
class About:
    """What people are told of a backend before they choose it.

    *what* it is in a few words; what it models and needs in *details*, some sentences. One that is not
    *offered* serves tests: it is known by its name, and in no list.
    """

    what: str = "registered by a program"
    details: str = ""
    offered: bool = True


_BACKENDS: dict[str, Backend] = {}
_LATE: dict[str, Callable[[str], Backend]] = {}
_ABOUT: dict[str, About] = {}
_FAMILIES: dict[str, tuple[Callable[[str], Backend], Callable[[], list[str]]]] = {}


def register(name: str, backend: Backend) -> None:
    """Make *backend* known as *name*; raises `ConfigError` if the name is taken."""
    if name in _BACKENDS or name in _LATE:
        raise ConfigError(
            f"There is already a backend called '{name}' ({get_backend(name)!r}); choose another name."
        )
    _BACKENDS[name] = backend


def register_late(name: str, make: Callable[[str], Backend], about: About) -> None:
    """Make the backend known as *name* that *make*, given the name, returns when it is first asked for."""
    _LATE[name] = make
    _ABOUT[name] = about


def about_backend(name: str) -> About:
    """Return what people are told of the backend called *name*."""
    return _ABOUT.get(name, About())


def register_family(prefix: str, make: Callable[[str], Backend], names: Callable[[], list[str]]) -> None:
    """Let *make* return the backend of any name that starts with *prefix*; *names* are those to be listed."""
    _FAMILIES[prefix] = make, names


def get_backend(name: str) -> Backend:
    """Return the backend called *name*; raises `ConfigError` naming the closest one."""
    for prefix, (make, _) in _FAMILIES.items():
        if name.startswith(prefix):
            return make(name)
    if name not in _BACKENDS:
        if name not in _LATE:
            raise ConfigError(f"There is no backend '{name}'{did_you_mean(name, backend_names())}")
        _BACKENDS.setdefault(name, _LATE[name](name))
    return _BACKENDS[name]


def backend_names() -> list[str]:
    """Return the names of all backends, sorted; of a family, those that the user has configured."""
    return sorted({*_BACKENDS, *_LATE, *(name for _, names in _FAMILIES.values() for name in names())})


def warm_up(names: Iterable[str], network: NetworkConfig) -> None:
    """Let the backends *names* begin in the background with what takes long before their first run.

    Nothing is waited for. Raises `ConfigError` for a name that there is not.
    """
    for name in names:
        begin = getattr(get_backend(name), "warm_up", None)
        if begin is not None:
            begin(network)
