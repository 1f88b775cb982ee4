"""Simulate a single collective program on an idle machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...errors import ConfigError
from .. import engine
from ..programs import Program, Sizes
from ._lowering import PlanLowering, RankWriter, StepLowering
from ._machine import Machine

# The number of requests that a detailed run simulates in about a second.
_FEW_REQUESTS = 1 << 15
_BATCHES = 16


@dataclass(frozen=True, eq=False)
class GpuWorkgroups:
    """A program as workgroups of operations for one size, machine and placement of the ranks.

    *places* are the op and round of each operation label of the engine. *writers* are the ranks that were
    written, of which all others are copies. *groups* are the numbers of the groups of the switch.
    """

    program: Program
    compiled: engine.GpuProgram
    places: list[tuple[str, int]]
    writers: list[RankWriter]
    groups: dict[tuple[int, ...], int]

    def requests(self) -> int:
        """Return the number of lines that the program's operations load and store."""
        group_sizes = {-1: 1} | {number: len(ranks) for ranks, number in self.groups.items()}
        return self.compiled.copies * sum(writer.requests(group_sizes) for writer in self.writers)


@dataclass(frozen=True, eq=False)
class ProgramRun:
    """The result of a program run: *time_ns* from the launch to the end of the last rank, and *rank_ns*.

    *rank_ns* (int64) is the time of each rank. The table *ops* has rank, block, op, round (-1: no round),
    start_ns and end_ns of the work of each thread block. The table *links* has src and dst (a GPU; -1: the
    switch; -2: the network between nodes), bytes, lines, busy_ns and queue_ns. *detailed* is true if requests
    were simulated one by one. *counters* are the numbers of lines requested, loaded, stored and delivered, of
    requests without data, and of events.
    """

    time_ns: int
    rank_ns: npt.NDArray[np.int64]
    links: pd.DataFrame
    counters: dict[str, float]
    ops: pd.DataFrame = field(default_factory=pd.DataFrame)
    detailed: bool = False


def simulate_program(
    program: Program,
    size_bytes: int,
    machine: Machine,
    *,
    detailed: bool | None = None,
    record_ops: bool = True,
    progress: Callable[[int, int], bool] | None = None,
) -> ProgramRun:
    """Run *program* for a collective of *size_bytes* (for an all-gather, each rank's shard).

    The ranks are on GPUs 0, 1 ..., with ``machine.scale_up.gpus`` GPUs in a node. *detailed* simulates every
    request in every router, which is slow. By default, *detailed* is used if the fast fabric is inaccurate
    (`why_rough`) and the number of requests is small. *progress* is called with the time in ns and the number
    of finished ranks. The run is cancelled if *progress* returns False. Raises `ConfigError`, with the place,
    for an op that the machine cannot run.
    """
    nodes = [rank // machine.scale_up.gpus for rank in range(program.num_ranks)]
    lowered = workgroups_of(program, size_bytes, machine, nodes)
    if detailed is None:
        detailed = bool(why_rough(machine)) and lowered.requests() <= _FEW_REQUESTS
    replay = engine.replay_gpu_program(
        engine_machine(machine), lowered.compiled, detailed=detailed, stamps=record_ops, progress=progress
    )
    if replay.stuck:
        raise ConfigError(_deadlock(lowered, machine, replay.stuck))
    rank_ns = np.asarray(replay.rank_ns)
    return ProgramRun(
        time_ns=int(rank_ns.max()),
        rank_ns=rank_ns,
        links=pd.DataFrame(replay.links),
        counters=dict(replay.counts),
        ops=_ops(lowered, replay.stamps) if record_ops else pd.DataFrame(),
        detailed=detailed,
    )


def why_rough(machine: Machine) -> list[str]:
    """Return the reasons why the fast fabric model may have errors above 10 % on *machine*."""
    mesh, compute, reasons = machine.mesh, machine.compute, []
    if mesh.virtual_channels < machine.scale_up.ports:
        reasons.append("ports share virtual channels (mesh.virtual_channels < scale_up.ports)")
    if mesh.link_bytes_per_ns < 2 * compute.bytes_per_ns:
        reasons.append("few units fill a link of the mesh (mesh.link_bytes_per_ns < 2 compute.bytes_per_ns)")
    if compute.requests_per_unit < _BATCHES * compute.unroll:
        reasons.append(f"units wait for requests (compute.requests_per_unit < {_BATCHES} compute.unroll)")
    return reasons


def workgroups_of(program: Program, size_bytes: int, machine: Machine, nodes: Sequence[int]) -> GpuWorkgroups:
    """Return the operations of *program*'s thread blocks; *nodes* has the node of each rank's GPU.

    Raises `ConfigError` for an unsupported size, and for ops that the machine cannot run.
    """
    sizes = Sizes(program, size_bytes)
    kind = PlanLowering if program.language == "mscclpp" else StepLowering
    lowering = kind(program, sizes, machine, nodes)
    writers = lowering.run()
    copies = program.num_ranks // len(writers)
    compiled = _compile(program.name, writers, lowering.groups, copies)
    return GpuWorkgroups(program, compiled, lowering.places.names(), writers, lowering.groups)


def _compile(
    name: str, writers: Sequence[RankWriter], groups: dict[tuple[int, ...], int], copies: int
) -> engine.GpuProgram:
    compiled = engine.GpuProgram()
    compiled.name = name
    compiled.copies = copies
    compiled.groups = [list(ranks) for ranks in groups]
    compiled.counters = [writer.values for writer in writers]
    for writer in writers:
        compiled.add_rank()
        for wavefronts, operations in writer.blocks:
            compiled.add_workgroup(wavefronts, operations)
    return compiled


def engine_machine(machine: Machine) -> engine.GpuMachine:
    """Return *machine* in the engine's format."""
    return engine.GpuMachine({path: attrgetter(path)(machine) for path in engine.MACHINE_FIGURES})


def _ops(lowered: GpuWorkgroups, stamps: dict[str, Any]) -> pd.DataFrame:
    """Return a table with one row per op and round of each thread block, summed over operations."""
    table = pd.DataFrame(stamps)
    places = pd.DataFrame(lowered.places, columns=["op", "round"])
    table = table.merge(places, left_on="place", right_index=True).drop(columns="place")
    keys = ["rank", "block", "op", "round"]
    ops: pd.DataFrame = (
        table.groupby(keys, sort=False)
        .agg(start_ns=("start_ns", "min"), end_ns=("end_ns", "max"))
        .reset_index()
        .sort_values(["rank", "block", "start_ns", "end_ns"], kind="stable", ignore_index=True)
    )
    return ops


_WAITS = ("", "for a signal or flag", "at a barrier", "for its stores", "for a proxy", "to end")


def _deadlock(lowered: GpuWorkgroups, machine: Machine, stuck: list[tuple[int, int, int, int]]) -> str:
    """Return the error message for thread blocks that never end."""
    program = lowered.program
    homeless = [(rank, block) for rank, block, place, _ in stuck if place < 0]
    if homeless:
        rank, block = homeless[0]
        places = machine.compute.units * machine.compute.workgroups_per_unit
        return (
            f"{program.where(rank)}: thread block {block} finds no free compute unit, as the "
            f"{places} thread blocks that the machine '{machine.name}' holds at a time wait for others: a "
            "deadlock. Use a program with fewer thread blocks, or raise compute.workgroups_per_unit."
        )
    rank, block, place, waits = stuck[0]
    op, turn = lowered.places[place]
    round_ = f", round {turn}" if turn >= 0 else ""
    return (
        f"{program.where(rank, block)}, op {op}{round_}: it waits {_WAITS[waits]} for ever, and "
        f"{len(stuck) - 1} other thread blocks with it; 'chakrascope algorithm prove' shows why."
    )
