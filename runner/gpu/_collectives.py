"""Choose a program for each collective of a workload: a given program or a default program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...converter import CollectiveType
from ...errors import ConfigError
from .. import engine
from ..programs import (
    BUILTIN_PROGRAMS,
    Buffer,
    Demand,
    Op,
    Program,
    RankProgram,
    Region,
    ThreadBlock,
    builtin_program,
    nccl_program,
)
from ._machine import Machine
from ._run import engine_machine, workgroups_of

_CHANNELS = 16
_LL_BYTES = 65_536
_RINGS = {"all-reduce", "all-gather", "reduce-scatter"}
_BARRIER_BYTES = 8


@dataclass
class GpuPrograms:
    """Chooses GPU programs for the collectives of a workload; *remarks* are the assumptions of the choice.

    *given* are the programs that were chosen for demands (a collective, number of ranks and size).
    *algorithms* are the algorithms in the system file, by collective. *substitutes* maps a collective that
    the library lacks to its replacement. If *rooted* is true, broadcasts, reduces, gathers and scatters also
    run as programs.
    """

    machine: Machine
    given: Mapping[Demand, Program]
    algorithms: Mapping[str, str]
    substitutes: Mapping[int, int]
    rooted: bool
    remarks: dict[str, None] = field(default_factory=dict)

    def of(self, comm_type: int, ranks: int, size_bytes: int) -> tuple[Program, int] | None:
        """Return the program and bytes of a collective, or None for a collective without program."""
        comm_type = self.substitutes.get(comm_type, comm_type)
        kind = CollectiveType.of(comm_type)
        if kind is CollectiveType.BARRIER:
            demand = Demand("all-reduce", ranks, _BARRIER_BYTES)
        elif self.rooted and kind is not None and kind.is_rooted:
            return self._rooted(kind.key, ranks), size_bytes
        else:
            known = Demand.of(comm_type, ranks, size_bytes)
            if known is None:
                return None
            demand = known
        if demand in self.given:
            return self.given[demand], demand.size_bytes
        program = self._default(demand)
        return program, self._rounded(program, demand)

    def _rooted(self, collective: str, ranks: int) -> Program:
        self.remarks[
            f"Each {collective} ran as messages between its first rank, taken for the root, and all others."
        ] = None
        return rooted_program(collective, ranks)

    def _default(self, demand: Demand) -> Program:
        """Return the system's algorithm for *demand* as a program; the default is NCCL's ring."""
        kind = demand.collective
        named = self.algorithms.get(kind, "ring" if kind in _RINGS else "direct")
        usable = named in BUILTIN_PROGRAMS and kind in BUILTIN_PROGRAMS[named]
        name = named if usable else "ring" if kind in _RINGS else "direct"
        if not usable:
            self.remarks[f"The algorithm '{named}' is not a program for {kind}: '{name}' ran instead."] = None
        protocol = "LL" if demand.size_bytes <= _LL_BYTES else "Simple"
        if name != "ring":
            self.remarks[f"Each {kind} without a program ran '{name}', protocol {protocol}."] = None
            return replace(builtin_program(name, kind, demand.ranks), protocol=protocol)
        places = self.machine.compute.units * self.machine.compute.workgroups_per_unit
        channels = 1 if protocol == "LL" else min(_CHANNELS, places)
        self.remarks[
            f"Each {kind} without a program ran NCCL's ring: up to {_LL_BYTES} bytes LL in one "
            f"channel, above Simple in {min(_CHANNELS, places)}."
        ] = None
        return nccl_program("ring", kind, demand.ranks, protocol, channels)

    def _rounded(self, program: Program, demand: Demand) -> int:
        """Return the bytes of *demand*, rounded up so that the chunks of *program* have equal sizes.

        A step of a ring lasts as long as its largest chunk, and ranks with equal chunks stay in step.
        """
        divisor = program.chunks * program.alignment_bytes
        if demand.collective == "all-gather":
            divisor //= math.gcd(divisor, demand.ranks)
        rounded = -(-demand.size_bytes // divisor) * divisor
        if rounded != demand.size_bytes:
            self.remarks["Sizes that default programs cannot divide were rounded up to equal chunks."] = None
        return rounded


def chosen_programs(
    collectives: Sequence[engine.Collective],
    groups: Mapping[int, Sequence[int]],
    num_ranks: int,
    programs: GpuPrograms,
) -> dict[tuple[int, int, int], tuple[tuple[int, ...], Program | None, int]]:
    """Return the members, program and bytes of each kind, group and size of *collectives*.

    A collective without work for its members has no program. Collectives for which there is no program are
    omitted.
    """
    choices: dict[tuple[int, int, int], tuple[tuple[int, ...], Program | None, int]] = {}
    for each in collectives:
        members = tuple(groups.get(each.group) or range(num_ranks))
        key = (each.comm_type, each.group, each.size_bytes)
        chosen = programs.of(each.comm_type, len(members), each.size_bytes) if len(members) > 1 else None
        if len(members) < 2 or (chosen is not None and chosen[1] == 0):
            choices[key] = members, None, 0
        elif chosen is not None:
            choices[key] = members, *chosen
    return choices


def gpu_config(
    collectives: Sequence[engine.Collective],
    groups: Mapping[int, Sequence[int]],
    num_ranks: int,
    dimensions: int,
    programs: GpuPrograms,
) -> engine.GpuConfig:
    """Return the engine's configuration to run *collectives* among *num_ranks* GPUs.

    Raises `ConfigError` for collectives over a part of the network's *dimensions*, and for errors of
    programs.
    """
    machine = programs.machine
    config = engine.GpuConfig()
    config.machine = engine_machine(machine)
    every = (1 << dimensions) - 1
    for each in collectives:
        if each.involved & every != every:
            raise ConfigError(
                f"A collective of {each.size_bytes} bytes (node {each.node_id}) only runs in some dimensions "
                "of the network (involved_dim), which machines of the GPU model do not have; give it a "
                "process group instead."
            )
    compiled: dict[tuple[int, int, tuple[int, ...]], engine.GpuProgram] = {}
    choices = chosen_programs(collectives, groups, num_ranks, programs)
    for key, (members, program, size_bytes) in choices.items():
        if program is None:
            config.add_collective(*key, list(members), None)
            continue
        nodes = tuple(rank // machine.scale_up.gpus for rank in members)
        place = (id(program), size_bytes, nodes)
        if place not in compiled:
            compiled[place] = workgroups_of(program, size_bytes, machine, nodes).compiled
        config.add_collective(*key, list(members), compiled[place])
    return config


# For each rooted collective: the root's step for each other rank, and the other rank's step.
ROOTED = {"broadcast": ("s", "r"), "scatter": ("s", "r"), "gather": ("r", "s"), "reduce": ("rrc", "s")}


def rooted_program(collective: str, ranks: int) -> Program:
    """Return a program among *ranks* (the first rank is the root) with messages of the full size."""
    at_root, at_others = ROOTED[collective]
    root = [_block(place, 0, peer, at_root) for place, peer in enumerate(range(1, ranks))]
    programs = [RankProgram(0, 1, 1, 0, tuple(root))]
    programs += [RankProgram(rank, 1, 1, 0, (_block(0, rank, 0, at_others),)) for rank in range(1, ranks)]
    name = f"direct_{collective}"
    return Program(name, name, "msccl", "custom", "Simple", True, 1, tuple(programs))


def _block(number: int, rank: int, peer: int, step: str) -> ThreadBlock:
    whole = (Region((rank,), Buffer.INPUT, 0, 1),)
    op = Op(step, (0,), whole if step != "r" else (), whole if step != "s" else ())
    return ThreadBlock(number, (op,), peer if step == "s" else -1, peer if step != "s" else -1)
