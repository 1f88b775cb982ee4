"""The engine's collective algorithms as programs: the same messages between the same ranks.

The programs run on one group of ranks. All programs except the all-to-all work in place. Halving-doubling
orders its partners so that each exchange is contiguous. An all-reduce and an all-gather begin with the
nearest partner, and a reduce-scatter begins with the farthest partner.
"""

from __future__ import annotations

from collections.abc import Callable

from ...errors import ConfigError, did_you_mean
from ._model import Buffer, Program
from ._steps import StepWriter


def builtin_program(algorithm: str, collective: str, ranks: int) -> Program:
    """Return the engine's *algorithm* for *collective* among *ranks* ranks as a program.

    Raises `ConfigError` for algorithms that are not built in or do not support this number of ranks.
    """
    if algorithm not in BUILTIN_PROGRAMS:
        raise ConfigError(
            f"There is no built-in algorithm '{algorithm}'{did_you_mean(algorithm, BUILTIN_PROGRAMS)}"
        )
    makers = BUILTIN_PROGRAMS[algorithm]
    if collective not in makers:
        raise ConfigError(
            f"The built-in algorithm '{algorithm}' has no program for {collective}; it has one for "
            f"{', '.join(makers)}."
        )
    if ranks < 2 or (algorithm in {"halvingDoubling", "doubleBinaryTree"} and ranks & (ranks - 1)):
        wanted = "at least 2" if ranks < 2 else "a power of two of"
        raise ConfigError(f"'{algorithm}' needs {wanted} ranks, not {ranks}.")
    chunks = 2 if algorithm == "doubleBinaryTree" else ranks
    in_place = collective != "all-to-all"
    writer = StepWriter(ranks, in_place, collective)
    makers[collective](writer, ranks)
    return writer.program(f"{algorithm}_{collective}", collective, chunks)


def _ring_all_reduce(writer: StepWriter, count: int) -> None:
    for rank in range(count):
        peers = ((rank + 1) % count, (rank - 1) % count)
        names = ["s", *["rrs"] * (count - 2), "rrcs", *["rcs"] * (count - 2), "r"]
        for turn, name in enumerate(names):
            writer.step(rank, name, (rank - turn) % count, peers)


def _ring_reduce_scatter(writer: StepWriter, count: int) -> None:
    for rank in range(count):
        peers = ((rank + 1) % count, (rank - 1) % count)
        for turn, name in enumerate(["s", *["rrs"] * (count - 2), "rrc"]):
            writer.step(rank, name, (rank - 1 - turn) % count, peers)


def _ring_all_gather(writer: StepWriter, count: int) -> None:
    for rank in range(count):
        peers = ((rank + 1) % count, (rank - 1) % count)
        for turn, name in enumerate(["s", *["rcs"] * (count - 2), "r"]):
            writer.step(rank, name, (rank - turn) % count, peers)


def _others(rank: int, count: int) -> list[int]:
    """Return the other ranks, starting with *rank* + 1, so that ranks start with different peers."""
    return [(rank + distance) % count for distance in range(1, count)]


def _direct_reduce_scatter(writer: StepWriter, count: int) -> None:
    for rank in range(count):
        for peer in _others(rank, count):
            writer.step(rank, "s", peer, (peer, peer))
        for peer in _others(rank, count):
            writer.step(rank, "rrc", rank, (peer, peer))


def _direct_all_gather(writer: StepWriter, count: int) -> None:
    for rank in range(count):
        for peer in _others(rank, count):
            writer.step(rank, "s", rank, (peer, peer))
        for peer in _others(rank, count):
            writer.step(rank, "r", peer, (peer, peer))


def _direct_all_reduce(writer: StepWriter, count: int) -> None:
    _direct_reduce_scatter(writer, count)
    _direct_all_gather(writer, count)


def _direct_all_to_all(writer: StepWriter, count: int) -> None:
    for rank in range(count):
        for peer in _others(rank, count):
            writer.step(rank, "s", peer, (peer, peer))
        for peer in _others(rank, count):
            writer.step(rank, "r", peer, (peer, peer), target=(Buffer.OUTPUT, peer))
        writer.step(rank, "cpy", rank, target=(Buffer.OUTPUT, rank))


def _halving(writer: StepWriter, rank: int, distances: list[int], count: int) -> list[tuple[int, int, int]]:
    """Exchange halves with partners at *distances*; return (partner, first chunk, number of kept chunks)."""
    low, size = 0, count
    rounds = []
    for distance in distances:
        peer = rank ^ distance
        size //= 2
        kept = low + size if rank & distance else low
        sent = low if rank & distance else low + size
        writer.step(rank, "s", sent, (peer, peer), size)
        writer.step(rank, "rrc", kept, (peer, peer), size)
        low = kept
        rounds.append((peer, kept, size))
    return rounds


def _doubling_all_reduce(writer: StepWriter, count: int) -> None:
    distances = [1 << bit for bit in range(count.bit_length() - 1)]
    for rank in range(count):
        for peer, kept, size in reversed(_halving(writer, rank, distances, count)):
            other = kept - size if kept % (2 * size) else kept + size
            writer.step(rank, "s", kept, (peer, peer), size)
            writer.step(rank, "r", other, (peer, peer), size)


def _halving_reduce_scatter(writer: StepWriter, count: int) -> None:
    distances = [1 << bit for bit in reversed(range(count.bit_length() - 1))]
    for rank in range(count):
        _halving(writer, rank, distances, count)


def _doubling_all_gather(writer: StepWriter, count: int) -> None:
    for rank in range(count):
        size = 1
        while size < count:
            peer = rank ^ size
            writer.step(rank, "s", rank // size * size, (peer, peer), size)
            writer.step(rank, "r", peer // size * size, (peer, peer), size)
            size *= 2


def _trees_all_reduce(writer: StepWriter, count: int) -> None:
    for tree in range(2):
        for rank in range(count):
            _tree(writer, rank, count, tree)


def _tree(writer: StepWriter, rank: int, count: int, tree: int) -> None:
    """Add the steps of a rank in one of two trees; the leaves of one tree are inner nodes of the other."""
    shift = tree  # the second tree numbers the ranks from 1 on
    number = rank + shift
    top = count // 2

    def at(place: int) -> int:
        return place - shift

    def step(name: str, send: int, receive: int) -> None:
        writer.step(rank, name, tree, (send, receive), channel=tree)

    if number in {0, count}:
        step("rrc", -1, at(top))
        step("s", at(top), -1)
        return
    bit = number & -number
    root = count - 1 if shift else 0
    parent = root if number == top else at((number & ~bit) | (bit << 1))
    if bit == 1:
        step("s", parent, -1)
        step("r", -1, parent)
        return
    left, right = at(number - bit // 2), at(number + bit // 2)
    step("rrc", -1, left)
    step("rrs", parent, right)
    step("rcs", left, parent)
    step("s", right, -1)


BUILTIN_PROGRAMS: dict[str, dict[str, Callable[[StepWriter, int], None]]] = {
    "ring": {
        "all-reduce": _ring_all_reduce,
        "reduce-scatter": _ring_reduce_scatter,
        "all-gather": _ring_all_gather,
    },
    "direct": {
        "all-reduce": _direct_all_reduce,
        "reduce-scatter": _direct_reduce_scatter,
        "all-gather": _direct_all_gather,
        "all-to-all": _direct_all_to_all,
    },
    "halvingDoubling": {
        "all-reduce": _doubling_all_reduce,
        "reduce-scatter": _halving_reduce_scatter,
        "all-gather": _doubling_all_gather,
    },
    "doubleBinaryTree": {"all-reduce": _trees_all_reduce},
}
