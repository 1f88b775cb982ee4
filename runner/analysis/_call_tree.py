"""The functions of a script, and the functions that only they call."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...converter.building import script_callers
from ._labels import is_forward

_MOST = 500  # functions whose callees are collected; a script with more is generated


def only_callees(metadata: Mapping[str, Any], function: str) -> set[str]:
    """Return *function* with the functions that only it calls, directly or through each other."""
    return _only_callees(script_callers(metadata), function)


def call_trees(
    metadata: Mapping[str, Any], functions: Collection[str], training: Collection[str]
) -> dict[str, set[str]]:
    """Return for *functions* and their callers the functions that only they call, with themselves.

    The *training* functions, the forward passes of modules, and their callers also run the step, so these
    have no tree. Without a known training function, none has.
    """
    callers = script_callers(metadata) if training else {}
    running = _with_callers(callers, {"", *training, *filter(is_forward, callers)})
    names = _with_callers(callers, callers.keys() & functions) - running
    return {name: _only_callees(callers, name) for name in names} if len(names) <= _MOST else {}


def _with_callers(callers: Mapping[str, Collection[str]], functions: Collection[str]) -> set[str]:
    found = set(functions)
    while more := {caller for name in found for caller in callers.get(name, ())} - found:
        found |= more
    return found


def _only_callees(callers: Mapping[str, Collection[str]], function: str) -> set[str]:
    found = {function}
    while more := {name for name, of in callers.items() if found.issuperset(of)} - found:
        found |= more
    return found
