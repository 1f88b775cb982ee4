"""Parts of an experiment that a backend ignores."""

from __future__ import annotations

from .._experiment import Experiment
from .._traits import about_backend, backends_that

__all__ = ["has_own_efficiency", "ignored_keys"]


def ignored_keys(experiment: Experiment) -> list[str]:
    """Return a sentence for each key of the configurations that the backend ignores."""
    sentences = experiment.system.ineffective()
    traits = about_backend(experiment.backend)
    if experiment.network.tcp is not None and not traits.tcp:
        sentences.append(
            f"'tcp' has no effect on '{experiment.backend}': only {backends_that('tcp')} models TCP with its "
            "settings."
        )
    if traits.ignores:
        sentences.append(traits.ignores)
    return sentences + _efficiency(experiment)


def has_own_efficiency(backend: str) -> bool:
    """Return whether *backend* measures, so that overheads beyond the wire are already included."""
    return about_backend(backend).efficiency == "what is sent"


def _efficiency(experiment: Experiment) -> list[str]:
    """Return sentences on the overheads beyond the wire that the backend ignores."""
    part, backend = experiment.network.efficiency, experiment.backend
    if part is None:
        return []
    used = about_backend(backend).efficiency
    if used == "what is sent":
        return [
            f"Of 'efficiency' only 'substitutes', 'handshake' and 'sends-first' have an effect on "
            f"'{backend}': what is measured has losses of its own."
        ]
    if used == "none":
        return [
            f"'efficiency' has no effect on '{backend}': what it reads is written without it, so that its "
            "messages have the whole bandwidth and collectives cost nothing beside them."
        ]
    if part.wire < 1 and used == "all but wire":
        return [
            f"'wire' of 'efficiency' has no effect on '{backend}', whose packets have headers of their own; "
            "all else of it has one."
        ]
    return []
