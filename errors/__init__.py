"""Define every error that Chakrascope raises on purpose, in one class hierarchy.

Each message names the file, rank or node with the problem, and ends with the next step. The command line
prints the message without a traceback and exits with the ``exit_code`` of the error's class.

::

    ChakrascopeError (1)
    ├── UsageError (2)              an invalid command or call
    ├── CaptureError (10)           the training script could not be launched or captured
    │   └── NothingCaptured (11)    it ran, but no training step was detected
    │       └── CommandFailed (*)   it failed before a step was captured; * its own exit code
    ├── TraceError (20)             a captured trace cannot be used
    │   └── TraceFormatError (21)   a trace file is truncated, of another type, or damaged
    ├── WorkloadError (30)          a Chakra workload cannot be used
    │   ├── WorkloadFormatError (31)  an .et or groups file is truncated, of another type, or damaged
    │   └── DependencyError (32)    a dependency names no node, or there is a dependency cycle
    ├── ConfigError (40)            a system, network, memory or group configuration is wrong
    ├── BackendError (50)           a simulation backend failed
    │   ├── BackendUnavailable (51) it is not installed or not found
    │   ├── BackendTimeout (52)     it did not finish in the time allowed
    │   └── SimulationStalled (53)  ranks wait for each other, and no event is left
    ├── StudyError (60)             a study folder is missing, damaged, or lacks a requested item
    └── Cancelled (130)             the user cancelled
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from typing import Any, ClassVar

__all__ = [
    "BackendError",
    "BackendTimeout",
    "BackendUnavailable",
    "Cancelled",
    "CaptureError",
    "ChakrascopeError",
    "CommandFailed",
    "ConfigError",
    "DependencyError",
    "NothingCaptured",
    "SimulationStalled",
    "StudyError",
    "TraceError",
    "TraceFormatError",
    "UsageError",
    "WorkloadError",
    "WorkloadFormatError",
    "did_you_mean",
    "misspelling",
]


_LONGEST_MESSAGE = 2_000
_MAX_SPELLED = 60
_MAX_NAMES = 40
_SIZED = re.compile(r"(?P<family>.+?)-(?P<size>\d{1,6}(x\d{1,6})*)")
_MEASURED = re.compile(r"(?P<family>.+?)-\d[\d.x]*[bmt]?")  # names such as llama3-8b
_ALIKE = 0.6  # least similarity of the words of two families of names
_MISSPELLED = 0.8  # least similarity of a wrong key, which otherwise may be a key of another tool
_CLOSE, _CLOSE_SHORT = 0.55, 0.75  # least similarity of names, and of names with at most two letters


class ChakrascopeError(Exception):
    """Any error with a cause the user can act on.

    A message may quote a damaged file, so a long message is shortened in the middle. The start of a message
    names the problem, and the end names the next step.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: object = "", *more: object) -> None:
        super().__init__(_shortened(str(message)), *more)

    @property
    def message(self) -> str:
        """Explanation of the error in one paragraph."""
        return str(self.args[0]) or type(self).__name__


class UsageError(ChakrascopeError):
    """An invalid command or call."""

    exit_code = 2


class CaptureError(ChakrascopeError):
    """The training script could not be launched or captured."""

    exit_code = 10


class NothingCaptured(CaptureError):
    """The training script ran, but no training step was detected."""

    exit_code = 11


class CommandFailed(NothingCaptured):
    """The training command failed before a step was captured; ``exit_code`` is the command's exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # set on the instance, as each command has a different exit code


class TraceError(ChakrascopeError):
    """A captured trace cannot be used."""

    exit_code = 20


class TraceFormatError(TraceError):
    """A trace file is truncated, of another type, or damaged."""

    exit_code = 21


class WorkloadError(ChakrascopeError):
    """A Chakra workload cannot be used."""

    exit_code = 30


class WorkloadFormatError(WorkloadError):
    """An ``.et`` or groups file is truncated, of another type, or damaged."""

    exit_code = 31


class DependencyError(WorkloadError):
    """A dependency names no node, or there is a dependency cycle."""

    exit_code = 32


class ConfigError(ChakrascopeError):
    """A system, network, memory or group configuration is wrong."""

    exit_code = 40


class BackendError(ChakrascopeError):
    """A simulation backend failed."""

    exit_code = 50


class BackendUnavailable(BackendError):
    """A simulation backend is not installed or not found."""

    exit_code = 51


class BackendTimeout(BackendError):
    """A simulation backend did not finish in the time allowed."""

    exit_code = 52


class SimulationStalled(BackendError):
    """Ranks wait for each other, and no event is left.

    ``waits`` lists the unfinished operations as mappings with the keys ``rank``, ``node_id``, ``node_name``,
    ``operation`` and ``waits_for``. ``deadlock`` lists the operations in a cycle of waits, if there is a
    cycle: each operation waits for the next operation, and the last operation waits for the first. The keys
    of its mappings are ``rank``, ``node_id``, ``node_name``, ``operation`` and ``begun``.
    """

    exit_code = 53

    def __init__(
        self,
        message: str,
        waits: list[dict[str, Any]] | None = None,
        deadlock: list[dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(message)
        self.waits = waits or []
        self.deadlock = deadlock or []


class StudyError(ChakrascopeError):
    """A study folder is missing, damaged, or lacks a requested item."""

    exit_code = 60


class Cancelled(ChakrascopeError):
    """The user cancelled."""

    exit_code = 130


def _shortened(text: str) -> str:
    end = _LONGEST_MESSAGE // 4
    if len(text) <= _LONGEST_MESSAGE:
        return text
    return f"{text[: _LONGEST_MESSAGE - end - 3]} … {text[-end:]}"


def _closest_size(wrong: str, names: Iterable[str]) -> str:
    """Return the name in *names* with the family of *wrong* and the closest size; "" without such a name."""
    wanted = _SIZED.fullmatch(wrong)
    if wanted is None:
        return ""
    family = [each for each in map(_SIZED.fullmatch, names) if each and each["family"] == wanted["family"]]

    def distance(each: re.Match[str]) -> tuple[float, int]:
        """Return the sort key by distance in size; of two equally distant sizes, the larger comes first."""
        return abs(math.log(_size(each) / _size(wanted))), -_size(each)

    return min(family, key=distance).string if family else ""


def _closest_spelling(wrong: str, names: Iterable[str], least: float = _CLOSE) -> str:
    by_lower = {name.lower(): name for name in reversed(list(names))}
    close = difflib.get_close_matches(wrong.lower(), list(by_lower), n=_MAX_NAMES, cutoff=least)
    return next((by_lower[name] for name in close if _are_related(wrong.lower(), name)), "")


def _are_related(one: str, other: str) -> bool:
    """Return whether similar names are related: common letters of a short name may be a coincidence.

    Names that end in sizes are related if their families are similar.
    """
    if min(len(one), len(other)) <= 2 and _similarity(one, other) < _CLOSE_SHORT:
        return False
    families = [named["family"] for named in map(_MEASURED.fullmatch, (one, other)) if named]
    if len(families) < 2:
        return True
    return _similarity(*families) >= _ALIKE


def _similarity(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()


def _size(name: re.Match[str]) -> int:
    return math.prod(max(1, int(number)) for number in name["size"].split("x"))


def did_you_mean(wrong: str, allowed: Iterable[str], listed_by: str = "") -> str:
    """Return the end of an error about the unknown name *wrong*: `` - did you mean 'X'? Allowed: A, B.``.

    With *listed_by*, the text names this command instead of the allowed names. For a name that ends in a
    size (``hgx-h100-64``), the suggestion is the name of the same family with the closest size.
    """
    names = sorted(allowed)
    if not names:
        return "; there is none."
    best = _closest_size(wrong, names) or _closest_spelling(wrong, names)
    hint = f" - did you mean '{best}'?" if best else "."
    if listed_by:
        return f"{hint} `{listed_by}` lists all."
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"{hint} Allowed: {', '.join(names[:_MAX_NAMES])}{more}."


def misspelling(keys: Iterable[str], known: Iterable[str]) -> str:
    """Return the end of an error about the first of *keys* that is an absent name of *known*, misspelled.

    Returns "" if there is none. Files of other tools may have keys beyond *known*, but the value of a
    misspelled key would silently be replaced by a default.
    """
    given, names = set(keys), set(known)
    absent = sorted(names - given)
    for key in sorted(given - names):
        if _closest_spelling(key[:_MAX_SPELLED], absent, _MISSPELLED):
            return f"there is no {key!r}{did_you_mean(key[:_MAX_SPELLED], absent)}"
    return ""
