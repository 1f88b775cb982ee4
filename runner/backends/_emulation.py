"""The backend that replays a workload's messages over a real network and times them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from ...errors import BackendError, ConfigError, SimulationStalled
from .. import engine
from .._experiment import Experiment
from .._result import COLUMNS, Result
from .._traits import EMULATION
from ..config import NetworkConfig, copied_into
from ..emulation import (
    EngineJob,
    Lateness,
    MeasuredTables,
    Measurement,
    Place,
    Setup,
    Stalled,
    emulate,
    flow_interfaces,
    read_setup,
)
from ._base import Progress
from ._engine import EngineBackend, compile_scenario
from ._outcome import collective_table, completion_times, more_provenance, run_provenance
from ._process import backend_timeout_s

_SHOWN = 4
_NOMINAL_BPS = 10**10
_NOMINAL_NS = 20_000.0
_NO_QUEUES = "Emulated: queueing times of links are 0, not measured."
_GROUPS = (
    "Process groups make progress independently, as communicators do, even if the ranks of a simulation "
    "would process their chunks in turn."
)


def emulation_backend(name: str) -> EmulationBackend:
    """Return the backend ``emulation:PLACE``."""
    return EmulationBackend(name.removeprefix(EMULATION))


class EmulationBackend:
    """Runs the workload in real time on the hosts of *place* and returns the repetition of median makespan.

    *place* is a hosts file, a `Setup`, or a place on this machine (``loopback`` or ``namespaces``)
    with the options of `emulation.read_setup`.
    """

    def __init__(self, place: str | Setup) -> None:
        self.place = place

    def network(self, num_ranks: int) -> NetworkConfig:
        """Return the network to assume when the user names none: one switch.

        The switch has the bandwidth of the real network if that is known.
        """
        setup = self._setup()
        rate = setup.link_bps or _NOMINAL_BPS
        gibibytes = rate / 8 / (1 << 30)
        caveat = "" if setup.link_bps else "; its bandwidth is unknown and assumed to be 10 Gb/s"
        assumption = f"The network of an emulation is one switch of all ranks{caveat}."
        return NetworkConfig(
            ("Switch",), (num_ranks,), (gibibytes,), (_NOMINAL_NS,), name="real", assumptions=(assumption,)
        )

    def _setup(self) -> Setup:
        return self.place if isinstance(self.place, Setup) else read_setup(self.place)

    def run(self, experiment: Experiment, progress: Progress | None = None) -> Result:
        """Emulate *experiment* on the real network; raises `BackendError` if the emulation fails.

        The engine simulates the experiment first, to report deadlocks before any host is contacted.
        """
        if experiment.workload.representative_of_rank is not None:
            raise ConfigError(
                "The workload has one graph per set of equal ranks, but an emulation runs every rank. Next: "
                "write all graphs ('chakrascope predict --all-ranks')."
            )
        setup = self._setup()
        places = setup.places(experiment.workload.num_ranks)
        job, overtaking = _job(experiment)
        limit_s = backend_timeout_s() if setup.limit_s is None else setup.limit_s
        try:
            measured = emulate(job, setup, limit_s=limit_s, progress=progress)
        except Stalled as stalled:
            raise _stall(stalled) from None
        return _result(experiment, setup, places, measured, overtaking)


def _job(experiment: Experiment) -> tuple[EngineJob, int]:
    """Return the engine's input for each rank, and the degree of overtaking that avoids stalls."""
    source = experiment.workload
    programs = tuple(
        program if isinstance(program, bytes) else Path(program).read_bytes() for program in source.programs
    )
    rehearsal = EngineBackend().rehearse(experiment)
    groups = {each.group for each in engine.collectives(list(programs))}
    overtaking = max(rehearsal, 1 if len(groups) > 1 else 0)
    with tempfile.TemporaryDirectory(prefix="chakrascope-algorithms-") as folder:
        system = copied_into(experiment.system, Path(folder))
        files = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(Path(folder).rglob("*"))
            if path.is_file()
        }
        config = compile_scenario(replace(experiment, system=system)).config
    config.overtaking = overtaking
    return EngineJob(config, programs, tuple(map(int, source.program_of_rank)), files), overtaking


def _stall(stalled: Stalled) -> SimulationStalled:
    shown = "; ".join(
        f"rank {rank} is in {operation['operation']} '{operation['name']}' (node {operation['node_id']})"
        for rank, operation in stalled.operations[:_SHOWN]
    )
    more = len(stalled.operations) - _SHOWN
    return SimulationStalled(
        "The emulated job stalled: the ranks wait for each other, and no message is in flight. "
        f"{shown}{f'; and {more} more' if more > 0 else ''}. Next: make all members of a group issue its "
        "collectives in the same order, for example by a dependency between the collectives.",
        [
            {
                "rank": rank,
                "node_id": int(operation["node_id"]),
                "node_name": str(operation["name"]),
                "operation": str(operation["operation"]),
                "waits_for": "messages of other ranks",
            }
            for rank, operation in stalled.operations
        ],
        [],
    )


def _result(
    experiment: Experiment,
    setup: Setup,
    places: Sequence[Place],
    measured: Sequence[Measurement],
    overtaking: int,
) -> Result:
    makespans = [
        max(int(output.facts["statistics"]["finish_ns"]) for output in measurement.outputs)
        for measurement in measured
    ]
    chosen = sorted(range(len(measured)), key=makespans.__getitem__)[(len(measured) - 1) // 2]
    tables = MeasuredTables(measured[chosen], places)
    nodes = tables.nodes[list(COLUMNS["nodes"])].astype(COLUMNS["nodes"])
    # With the roofline model, the engine computes the durations of compute nodes itself.
    late = None if experiment.system.roofline_enabled else Lateness.of(experiment.workload.model, nodes)
    if late is not None and late.refusal(tables.makespan_ns):
        raise BackendError(late.refusal(tables.makespan_ns))
    facts = _facts(setup, places, measured, chosen, makespans) | completion_times(tables.flows)
    facts |= {"compute_late_ns": late.to_json() if late is not None else {}}
    lateness = late.warning(tables.makespan_ns) if late is not None else ""
    provenance = more_provenance(
        run_provenance(experiment, _counts(measured[chosen], tables, overtaking)),
        {"emulation": facts},
        warnings=[lateness] if lateness else [],
        assumptions=[_NO_QUEUES, *([_GROUPS] if overtaking else [])],
    )
    roofline = list(tables.ranks.columns[len(COLUMNS["ranks"]) :])
    dropped = [] if experiment.system.roofline_enabled else roofline
    return Result(
        backend=experiment.backend,
        makespan_ns=tables.makespan_ns,
        ranks=tables.ranks.drop(columns=dropped).astype(COLUMNS["ranks"]),
        nodes=nodes,
        collectives=collective_table(nodes, experiment.workload.model),
        links=_links(tables.flows),
        flows=tables.flows,
        provenance=provenance,
    )


def _counts(measurement: Measurement, tables: MeasuredTables, overtaking: int) -> SimpleNamespace:
    """Return the engine's counters, summed over the ranks of an emulation."""
    facts = [output.facts for output in measurement.outputs]
    summed = ("nodes_total", "nodes_executed", "events", "overtaken", "replayed")
    return SimpleNamespace(
        **{name: sum(int(each[name]) for each in facts) for name in summed},
        overtaking=overtaking,
        folded=False,
        undercharged=None,
        evened=max(int(each["evened"]) for each in facts),
        rank_representative=np.arange(len(facts), dtype=np.int32),
        finish_order=np.argsort(tables.ranks["finish_ns"].to_numpy(), kind="stable"),
    )


def _facts(
    setup: Setup,
    places: Sequence[Place],
    measured: Sequence[Measurement],
    chosen: int,
    makespans: Sequence[int],
) -> dict[str, Any]:
    """Return the provenance of an emulation's result."""
    located = {host.name: host.location for host in setup.hosts}
    hosts = [
        {
            "host": host,
            "location": located.get(host, ""),
            "ranks": [place.rank for place in places if place.host == host],
            **clock.to_json(),
        }
        for host, clock in measured[chosen].clocks.items()
    ]
    median = float(np.median(makespans))
    return {
        "transport": setup.transport,
        "hosts": hosts,
        "interfaces": flow_interfaces(places),
        "repetitions": {
            "makespans_ns": list(makespans),
            "chosen": chosen,
            "median_ns": median,
            "spread": (max(makespans) - min(makespans)) / median if median else 0.0,
        },
        "peak_bytes": [int(output.facts["peak_bytes"]) for output in measured[chosen].outputs],
    }


def _links(flows: pd.DataFrame) -> pd.DataFrame:
    """Return the table ``links``: the traffic between each pair of ranks.

    A link is busy while any of its messages is in flight.
    """
    rows = [
        (src, dst, int(part["bytes"].sum()), _covered_ns(part), 0, len(part))
        for (src, dst), part in flows.groupby(["src", "dst"])
    ]
    table: pd.DataFrame = pd.DataFrame(rows, columns=list(COLUMNS["links"])).astype(COLUMNS["links"])
    return table


def _covered_ns(flows: pd.DataFrame) -> int:
    """Return the time in ns during which at least one of *flows* was in flight."""
    ordered = flows.sort_values("start_ns")
    starts, ends = ordered["start_ns"].to_numpy(), ordered["end_ns"].cummax().to_numpy()
    before = np.concatenate([[starts[0]], ends[:-1]])
    return int((ends - np.maximum(starts, before)).clip(min=0).sum())
