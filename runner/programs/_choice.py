"""Generate programs by name, and choose a program for each collective.

The choice of NCCL's algorithm, protocol and channels by size follows the source of NCCL's tuner,
which estimates latency and bandwidth of each combination and takes the fastest. The constants are
those of NCCL 2.30 (commit 5067397, src/graph/tuning.cc, src/enqueue.cc), for one node whose GPUs
are linked by NVLink and NVSwitch. The estimates only determine the choice; the chosen program is
then simulated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ...converter import CollectiveType
from ...errors import ConfigError, did_you_mean
from ...support import bytes_text
from ._builtin import ALL_PAIRS, BUILTIN_PROGRAMS, all_pairs_program, builtin_program
from ._model import PROTOCOLS, Program
from ._nccl import NCCL_ALGORITHMS, nccl_program
from ._proof import prove
from ._sizes import divisor_of, program_bytes
from .readers import parse_program, read_bytes

# Latency in ns before the first step, and of each step, by algorithm and protocol.
_BASE_NS = {
    "tree": {"LL": 6800, "LL128": 14000, "Simple": 8400},
    "ring": {"LL": 6600, "LL128": 14000, "Simple": 8400},
    "nvls": {"Simple": 0},
}
_STEP_NS = {
    "tree": {"LL": 600, "LL128": 1250, "Simple": 4000},
    "ring": {"LL": 600, "LL128": 1900, "Simple": 3400},
    "nvls": {"Simple": 25000},
}
# The fraction of its bandwidth that a tree attains at 64 bytes, 128 bytes and so on.
_TREE_SHARE = {
    "LL": "1 1 1 1 .9 .8 .7 .7 .7 .7 .6 .5 .4 .4 .5 .6 .7 .8 .9 1 1 1 1",
    "LL128": "1 1 1 1 1 .9 .8 .8 .8 .7 .6 .6 .6 .6 .6 .6 .8 .9 .9 .9 .9 1 1",
    "Simple": ".9 .9 .9 .9 .9 .9 .9 .8 .7 .6 .6 .5 .5 .5 .5 .6 .7 .8 .7 .7 .8 .9 .9",
}
_THREADS = {"LL": 512, "LL128": 640, "Simple": 512}
# NCCL uses fewer channels below this number of bytes per thread (per thread and rank for a ring with LL).
_THREAD_BYTES = {"LL": 8, "LL128": 8, "Simple": 64}
_NVLS_SHARE = 0.85
_NVLS_UNITS = ((64, 65536), (8, 32768), (2, 16384))


@dataclass(frozen=True)
class _Node:
    """A node as NCCL detects it: *channels* of *channel_bytes_per_ns* each, and bandwidth limits.

    *nvls* is the number and bandwidth of channels in NCCL's graph for the switch, of which
    *nvls_channels* are used (0: the switch cannot reduce).
    """

    channels: int
    channel_bytes_per_ns: float
    ll_bytes_per_ns: float
    ll128_per_channel: float
    tree_per_channel: float
    nvls: tuple[int, float] = (0, 0.0)
    nvls_channels: int = 0


_NODES = {
    "h100": _Node(24, 15.0, 141.0, 36.7, 38.7, (8, 40.0), 16),
    "a100": _Node(24, 10.0, 87.7, 20.0, 24.0),
}


@dataclass(frozen=True)
class NcclChoice:
    """A combination of algorithm, protocol and channels, with the time that NCCL's tuner estimates."""

    algorithm: str
    collective: str
    ranks: int
    protocol: str
    channels: int
    unit_bytes: int
    expected_ns: float

    @property
    def program(self) -> Program:
        """The program for this choice."""
        return nccl_program(
            self.algorithm,
            self.collective,
            self.ranks,
            self.protocol,
            self.channels,
            unit_bytes=self.unit_bytes,
        )


def nccl_choice(  # noqa: PLR0917 - what is asked, and what is allowed
    collective: str,
    ranks: int,
    size_bytes: int,
    node: str = "h100",
    algorithms: Sequence[str] = tuple(NCCL_ALGORITHMS),
    protocols: Sequence[str] = PROTOCOLS,
) -> NcclChoice:
    """Return NCCL's choice among *ranks* ranks of one *node* for a larger buffer of *size_bytes*.

    *algorithms* and *protocols* restrict the choice like ``NCCL_ALGO`` and ``NCCL_PROTO``. Raises
    `ConfigError` for an unknown node, and if no allowed combination supports the collective.
    """
    if node not in _NODES:
        raise ConfigError(f"NCCL's choice is unknown for a node of '{node}'{did_you_mean(node, _NODES)}")
    for given, known in ((algorithms, NCCL_ALGORITHMS), (protocols, PROTOCOLS)):
        for name in given:
            if name not in known:
                raise ConfigError(f"NCCL has no '{name}'{did_you_mean(name, known)}")
    estimates = [
        _estimate(algorithm, collective, ranks, protocol, size_bytes, _NODES[node])
        for algorithm in algorithms
        for protocol in protocols
        if collective in NCCL_ALGORITHMS[algorithm]
        and protocol in _BASE_NS[algorithm]
        and (algorithm != "nvls" or _NODES[node].nvls_channels)
    ]
    if not estimates or size_bytes <= 0 or ranks < 2:
        raise ConfigError(
            f"NCCL has no program for {collective} of {bytes_text(size_bytes)} among {ranks} ranks with "
            f"{', '.join(algorithms)} and {', '.join(protocols)}."
        )
    return min(estimates, key=lambda choice: choice.expected_ns)


def _estimate(  # noqa: PLR0917 - what the tuner looks at
    algorithm: str, collective: str, ranks: int, protocol: str, size_bytes: int, node: _Node
) -> NcclChoice:
    steps = 2 * (ranks - 1) if collective == "all-reduce" else ranks - 1
    bandwidth = _bandwidth(algorithm, protocol, ranks, node) * (0.5 if algorithm == "tree" else ranks / steps)
    if algorithm == "tree":
        shares = _TREE_SHARE[protocol].split()
        place = (size_bytes >> 6).bit_length() - 1
        bandwidth *= float(shares[place]) if 0 <= place < len(shares) else 1.0
        steps = 2 * (ranks - 1)
    base, step = _BASE_NS[algorithm][protocol], _STEP_NS[algorithm][protocol]
    latency = step if algorithm == "nvls" else base + steps * step
    channels = _channels(algorithm, protocol, ranks, size_bytes, node)
    unit = _nvls_unit(size_bytes, channels * ranks)
    return NcclChoice(
        algorithm, collective, ranks, protocol, channels, unit, latency + size_bytes / bandwidth
    )


def _bandwidth(algorithm: str, protocol: str, ranks: int, node: _Node) -> float:
    """Return the bus bandwidth that NCCL's tuner assumes, in bytes per ns."""
    if algorithm == "nvls":
        channels, each = node.nvls
        return 2 * channels * each * _NVLS_SHARE * (channels - 1) / channels
    whole = node.channels * node.channel_bytes_per_ns
    if algorithm == "ring":
        return {
            "LL": min(node.ll_bytes_per_ns, whole * 0.5),
            "LL128": min(whole * 0.92, node.channels * node.ll128_per_channel),
            "Simple": whole,
        }[protocol]
    tree = min(whole * 0.92, node.channels * node.tree_per_channel)
    return {
        "LL": min(tree / 3.8, node.ll_bytes_per_ns),
        "LL128": min(tree * 7 / 9, node.channels * node.ll128_per_channel),
        "Simple": tree,
    }[protocol]


def _channels(algorithm: str, protocol: str, ranks: int, size_bytes: int, node: _Node) -> int:
    """Return the number of channels that NCCL uses for *size_bytes*."""
    if algorithm == "nvls":
        return node.nvls_channels
    each = _THREADS[protocol] * _THREAD_BYTES[protocol]
    if algorithm == "ring" and protocol == "LL":
        each *= ranks
    return min(node.channels, max(1, size_bytes // each))


def _nvls_unit(size_bytes: int, parts: int) -> int:
    """Return how many bytes of a part NVLS processes at a time; small parts use a smaller unit."""
    unit = 131_072
    for times, smaller in _NVLS_UNITS:
        if size_bytes < times * parts * unit:
            unit = min(unit, smaller)
    return unit


_NCCL = "nccl"
_NODE = "h100"
_MADE = (_NCCL, *(f"nccl-{name}" for name in NCCL_ALGORITHMS), *(f"all-pairs-{name}" for name in ALL_PAIRS))
PROGRAM_NAMES = (*BUILTIN_PROGRAMS, *_MADE)
_SIMPLE_CHANNELS = 24
_KEPT_PROGRAMS = 256
_MAX_STEPS = 1 << 17
# Memory and time per step to inspect and prove a program, measured with rings of 64 to 256 ranks.
_BYTES_PER_STEP, _S_PER_STEP = 28_000, 1.2e-3
_TREES = ("doubleBinaryTree", "nccl-tree")


def is_program_name(name: str) -> bool:
    """Return whether *name* is a generated program, with or without options.

    Built-in algorithms of the engine do not count, because other keys of system files select them.
    """
    return name.split(":", maxsplit=1)[0] in _MADE


def check_program_size(name: str, ranks: int) -> None:
    """Raise `ConfigError`, with an estimate of the cost, if a program has too many steps to prove."""
    base, *more = name.split(":")
    channels = 1
    if base.startswith(_NCCL):
        channels = _number(name, more[1]) if len(more) > 1 else _SIMPLE_CHANNELS
    steps = channels * ranks * (8 if base in _TREES else 2 * (ranks - 1))
    if steps > _MAX_STEPS:
        raise ConfigError(
            f"'{name}' among {ranks:,} ranks has about {steps:,} steps, which need about "
            f"{steps * _BYTES_PER_STEP / 1e9:,.0f} GB and {steps * _S_PER_STEP / 60:,.0f} minutes. "
            f"The limit is {_MAX_STEPS:,} steps; use fewer ranks."
        )


@lru_cache(_KEPT_PROGRAMS)
def named_program(name: str, collective: str, ranks: int, size_bytes: int = 1 << 20) -> Program:
    """Return the program called *name* for *collective* among *ranks* ranks.

    Examples of names are ``ring``, ``nccl-ring:LL:8``, ``nccl`` and ``all-pairs-get:32``. NCCL's
    algorithms may be followed by a protocol and a number of channels, all-pairs programs by a
    number of workgroups. ``nccl`` is the algorithm that NCCL chooses for the size, and
    ``nccl:a100`` its choice on an A100 node.

    *size_bytes* is the size of the larger buffer; only ``nccl`` uses it. Raises `ConfigError` for
    an unknown name, or if the program does not support the collective.
    """
    base, *more = name.split(":")
    if base in BUILTIN_PROGRAMS and not more:
        return builtin_program(base, collective, ranks)
    if base not in _MADE:
        raise ConfigError(f"There is no program '{name}'{did_you_mean(base, PROGRAM_NAMES)}")
    if base == _NCCL:
        _at_most(name, more, 1, "a kind of node, such as nccl:a100")
        return nccl_choice(collective, ranks, size_bytes, *(more or [_NODE])).program
    if base.startswith("nccl-"):
        _at_most(name, more, 2, "a protocol and a number of channels, such as nccl-ring:LL:8")
        protocol = more[0] if more else PROTOCOLS[0]
        channels = _number(name, more[1]) if len(more) > 1 else _SIMPLE_CHANNELS
        return nccl_program(base.removeprefix("nccl-"), collective, ranks, protocol, channels)
    _at_most(name, more, 1, "a number of workgroups, such as all-pairs-get:32")
    workgroups = _number(name, more[0]) if more else 0
    return all_pairs_program(base.removeprefix("all-pairs-"), collective, ranks, workgroups)


def _at_most(name: str, more: list[str], most: int, words: str) -> None:
    if len(more) > most:
        raise ConfigError(f"The program '{name}' has too many parts: after its name comes {words}.")


def _number(name: str, text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 4096:
        raise ConfigError(f"The program '{name}': '{text}' must be a whole number from 1 to 4096.")
    return int(text)


_KEPT = 64


@dataclass(frozen=True, order=True)
class Demand:
    """A collective that needs a program: its kind, number of ranks, and bytes as ASTRA-sim counts them."""

    collective: str
    ranks: int
    size_bytes: int

    @classmethod
    def of(cls, comm_type: int, ranks: int, size_bytes: int) -> Demand | None:
        """Return the demand of a collective type of Chakra's schema, or None if programs do not cover it."""
        kind = CollectiveType.of(comm_type)
        return cls(kind.key, ranks, size_bytes) if kind is not None and kind.ring_passes else None


@dataclass(frozen=True)
class Choice:
    """The programs by demand, and notes on demands that got none."""

    programs: Mapping[Demand, Program]
    remarks: tuple[str, ...] = ()


@lru_cache(_KEPT)
def _proved(content: bytes, source: str) -> Program:
    program = parse_program(content, source)
    proof = prove(program)
    if not proof.holds:
        raise ConfigError(
            f"{source}: the program is incorrect, so it is not simulated: {proof.problems[0].message} "
            f"'chakrascope algorithm prove {source}' shows the steps."
        )
    return program


def choose_programs(files: Mapping[str, Sequence[Path | str | None]], demands: Iterable[Demand]) -> Choice:
    """Return the program for each of *demands*; None means the algorithm in the system file.

    *files* maps a collective to its candidates. A string such as ``nccl`` names a program that is
    generated for each demand. Raises `ConfigError` for a size that no candidate supports, and for
    candidates that no collective can use.
    """
    programs: dict[Demand, Program] = {}
    remarks: dict[str, None] = {}
    wanted = sorted({demand for demand in demands if demand.size_bytes > 0})
    for collective, paths in files.items():
        candidates = [_of_kind(path, collective) if isinstance(path, Path) else path for path in paths]
        asked = [demand for demand in wanted if demand.collective == collective]
        _check_ranks(collective, candidates, asked)
        for demand in asked:
            _choose(demand, candidates, programs, remarks)
    return Choice(programs, tuple(remarks))


def _check_ranks(
    collective: str, candidates: Sequence[Program | str | None], demands: Sequence[Demand]
) -> None:
    """Raise `ConfigError` if none of the collectives has a number of ranks that some program supports."""
    if any(isinstance(program, str) for program in candidates):
        return
    programs = [program for program in candidates if isinstance(program, Program)]
    have = {program.num_ranks for program in programs}
    asked = {demand.ranks for demand in demands}
    if programs and asked and not have & asked:
        raise ConfigError(
            f"No {collective} of the workload runs {', '.join(program.source for program in programs)}: "
            f"the collectives have {', '.join(map(str, sorted(asked)))} ranks, and the programs are for "
            f"{', '.join(map(str, sorted(have)))}. Give programs for this number of ranks."
        )


def _of_kind(path: Path, collective: str) -> Program:
    program = _proved(read_bytes(path), str(path))
    if program.collective not in {collective, "custom"}:
        raise ConfigError(f"{path} is a program for {program.collective}, not for {collective}.")
    return program


def _choose(
    demand: Demand,
    candidates: Sequence[Program | str | None],
    programs: dict[Demand, Program],
    remarks: dict[str, None],
) -> None:
    same = [
        program
        for program in candidates
        if not isinstance(program, Program) or program.num_ranks == demand.ranks
    ]
    words = f"{demand.collective} among {demand.ranks} ranks"
    if not any(program is not None for program in same):
        sizes = sorted({program.num_ranks for program in candidates if isinstance(program, Program)})
        if sizes:
            remarks[
                f"Each {words} ran the system's own algorithm: the programs given are for "
                f"{', '.join(map(str, sizes))} ranks."
            ] = None
        return
    reasons = []
    for candidate in same:
        program = candidate
        if isinstance(program, str):
            try:
                program = named_program(program, demand.collective, demand.ranks, _total(demand))
            except ConfigError as error:
                reasons.append(error.message.rstrip("."))
                continue
        reason = None if program is None else misfit(program, demand)
        if reason is None:
            if program is not None:
                programs[demand] = program
                remarks[f"The {words} ran programs: {program.name} ({Path(program.source).name})."] = None
                unit = program.chunks * program.alignment_bytes
                if isinstance(candidate, Program) and _total(demand) % unit:
                    remarks[
                        f"MSCCL++'s executor runs {Path(program.source).name} only for multiples of {unit} "
                        f"bytes; here, chunks of other sizes differ by {program.alignment_bytes} bytes."
                    ] = None
            return
        reasons.append(reason)
    raise ConfigError(
        f"No program fits the {words} of {bytes_text(demand.size_bytes)} ({demand.size_bytes} bytes): "
        f"{'; '.join(reasons)}. Add a program for this size, or 'builtin' as the last one."
    )


def _total(demand: Demand) -> int:
    return program_bytes(demand.collective, demand.size_bytes, demand.ranks)


def misfit(program: Program, demand: Demand) -> str | None:
    """Return the reason why *program* cannot run the collective *demand*, or None if it can."""
    if program.num_ranks != demand.ranks:
        return f"{Path(program.source).name} is for {program.num_ranks} ranks"
    total, name = _total(demand), Path(program.source).name
    if total < program.least_bytes:
        return f"{name} is for {bytes_text(program.least_bytes)} and more"
    if program.most_bytes is not None and total > program.most_bytes:
        return f"{name} is for {bytes_text(program.most_bytes)} at most"
    parts = divisor_of(program)
    return f"{name} needs a multiple of {parts} bytes" if total % parts else None
