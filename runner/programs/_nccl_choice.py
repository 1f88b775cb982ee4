"""NCCL's choice of algorithm, protocol and channels by size, from the source of NCCL's tuner.

The tuner estimates the latency and bandwidth of each combination and selects the fastest combination. The
tuner's figures come from NCCL 2.30 (commit 5067397, src/graph/tuning.cc, src/enqueue.cc), for one node with
GPUs linked by NVLink and NVSwitch. The estimates determine only the choice. The time of the chosen program is
simulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import ConfigError, did_you_mean
from ...support import bytes_text
from ._model import Program
from ._nccl import NCCL_ALGORITHMS, NCCL_PROTOCOLS, nccl_program

# The latency in ns before the first step, and the latency of each step, by algorithm and protocol.
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
# The share of its bandwidth that a tree attains for 64 bytes, 128 bytes and so on.
_TREE_SHARE = {
    "LL": "1 1 1 1 .9 .8 .7 .7 .7 .7 .6 .5 .4 .4 .5 .6 .7 .8 .9 1 1 1 1",
    "LL128": "1 1 1 1 1 .9 .8 .8 .8 .7 .6 .6 .6 .6 .6 .6 .8 .9 .9 .9 .9 1 1",
    "Simple": ".9 .9 .9 .9 .9 .9 .9 .8 .7 .6 .6 .5 .5 .5 .5 .6 .7 .8 .7 .7 .8 .9 .9",
}
_THREADS = {"LL": 512, "LL128": 640, "Simple": 512}
# Below this number of bytes per thread, NCCL uses fewer channels. For a ring with LL, the number is per
# thread and rank.
_THREAD_BYTES = {"LL": 8, "LL128": 8, "Simple": 64}
_NVLS_SHARE = 0.85
_NVLS_UNITS = ((64, 65536), (8, 32768), (2, 16384))


@dataclass(frozen=True)
class _Node:
    """A node as NCCL detects it: *channels* of *channel_bytes_per_ns* each, and bandwidth limits.

    *nvls* is the number and bandwidth of the channels in NCCL's graph for the switch. *nvls_channels* is the
    number of channels in use (0: the switch cannot reduce).
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
    """A combination of algorithm, protocol and channels, with the time estimate of NCCL's tuner."""

    algorithm: str
    collective: str
    ranks: int
    protocol: str
    channels: int
    unit_bytes: int
    expected_ns: float

    @property
    def program(self) -> Program:
        """The program with the chosen algorithm, protocol and channels."""
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
    protocols: Sequence[str] = NCCL_PROTOCOLS,
) -> NcclChoice:
    """Return NCCL's choice for *size_bytes* of the larger buffer among *ranks* ranks of one *node*.

    *algorithms* and *protocols* restrict the choice, like ``NCCL_ALGO`` and ``NCCL_PROTO``. Raises
    `ConfigError` for an unrecognised node, and if no allowed combination supports the collective.
    """
    if node not in _NODES:
        raise ConfigError(f"NCCL's choice is unknown for a node of '{node}'{did_you_mean(node, _NODES)}")
    for given, known in ((algorithms, NCCL_ALGORITHMS), (protocols, NCCL_PROTOCOLS)):
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
            f"NCCL has nothing for {collective} of {bytes_text(size_bytes)} among {ranks} ranks with "
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
    """Return the bus bandwidth in bytes per ns that NCCL's tuner assumes."""
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
    """Return the bytes of a part that NVLS processes at a time, which are fewer for small parts."""
    unit = 131_072
    for times, smaller in _NVLS_UNITS:
        if size_bytes < times * parts * unit:
            unit = min(unit, smaller)
    return unit
