"""Programs by name instead of by file: ``ring``, ``nccl-ring:LL:8``, ``nccl``, ``all-pairs-get:32``.

Names of NCCL's algorithms may be followed by a protocol and a number of channels, all pairs by a number of
workgroups. ``nccl`` is the algorithm that NCCL chooses for a size, ``nccl:a100`` its choice on that node.
"""

from __future__ import annotations

from functools import lru_cache

from ...errors import ConfigError, did_you_mean
from ._all_pairs import ALL_PAIRS, all_pairs_program
from ._builtin import BUILTIN_PROGRAMS, builtin_program
from ._model import Program
from ._nccl import NCCL_ALGORITHMS, NCCL_PROTOCOLS, nccl_program
from ._nccl_choice import nccl_choice

__all__ = ["PROGRAM_NAMES", "check_program_size", "is_program_name", "named_program"]

_NCCL = "nccl"
_NODE = "h100"
_MADE = (_NCCL, *(f"nccl-{name}" for name in NCCL_ALGORITHMS), *(f"all-pairs-{name}" for name in ALL_PAIRS))
PROGRAM_NAMES = (*BUILTIN_PROGRAMS, *_MADE)
_SIMPLE_CHANNELS = 24
_KEPT = 256
_MOST_STEPS = 1 << 17
# To inspect and prove a program, measured with rings of 64 to 256 ranks.
_BYTES_PER_STEP, _S_PER_STEP = 28_000, 1.2e-3
_TREES = ("doubleBinaryTree", "nccl-tree")


def is_program_name(name: str) -> bool:
    """Return whether *name* is the name of a generated program, with or without its options.

    Names of the engine's own algorithms are not included: system files name these.
    """
    return name.split(":", maxsplit=1)[0] in _MADE


def check_program_size(name: str, ranks: int) -> None:
    """Raise `ConfigError` for a program of too many steps to inspect or prove, with an estimate."""
    base, *more = name.split(":")
    channels = 1
    if base.startswith(_NCCL):
        channels = _number(name, more[1]) if len(more) > 1 else _SIMPLE_CHANNELS
    steps = channels * ranks * (8 if base in _TREES else 2 * (ranks - 1))
    if steps > _MOST_STEPS:
        raise ConfigError(
            f"'{name}' among {ranks:,} ranks has about {steps:,} steps, which need about "
            f"{steps * _BYTES_PER_STEP / 1e9:,.0f} GB and {steps * _S_PER_STEP / 60:,.0f} minutes. "
            f"The limit is {_MOST_STEPS:,} steps; ask for fewer ranks."
        )


@lru_cache(_KEPT)
def named_program(name: str, collective: str, ranks: int, size_bytes: int = 1 << 20) -> Program:
    """Return the program called *name* for *collective* among *ranks* ranks.

    *size_bytes* is that of the larger buffer and matters only for ``nccl``. Raises `ConfigError` for an
    unrecognised name or a program that does not support the collective.
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
        protocol = more[0] if more else NCCL_PROTOCOLS[0]
        channels = _number(name, more[1]) if len(more) > 1 else _SIMPLE_CHANNELS
        return nccl_program(base.removeprefix("nccl-"), collective, ranks, protocol, channels)
    _at_most(name, more, 1, "a number of workgroups, such as all-pairs-get:32")
    workgroups = _number(name, more[0]) if more else 0
    return all_pairs_program(base.removeprefix("all-pairs-"), collective, ranks, workgroups)


def _at_most(name: str, more: list[str], most: int, words: str) -> None:
    if len(more) > most:
        raise ConfigError(f"The program '{name}' says too much: after its name comes {words}.")


def _number(name: str, text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 4096:
        raise ConfigError(f"The program '{name}': '{text}' must be a whole number from 1 to 4096.")
    return int(text)
