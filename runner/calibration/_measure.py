"""Measure a real network with the messages and collectives of an emulation."""

from __future__ import annotations

from ...errors import ConfigError
from .._experiment import Experiment, WorkloadSource
from .._traits import EMULATION
from ..backends import Progress, get_backend
from ..config import NetworkConfig, SystemConfig
from ..emulation import Setup, read_setup
from ._probes import LARGEST_BYTES, probe_records, probes
from ._records import Records

__all__ = ["measure_network"]

_LOCAL_RANKS = 2


def measure_network(
    place: str, system: SystemConfig, *, largest_bytes: int = LARGEST_BYTES, progress: Progress | None = None
) -> Records:
    """Send messages of up to *largest_bytes* over the network of *place*, and return the measurements.

    *place* is a hosts file, or ``namespaces=2,link=100Mbit`` or ``loopback`` of this machine, as for the
    backend ``emulation:``. Collectives are those of *system*. Raises `ConfigError` for a single rank, and the
    errors of an emulation.
    """
    setup = read_setup(place)
    count = _num_ranks(setup)
    if count < _LOCAL_RANKS:
        raise ConfigError(f"'{place}' has one rank, which has nobody to send to; give it two or more.")
    places = setup.places(count)
    located = {host.name: host.location for host in setup.hosts if host.location}
    hosts = {where.rank: where.host for where in places}
    leaves = {where.rank: located[where.host] for where in places if where.host in located}
    made = probes(count, hosts, leaves, largest_bytes=largest_bytes)
    backend = f"{EMULATION}{place}"
    experiment = Experiment(
        WorkloadSource.of_model(made.workload),
        system,
        NetworkConfig(("Switch",), (count,), (1.0,), (0.0,)),
        groups=made.workload.groups,
        backend=backend,
        semantics="trace",
    )
    result = get_backend(backend).run(experiment, progress)
    return probe_records(made, result, f"messages and collectives over {place}", hosts, leaves)


def _num_ranks(setup: Setup) -> int:
    """Return the number of ranks that fit into *setup*."""
    if setup.is_local:
        return setup.namespaces or _LOCAL_RANKS
    return sum(len(host.ranks) if host.ranks is not None else host.slots for host in setup.hosts)
