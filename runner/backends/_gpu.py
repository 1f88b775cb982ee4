"""The backend of the GPU model, in which collectives and computation compete for compute units."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .. import engine
from .._experiment import Experiment
from .._result import Result
from ..gpu import (
    GpuPrograms,
    Machine,
    chosen_programs,
    gpu_config,
    why_rough,
)
from ._engine import EngineBackend, Model, Run, refuse_linkless
from ._outcome import more_provenance

_COMPUTE = (
    "Alone on a GPU, a compute kernel takes the duration of its node: {waves} rounds of workgroups on all "
    "{units} compute units (compute_waves of the machine). Concurrent kernels on a GPU take turns; "
    "workgroups of collectives have priority. {memory}"
)
_MESSAGES = "Sends and receives are carried by proxies (copy engines, NICs) and need no compute units."


def gpu_backend(_name: str = "gpu") -> EngineBackend:
    """Return the backend that runs collectives on the GPU's compute units, alongside computation.

    The links are the machine's; the network only gives the number of ranks, which fill the machines
    in order. ``provenance["gpu"]["compute_slowdown"]`` is the time of computation relative to
    otherwise idle GPUs, and the table ``ranks`` has the slowdown of each rank.
    """
    return EngineBackend(Model(configure=_configure, complete=_complete))


def _programs(experiment: Experiment) -> GpuPrograms:
    system, efficiency = experiment.system, experiment.network.efficiency
    assert experiment.gpu_machine is not None
    names = {kind: getattr(system, f"{kind.replace('-', '_')}_implementation") for kind in engine.COLLECTIVES}
    return GpuPrograms(
        machine=experiment.gpu_machine,
        given=experiment.programs.programs,
        algorithms={kind: chosen[0] for kind, chosen in names.items() if chosen},
        substitutes=efficiency.instead() if efficiency is not None else {},
        rooted=experiment.semantics == "trace",
    )


def _configure(config: engine.Config, experiment: Experiment) -> None:
    refuse_linkless(experiment.network, experiment.backend)
    source = experiment.workload
    found = engine.collectives(list(source.programs), sizes=True)
    dimensions = experiment.network.dimensions
    programs = _programs(experiment)
    config.gpu = gpu_config(found, experiment.groups, source.num_ranks, dimensions, programs)


def _complete(result: Result, run: Run) -> Result:
    experiment, output = run.experiment, run.output
    programs = _programs(experiment)
    source = experiment.workload
    found = engine.collectives(list(source.programs), sizes=True)
    chosen_programs(found, experiment.groups, source.num_ranks, programs)
    took, alone = output.gpu_compute_ns.astype(float), output.gpu_alone_ns.astype(float)
    slowdown = np.divide(took, alone, out=np.ones_like(took), where=alone > 0)
    ranks = result.ranks.assign(compute_slowdown=slowdown)
    machine = programs.machine
    share = machine.compute_memory_share
    memory = f"A kernel uses {share:.0%} of the memory bandwidth, unless its node has a number of bytes."
    facts = {
        "machine": machine.name,
        "compute_slowdown": float(took.sum() / alone.sum()) if alone.sum() else 1.0,
    }
    assumptions = [
        f"The machine is '{machine.name}', with {machine.scale_up.gpus} GPUs per node.",
        _COMPUTE.format(waves=machine.compute_waves, units=machine.compute.units, memory=memory),
        _MESSAGES,
        *programs.remarks,
        *_rough(machine),
    ]
    provenance = more_provenance(result.provenance, {"gpu": facts}, assumptions=assumptions)
    return replace(result, ranks=ranks, provenance=provenance)


def _rough(machine: Machine) -> list[str]:
    """Return a warning if batched memory requests may make the simulation inaccurate."""
    reasons = why_rough(machine)
    if not reasons:
        return []
    return [
        "Requests were simulated in batches, which may be inaccurate by more than 10 % on the machine "
        f"'{machine.name}', because {' and '.join(reasons)}; simulate_program(..., detailed=True) simulates "
        "each request."
    ]
