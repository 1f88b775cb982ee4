"""Collectives as programs: read them, prove them, and turn them into messages."""

from __future__ import annotations

from ._all_pairs import (
    ALL_PAIRS,
    all_pairs_program,
)
from ._builtin import (
    BUILTIN_PROGRAMS,
    builtin_program,
)
from ._choice import (
    Choice,
    Demand,
    choose_programs,
    misfit,
    read_proved,
)
from ._expand import (
    demands_of,
    expand_workload,
)
from ._graphs import (
    graphs_of,
    workload_of,
)
from ._inspection import (
    Inspection,
    Traffic,
    inspect_program,
)
from ._lower import (
    Lowered,
    Message,
    lower,
)
from ._model import (
    CONTROL_OPS,
    MESSAGE_OPS,
    PACKET_OPS,
    Buffer,
    Channel,
    ChannelType,
    Op,
    Program,
    RankProgram,
    Region,
    ThreadBlock,
)
from ._names import (
    PROGRAM_NAMES,
    is_program_name,
    named_program,
)
from ._nccl import (
    NCCL_ALGORITHMS,
    NCCL_PROTOCOLS,
    nccl_program,
)
from ._nccl_choice import (
    NcclChoice,
    nccl_choice,
)
from ._proof import (
    Problem,
    Proof,
    prove,
)
from ._sizes import (
    Sizes,
    packet_sources,
    program_bytes,
)
from ._writer import (
    write_msccl,
)
from .readers import (
    parse_program,
    read_program,
)

__all__ = [
    "ALL_PAIRS",
    "BUILTIN_PROGRAMS",
    "CONTROL_OPS",
    "MESSAGE_OPS",
    "NCCL_ALGORITHMS",
    "NCCL_PROTOCOLS",
    "PACKET_OPS",
    "PROGRAM_NAMES",
    "Buffer",
    "Channel",
    "ChannelType",
    "Choice",
    "Demand",
    "Inspection",
    "Lowered",
    "Message",
    "NcclChoice",
    "Op",
    "Problem",
    "Program",
    "Proof",
    "RankProgram",
    "Region",
    "Sizes",
    "ThreadBlock",
    "Traffic",
    "all_pairs_program",
    "builtin_program",
    "choose_programs",
    "demands_of",
    "expand_workload",
    "graphs_of",
    "inspect_program",
    "is_program_name",
    "lower",
    "misfit",
    "named_program",
    "nccl_choice",
    "nccl_program",
    "packet_sources",
    "parse_program",
    "program_bytes",
    "prove",
    "read_program",
    "read_proved",
    "workload_of",
    "write_msccl",
]
