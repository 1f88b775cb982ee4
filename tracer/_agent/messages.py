"""Record the process group of every send and receive, which gloo's traces do not contain."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from typing import Any

METHODS = ("send", "recv", "recv_anysource")


class MessageGroups:
    """While enabled, collects *flights*, the records of messages in the format of torch's flight recorder."""

    def __init__(self) -> None:
        self.flights: list[dict[str, Any]] = []
        self._originals: dict[str, Any] = {}

    def enable(self) -> None:
        """Wrap the methods that every ``isend``, ``batch_isend_irecv`` and similar call finally uses."""
        group_class = _group_class()
        for name in METHODS:
            if name in vars(group_class):
                self._originals[name] = vars(group_class)[name]
                setattr(group_class, name, self._noting(getattr(group_class, name)))

    def disable(self) -> None:
        """Restore the wrapped methods of process groups."""
        for name, method in self._originals.items():
            setattr(_group_class(), name, method)
        self._originals = {}

    def _noting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def noting(group: Any, *args: Any, **kwargs: Any) -> Any:
            started_ns = time.time_ns()
            try:
                return method(group, *args, **kwargs)
            finally:
                times = {"time_created_ns": started_ns, "time_ended_ns": time.time_ns()}
                self.flights.append({**times, "process_group": [group.group_name, ""], "is_p2p": True})

        return noting


def _group_class() -> Any:
    """Return torch's class of process groups, or a class without these methods if torch has none."""
    bindings = sys.modules.get("torch._C._distributed_c10d")
    return getattr(bindings, "ProcessGroup", object)
