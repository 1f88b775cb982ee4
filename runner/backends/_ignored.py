"""What of an experiment a backend does not read."""

from __future__ import annotations

from .._experiment import Experiment

__all__ = ["ignored_keys"]


def ignored_keys(experiment: Experiment) -> list[str]:
    """Return a sentence for each key of the configurations that has no effect on the backend asked."""
    sentences = [
        *experiment.system.ineffective(),
        *experiment.network.warnings,
        *experiment.memory.warnings,
    ]
    if experiment.network.tcp is not None and experiment.backend != "ns3":
        sentences.append(
            f"'tcp' has no effect on '{experiment.backend}': only 'ns3' models TCP with its settings."
        )
    return sentences
