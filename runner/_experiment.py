"""An experiment: a workload, the configurations, a backend and its options, with a content hash."""

from __future__ import annotations

import enum
import functools
import hashlib
import json
import mmap
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from ..converter import NodeType, Workload, decode_graph, encode_graph, read_et
from ..converter.chakra import check_attributes, unchanged_files
from ..errors import ConfigError, WorkloadError
from ..support import open_file
from ._sync_points import SyncPoints
from ._traits import DEFAULT_BACKEND, about_backend
from .config import (
    INTEGER,
    Fabric,
    MemoryConfig,
    NetworkConfig,
    SystemConfig,
    digests,
    fabric_of,
    program_files,
    shown,
    without_paths,
)
from .engine import FIELDS, Collective, collectives
from .gpu import Machine, machine_of_backend, machine_of_plain
from .programs import Choice, Demand, Lowered, choose_programs, lower

# The descriptive fields of a machine of the GPU model, which do not affect results.
_WORDS = {"name", "sources", "title"}
# The version of the conversion from collective programs to messages. Version 1 had no rounds. In version 2,
# `flush` took time, but not `pwsf`.
_LOWERING_VERSION = 3
_FLAGS = b"involved_dim"  # the attribute with a flag per dimension


class Detail(enum.Enum):
    """The requested detail of a result: all tables, or only the totals for a table of many runs.

    `TOTALS` are the makespan, the ranks and the provenance. The other tables take several times as long as a
    small simulation. A backend may return more detail than requested.
    """

    EVERYTHING = "everything"
    TOTALS = "totals"


@dataclass(frozen=True, eq=False)
class WorkloadSource:
    """The programs of a workload, in memory or as ``PREFIX.<rank>.et`` files on disk.

    *programs* are the distinct programs, each as the bytes or the path of an .et file. *program_of_rank*
    (int32) has the index of each rank's program. *digests* are the known SHA-256 hashes of files.
    """

    programs: tuple[bytes | str, ...]
    program_of_rank: npt.NDArray[np.int32]
    prefix: Path | None = None
    loaded: Workload | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    representative_of_rank: npt.NDArray[np.int32] | None = None
    digests: Mapping[bytes | str, str] = field(default_factory=dict)

    @classmethod
    def of_model(cls, workload: Workload) -> WorkloadSource:
        """Return the source of a loaded workload, with each distinct graph encoded once."""
        programs = tuple(encode_graph(graph) for graph in workload.graphs)
        ranks = np.asarray(workload.program_of_rank, dtype=np.int32)
        return cls(
            programs,
            ranks,
            loaded=workload,
            metadata=workload.metadata,
            representative_of_rank=workload.representative_of_rank,
        )

    @classmethod
    def of_prefix(
        cls,
        prefix: str | Path,
        num_ranks: int,
        groups: Mapping[int, tuple[int, ...]] = MappingProxyType({}),
        *,
        captured: bool = False,
    ) -> WorkloadSource:
        """Return the source of the files ``PREFIX.0.et`` to ``PREFIX.<num_ranks - 1>.et``.

        Files with the same content become one program. Files of ranks beyond *num_ranks* are reported as an
        assumption in the metadata. A missing file raises `WorkloadError`. Files that another program wrote or
        changed are checked with the process groups *groups*; *captured* is as in `check_attributes`.
        """
        paths = (f"{prefix}.{rank}.et" for rank in range(num_ranks))
        missing = next((path for path in paths if not os.path.isfile(path)), None)
        if missing:
            raise WorkloadError(
                f"The workload file {missing} does not exist, but each of the network's {num_ranks} ranks "
                f"needs a file. Next: choose a network with as many ranks as there are {prefix}.*.et files."
            )
        index: dict[str, int] = {}
        distinct: list[bytes | str] = []
        ranks = np.empty(num_ranks, dtype=np.int32)
        unchanged = unchanged_files(Path(prefix), range(num_ranks))
        for rank in range(num_ranks):
            path = f"{prefix}.{rank}.et"
            digest = unchanged.get(rank)  # a file with a known digest is not compressed
            packed = digest is None and _is_gzip(path)
            digest = digest or _digest_file(path)
            if digest not in index:
                index[digest] = len(distinct)
                distinct.append(read_et(path) if packed else path)
                if rank not in unchanged:
                    graph = decode_graph(read_et(path), rank=rank, source=path)
                    check_attributes(graph, groups, num_ranks, f"{path}, rank {rank}", captured=captured)
            ranks[rank] = index[digest]
        metadata: dict[str, Any] = {}
        if Path(f"{prefix}.{num_ranks}.et").is_file():
            metadata["assumptions"] = [
                f"The workload has files for more ranks than the network has ({num_ranks}): only the first "
                f"{num_ranks} ranks were simulated, as in ASTRA-sim."
            ]
        digests = dict(zip(distinct, index, strict=True))
        return cls(tuple(distinct), ranks, prefix=Path(prefix), metadata=metadata, digests=digests)

    @property
    def num_ranks(self) -> int:
        """The number of ranks."""
        return len(self.program_of_rank)

    @functools.cached_property
    def model(self) -> Workload:
        """The workload as a model, read from disk at first use."""
        if self.loaded is not None:
            return self.loaded
        if self.prefix is None:
            raise WorkloadError("The experiment has only encoded programs; pass a Workload instead.")
        return Workload.load(self.prefix)

    @functools.cached_property
    def flagged_collectives(self) -> list[tuple[int, Collective]]:
        """The distinct collectives that only some dimensions of a network run, each with the first rank."""
        flagged = [number for number, program in enumerate(self.programs) if _has_flags(program)]
        return [
            (int(np.argmax(self.program_of_rank == number)), each)
            for number in flagged
            for each in collectives([self.programs[number]])
            if each.involved & 0x0F != 0x0F
        ]

    @functools.cached_property
    def content_hash(self) -> str:
        """The hash of the programs of all ranks."""
        digests = [
            hashlib.sha256(program).hexdigest()
            if isinstance(program, bytes)
            else self.digests.get(program) or _digest_file(program)
            for program in self.programs
        ]
        lines = "\n".join(digests[index] for index in self.program_of_rank)
        if self.representative_of_rank is not None:
            lines += "\n" + ",".join(map(str, self.representative_of_rank.tolist()))
        return hashlib.sha256(lines.encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Experiment:
    """The input of a simulation, where experiments with the same `content_hash` have the same result.

    * *groups* maps the id of a communicator group (above 0) to global ranks.
    * *semantics* is ``astra-sim`` (three slots per rank, durations in microseconds) or ``trace`` (one slot
      per captured lane, durations in ns).
    * *assumptions* are sentences for the result's provenance, such as those of a scaled-out workload.
    * *occasion* distinguishes repeated measurements of one experiment, because their results differ.
      Simulations have no occasion.
    * *machine* replaces the machine in a backend's name ``gpu:MACHINE``.
    * *detail* selects tables of the result. The detail is not part of the hash, and backends may ignore the
      detail.
    * *sync* applies to replays. If *sync* is given, ranks wait for each other as they did during the
      measurement. If *sync* is missing, every node takes its measured time.
    """

    workload: WorkloadSource
    system: SystemConfig
    network: NetworkConfig
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    groups: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    backend: str = DEFAULT_BACKEND
    num_queues_per_dim: int = 1
    injection_scale: float = 1.0
    rendezvous: bool = False
    semantics: str = "astra-sim"
    assumptions: tuple[str, ...] = ()
    occasion: str = ""
    machine: Machine | None = None
    detail: Detail = Detail.EVERYTHING
    sync: SyncPoints | None = None

    def __post_init__(self) -> None:
        most = int(FIELDS["num_queues_per_dim"].largest)
        if not 1 <= self.num_queues_per_dim <= most:
            raise ConfigError(
                f"The number of queues per dimension (num-queues-per-dim) must be between 1 and {most}, not "
                f"{shown(self.num_queues_per_dim)}."
            )
        longest = (self.system.endpoint_delay or 1) * self.injection_scale
        if not 0 <= longest <= INTEGER:
            raise ConfigError(
                "The injection scale (injection-scale) must be a number of 0 or more that keeps the endpoint "
                f"delay below 2^31 ns, not {shown(self.injection_scale)}."
            )
        choices = FIELDS["semantics"].words
        if self.semantics not in choices:
            raise ConfigError(f"semantics must be one of {', '.join(choices)}, not '{self.semantics}'.")
        for group, members in self.groups.items():
            outside = [rank for rank in members if not 0 <= rank < self.workload.num_ranks]
            if outside:
                raise ConfigError(
                    f"Group {group} names rank {outside[0]}, but the last rank is "
                    f"{self.workload.num_ranks - 1}; correct the groups or the network's npus_count."
                )
            if group < 1 or not members or len(set(members)) < len(members):
                raise ConfigError(
                    f"Group {group} with the ranks {shown(list(members))} must have an id above 0, and name "
                    "at least one rank, and each once."
                )

    @classmethod
    def of_description(cls, described: Mapping[str, Any], **inputs: Any) -> Experiment:
        """Return the experiment of *inputs*, with the groups and options in *described* (see `describe`)."""
        options = dict(described["options"])
        if "machine" in options:  # the stored machine is used, even if the backend's own file has changed
            options["machine"] = machine_of_plain(options["machine"])
        groups = {int(group): tuple(members) for group, members in described["groups"].items()}
        return cls(**inputs, groups=groups, **options)

    @functools.cached_property
    def fabric(self) -> Fabric:
        """The fabric of the network; raises `ConfigError` if the network has none (see `fabric_of`)."""
        return fabric_of(self.network)

    @functools.cached_property
    def content_hash(self) -> str:
        """The hash of all inputs that determine the result, as 16 hexadecimal digits."""
        algorithms = digests(self.system)
        # The content of custom algorithms determines the result; the paths and names of their files do not.
        system = {
            key: value
            for key, value in self.system.to_dict().items()
            if "custom" not in key and not key.endswith("-programs")
        }
        content = self.describe() | {"workload": self.workload.content_hash, "custom": algorithms}
        if "machine" in content["options"]:
            figures = {k: value for k, value in content["options"]["machine"].items() if k not in _WORDS}
            content["options"] |= {"machine": figures}
        content |= {"system": system} if algorithms else {}
        content |= {"model_version": self.model_version} if self.model_version > 1 else {}
        if program_files(self.system) and self.gpu_machine is None:
            content["lowering_version"] = _LOWERING_VERSION
        encoded = json.dumps(content, sort_keys=True, default=str).encode()
        return hashlib.sha256(encoded).hexdigest()[:16]

    @functools.cached_property
    def programs(self) -> Choice:
        """The collective program of each size with a program; raises `ConfigError` if no program fits."""
        files = program_files(self.system)
        return choose_programs(files, self._demands()) if files else Choice({})

    @functools.cached_property
    def program_messages(self) -> dict[Demand, Lowered]:
        """The messages of the programs in `programs`."""
        return {
            demand: lower(program, demand.size_bytes) for demand, program in self.programs.programs.items()
        }

    def _demands(self) -> set[Demand]:
        """Return the collectives of the workload as kind, number of ranks and bytes."""
        demands: set[Demand] = set()
        if not self.workload.programs:
            return demands
        for graph in self.workload.model.graphs:
            nodes = graph.node_columns
            rows = np.asarray(nodes["type"]) == NodeType.COMM_COLL
            facts = (np.asarray(nodes[name])[rows] for name in ("comm_type", "group", "comm_size_bytes"))
            for kind, group, size in set(zip(*(values.tolist() for values in facts), strict=True)):
                count = len(self.groups[group]) if group in self.groups else self.workload.num_ranks
                demand = Demand.of(kind, count, size)
                demands |= {demand} if demand is not None else set()
        return demands

    @functools.cached_property
    def gpu_machine(self) -> Machine | None:
        """The machine of the GPU model (`ConfigError` if it is missing), or None for other backends."""
        if about_backend(self.backend).variant != "machine":
            return None
        return self.machine or machine_of_backend(self.backend)

    @property
    def model_version(self) -> int:
        """The version of the backend's model, counted from 1."""
        traits, part = about_backend(self.backend), self.network.packet
        in_trains = part is not None and part.settings.get("PACKET_TRAIN", 1) > 1
        crosses = self.semantics == "trace" and self.network.dimensions > 1
        return (
            traits.version
            + (traits.train_version if in_trains else 0)
            + (traits.trace_version if crosses else 0)
        )

    def describe(self) -> dict[str, Any]:
        """Return the configurations and options as plain JSON."""
        return {
            "backend": self.backend,
            "system": without_paths(self.system.to_dict()),
            "network": self.network.to_dict(),
            "memory": self.memory.to_dict(),
            "groups": {str(group): list(members) for group, members in sorted(self.groups.items())},
            "options": self.options(),
        }

    def options(self) -> dict[str, Any]:
        """Return ASTRA-sim's command-line options, the semantics, and the optional machine and occasion."""
        options: dict[str, Any] = {
            "num_queues_per_dim": self.num_queues_per_dim,
            "injection_scale": self.injection_scale,
            "rendezvous": self.rendezvous,
            "semantics": self.semantics,
        }
        if self.gpu_machine is not None:
            options["machine"] = asdict(self.gpu_machine)
        return options | ({"occasion": self.occasion} if self.occasion else {})


def _has_flags(program: bytes | str) -> bool:
    """Return whether a program has flags of dimensions, by a search that is much faster than decoding."""
    if isinstance(program, bytes):
        return _FLAGS in program
    with open_file(program) as file:
        if not os.fstat(file.fileno()).st_size:  # an empty file cannot be mapped
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(_FLAGS) >= 0


def _is_gzip(path: str) -> bool:
    with open_file(path) as file:
        return file.read(2) == b"\x1f\x8b"


def _digest_file(path: str) -> str:
    try:
        with open_file(path) as content:
            return hashlib.sha256(content.read()).hexdigest()
    except OSError as error:
        raise WorkloadError(f"The file {path} cannot be read ({error.strerror}); check the path.") from error
