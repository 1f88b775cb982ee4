"""Keep out of the way of profilers that the script itself runs."""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["foreign_profiler_is_on", "starting_ours", "watch"]

_foreign: weakref.WeakSet[Any] = weakref.WeakSet()
_state = {"watching": False, "ours": False}


def watch(profiler_module: Any, make_way: Callable[[], None]) -> None:
    """Call *make_way* before a profiler of the script's starts: two sessions in a process crash torch."""
    if _state["watching"]:
        return
    _state["watching"] = True
    profile = profiler_module.profile
    prepare, leave = profile._prepare_trace, profile.__exit__

    @functools.wraps(prepare)
    def watched_prepare(self: Any) -> Any:
        if not _state["ours"]:
            make_way()
            _foreign.add(self)
        return prepare(self)

    @functools.wraps(leave)
    def watched_leave(self: Any, *exception: Any) -> Any:
        _foreign.discard(self)
        return leave(self, *exception)

    profile._prepare_trace, profile.__exit__ = watched_prepare, watched_leave


@contextlib.contextmanager
def starting_ours() -> Iterator[None]:
    """Tell the profiler that is started meanwhile from the script's."""
    _state["ours"] = True
    try:
        yield
    finally:
        _state["ours"] = False


def foreign_profiler_is_on(torch: Any) -> bool:
    """Return whether a profiler of the script's is recording or getting ready to."""
    return bool(_foreign) or torch.autograd._profiler_enabled()
