"""What of an experiment a backend does not read."""

from __future__ import annotations

from .._experiment import Experiment

__all__ = ["has_own_efficiency", "ignored_keys"]

_MEASURED = ("emulation", "replay")
_WITHOUT_OURS = ("astra-sim", "service")
_MACHINE = (
    "Of the network only the number of ranks and the groups have an effect on 'gpu', of the system the "
    "algorithms, 'peak-perf' and 'local-mem-bw' with a roofline, and how ranks run their nodes: links, "
    "latencies and delays are those of its machine."
)
_WITH_HEADERS = ("auto", "flow", "ns3", "packet")


def ignored_keys(experiment: Experiment) -> list[str]:
    """Return a sentence for each key of the configurations that has no effect on the backend asked."""
    sentences = experiment.system.ineffective()
    if experiment.network.tcp is not None and experiment.backend != "ns3":
        sentences.append(
            f"'tcp' has no effect on '{experiment.backend}': only 'ns3' models TCP with its settings."
        )
    if experiment.gpu_machine is not None:
        sentences.append(_MACHINE)
    return sentences + _efficiency(experiment)


def has_own_efficiency(backend: str) -> bool:
    """Return whether *backend* measures, so that nothing is to be added for what is lost beside the wire."""
    return backend.partition(":")[0] in _MEASURED


def _efficiency(experiment: Experiment) -> list[str]:
    """Return what the backend does not use of what is lost beside the wire."""
    part, backend = experiment.network.efficiency, experiment.backend
    if part is None:
        return []
    family = backend.partition(":")[0]
    if has_own_efficiency(backend):
        return [
            f"Of 'efficiency' only 'substitutes', 'handshake' and 'sends-first' have an effect on "
            f"'{backend}': what is measured has losses of its own."
        ]
    if family in _WITHOUT_OURS:
        return [
            f"'efficiency' has no effect on '{backend}': what it reads is written without it, so that its "
            "messages have the whole bandwidth and collectives cost nothing beside them."
        ]
    if part.wire < 1 and family in _WITH_HEADERS:
        return [
            f"'wire' of 'efficiency' has no effect on '{backend}', whose packets have headers of their own; "
            "all else of it has one."
        ]
    return []
