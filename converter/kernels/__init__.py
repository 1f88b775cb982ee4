"""Recognise communication kernels by patterns of their names, which come from data files."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from ...errors import ConfigError
from ...support import KERNEL_PATTERNS, count_text, duration_text, open_file
from ..chakra import Graph, NodeType, TextColumn, Workload

_SHIPPED = Path(__file__).with_name("patterns.yml")
_MAX_BYTES = 1 << 20
_MAX_PATTERNS = 10_000
_LONGEST_PATTERN = 1_000
_LONGEST_NAME = 2_000
_OPERATION = re.compile(r"[a-z][a-z0-9_]*")
_TEMPLATE = re.compile(r"<[^<>]*>")
_ANONYMOUS = "(anonymous namespace)"


class KernelPattern(msgspec.Struct, frozen=True):
    """A kind of kernel: its *library*, *operation* (``all_reduce``, ``dispatch``, ...) and *kind*.

    *name* and *within* are regular expressions for the kernel's function and namespaces. *source* and
    *version* identify the origin of the kernel's name.
    """

    name: re.Pattern[str]
    within: re.Pattern[str] | None
    library: str
    operation: str
    kind: str
    source: str
    version: str

    def matches(self, namespaces: str, function: str) -> bool:
        """Return whether this pattern matches *function* in *namespaces*."""
        if self.name.fullmatch(function) is None:
            return False
        return self.within is None or self.within.search(namespaces) is not None


class _Kernel(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    operation: str
    within: str = ""
    kind: Literal["communication", "compute"] = "communication"


class _Library(msgspec.Struct, forbid_unknown_fields=True):
    library: str
    kernels: list[_Kernel]
    source: str = ""
    version: str | float = ""
    within: str = ""


def kernel_pattern(kernel: str) -> KernelPattern | None:
    """Return the pattern of the kernel with the full name *kernel*, or None if no pattern matches.

    Raises `ConfigError` if the user's file of patterns cannot be read.
    """
    namespaces, function = function_name(kernel)
    return _pattern_of(namespaces, function, os.environ.get(KERNEL_PATTERNS, ""))


@lru_cache(maxsize=1 << 14)
def _pattern_of(namespaces: str, function: str, own_file: str) -> KernelPattern | None:
    patterns = _patterns(own_file)
    return next((pattern for pattern in patterns if pattern.matches(namespaces, function)), None)


@lru_cache(maxsize=8)
def _patterns(own_file: str) -> tuple[KernelPattern, ...]:
    own = read_patterns(Path(own_file)) if own_file else ()
    return (*own, *read_patterns(_SHIPPED))


def function_name(kernel: str) -> tuple[str, str]:
    """Return the namespaces and the function of *kernel*, without return type, template and parameters."""
    text = kernel[:_LONGEST_NAME].replace(_ANONYMOUS, "anonymous")
    shorter = _TEMPLATE.sub("", text)
    while shorter != text:
        text, shorter = shorter, _TEMPLATE.sub("", shorter)
    whole = re.split(r"[<(\[]", text, maxsplit=1)[0].strip().removesuffix(".kd")
    namespaces, _, function = whole.rpartition(" ")[2].rpartition("::")
    return namespaces, function


def read_patterns(path: Path) -> tuple[KernelPattern, ...]:
    """Read a file of kernel patterns; raises `ConfigError` with the error and its position in the file."""
    import yaml  # noqa: PLC0415 - analyses of finished runs need no patterns

    from ...support.documents import parse_yaml  # noqa: PLC0415

    try:
        with open_file(path) as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ConfigError(
                f"The file of kernel patterns {path} is larger than 1 MiB. Next: keep one entry per library."
            )
        content = data.decode("utf-8-sig")
        if path == _SHIPPED:  # a strict parser would be slower
            libraries = msgspec.yaml.decode(content, type=list[_Library])
        else:
            found = parse_yaml(content, f"The file of kernel patterns {path}")
            libraries = msgspec.convert(found, list[_Library])
    except OSError as error:
        raise ConfigError(
            f"The file of kernel patterns {path} cannot be read ({error.strerror}). Next: check the path in "
            f"{KERNEL_PATTERNS}."
        ) from error
    except (msgspec.MsgspecError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"The kernel patterns {path} are invalid ({_first_line(error)}); docs/how-to/convert.md has "
            "an example."
        ) from error
    if sum(len(library.kernels) for library in libraries) > _MAX_PATTERNS:
        raise ConfigError(f"The file of kernel patterns {path} has more than {_MAX_PATTERNS:,} kernels.")
    return tuple(_checked(path, library, kernel) for library in libraries for kernel in library.kernels)


def _checked(path: Path, library: _Library, kernel: _Kernel) -> KernelPattern:
    if _OPERATION.fullmatch(kernel.operation) is None:
        raise ConfigError(
            f"The kernel patterns {path}, {library.library}: the operation '{kernel.operation}' must be "
            "lower-case letters, digits and underscores, such as all_reduce."
        )
    within = kernel.within or library.within
    return KernelPattern(
        _compiled(path, library.library, kernel.name),
        _compiled(path, library.library, within) if within else None,
        library.library,
        kernel.operation,
        kernel.kind,
        library.source,
        str(library.version),
    )


def _compiled(path: Path, library: str, text: str) -> re.Pattern[str]:
    where = f"The kernel patterns {path}, {library}"
    if not 0 < len(text) <= _LONGEST_PATTERN:
        raise ConfigError(
            f"{where}: a pattern has {len(text):,} characters; 1 to {_LONGEST_PATTERN:,} are allowed."
        )
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(f"{where}: '{text}' is not a regular expression ({error}). Correct it.") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


_MAX_NAMED = 3


class UnsizedCommunication(msgspec.Struct, frozen=True):
    """Communication kernels of unknown size on the *rank* on which they take longest.

    *kernels* is the number of kernels, and *duration_ns* is their total time. *by_operation* contains both
    figures by library and operation, longest first.
    """

    rank: int
    kernels: int
    duration_ns: int
    by_operation: dict[str, int]

    @property
    def text(self) -> str:
        """The consequence of communication of unknown size for a result, as a sentence."""
        named = list(self.by_operation.items())
        parts = [f"{name} {duration_text(took)}" for name, took in named[:_MAX_NAMED]]
        parts += ["others"] * (len(named) > _MAX_NAMED)
        took, kernels = duration_text(self.duration_ns), count_text(self.kernels, "kernel")
        return (
            f"Communication with unknown size or peers keeps its measured time on every network: {took} in "
            f"{kernels} on rank {self.rank} ({', '.join(parts)})."
        )


def unsized_communication(workload: Workload) -> UnsizedCommunication | None:
    """Return the communication of unknown size on the rank with most of it, or None."""
    best: tuple[int, int, np.ndarray] | None = None
    for program, graph in enumerate(workload.graphs):
        rows = _rows(graph)
        took = int(np.asarray(graph.column_rows("duration_ns", rows)).sum()) if len(rows) else 0
        if len(rows) and (best is None or took > best[0]):
            best = took, program, rows
    if best is None:
        return None
    took, program, rows = best
    rank = int(np.flatnonzero(np.asarray(workload.program_of_rank) == program)[0])
    return UnsizedCommunication(rank, len(rows), took, _by_operation(workload.graphs[program], rows))


def _rows(graph: Graph) -> np.ndarray:
    """Return the nodes with type computation and kind communication, which have no known size."""
    kinds = graph.node_columns["kind"]
    if not isinstance(kinds, TextColumn) or "communication" not in kinds.texts:
        return np.empty(0, np.int64)
    own = kinds.numbers == kinds.texts.index("communication")
    return np.flatnonzero(own & (np.asarray(graph.node_columns["type"]) == NodeType.COMP))


def _by_operation(graph: Graph, rows: np.ndarray) -> dict[str, int]:
    names, durations = graph.column_rows("name", rows), graph.column_rows("duration_ns", rows)
    if not isinstance(names, TextColumn):
        raise TypeError("names are texts")
    sums = np.bincount(names.numbers, np.asarray(durations), minlength=len(names.texts))
    found: dict[str, int] = {}
    for number in np.unique(names.numbers).tolist():
        name = _operation(names.texts[number])
        found[name] = found.get(name, 0) + round(sums[number])
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _operation(kernel: str) -> str:
    """Return the library and operation of *kernel*, such as ``DeepEP dispatch``, or its function."""
    pattern = kernel_pattern(kernel)
    return f"{pattern.library} {pattern.operation}" if pattern else function_name(kernel)[1] or kernel
