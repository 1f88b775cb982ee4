"""The callers of a script's functions, from sampled stacks, as a workload states them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from ...tracer import Evidence
from ._places import function_at

CALLERS = "callers"


def callers_of(evidence: Iterable[Evidence]) -> dict[str, Any]:
    """Return the metadata: the callers of each function of the script, "" for a function at the bottom.

    Functions are written without a line, as in ``load (data.py)``. Libraries between two functions of the
    script do not count. All threads do, because a function that another thread calls has several callers.
    """
    callers: defaultdict[str, set[str]] = defaultdict(set)
    for own in evidence:
        for stack in set(own.samples.stack):
            frames = [frame for frame in reversed(own.frames_of(stack)) if frame.origin == "script"]
            functions = [f"{function_at(frame.place)})" for frame in frames]
            for caller, function in pairwise(["", *functions]):
                if caller != function:
                    callers[function].add(caller)
    return {CALLERS: {function: sorted(names) for function, names in sorted(callers.items())}}


def script_callers(metadata: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the known callers of each function of the script from the *metadata* of a workload."""
    stated = metadata.get(CALLERS)
    if not isinstance(stated, Mapping):
        return {}
    return {
        str(function): set(names)
        for function, names in stated.items()
        if isinstance(names, list) and names and all(isinstance(name, str) for name in names)
    }
