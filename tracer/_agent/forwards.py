"""Count steps by the calls of the outermost module, for scripts without a torch optimizer."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any


class ForwardCounter:
    """Calls ``on_step`` between consecutive calls of the script's outermost module.

    Before the first step, the counter calls ``on_model`` at the first outermost call of each module with
    parameters or buffers.

    The outermost module is the first module with parameters or buffers that is called twice outside any other
    module. Until the outermost module is detected, ``Module.__call__`` is wrapped for outermost calls.
    Afterwards, only ``__call__`` of the outermost module's class is wrapped. Hooks are not used, because they
    cause warnings and recompilation under torch.compile. Module attributes are not used, because they would
    be pickled with the module. Code that is being compiled sees the original calls.
    """

    def __init__(self, torch: Any, on_step: Callable[[], None], on_model: Callable[[], None]) -> None:
        self._torch = torch
        self._on_step = on_step
        self._on_model = on_model
        self._module_class = torch.nn.Module
        self.original_call: Callable[..., Any] = torch.nn.Module.__call__
        self._called_once: weakref.WeakSet[Any] = weakref.WeakSet()
        self._undo: Callable[[], None] | None = None

    def start(self) -> None:
        """Start the search for the outermost module."""
        self._wrap(self._module_class, self._search)

    def stop(self) -> None:
        """Restore ``__call__`` of every wrapped class."""
        if self._undo is not None:
            self._undo()
            self._undo = None

    def _wrap(self, owner: type, around: Callable[..., Any]) -> None:
        """Route calls of *owner*'s instances through ``around(call, module)`` until :meth:`stop`."""
        inherited = owner.__call__
        own = owner.__dict__.get("__call__")
        compiling, tracing = self._torch.compiler.is_compiling, self._torch._C._get_tracing_state

        @functools.wraps(inherited)
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if compiling() or tracing():  # by torch.compile, torch.export or torch.jit
                return inherited(module, *args, **kwargs)
            return around(functools.partial(inherited, module, *args, **kwargs), module)

        def undo() -> None:
            if owner.__dict__.get("__call__") is not call:
                return  # another wrapper was added, so this wrapper only forwards calls
            if own is None:
                del owner.__call__
            else:
                owner.__call__ = own  # type: ignore[method-assign]

        owner.__call__ = call  # type: ignore[method-assign]
        self._undo = undo

    def _search(self, call: Callable[[], Any], module: Any) -> Any:
        """Handle an outermost call during the search for the repeated module."""
        if self._undo is None or type(module).__hash__ is None:  # torch cannot list its parameters
            return call()
        self.stop()  # nested calls are not outermost, and a running compiler must see the original
        if module in self._called_once:
            self._follow(module)
            self._on_step()
            return call()
        if _has_state(module):
            self._called_once.add(module)
            self._on_model()
        try:
            return call()
        finally:
            if self._undo is None:
                self.start()

    def _follow(self, found: Any) -> None:
        """Count the calls of the outermost module *found*."""
        reference = weakref.ref(found)

        def around(call: Callable[[], Any], module: Any) -> Any:
            if self._undo is not None and module is reference():
                self._on_step()
            return call()

        self._wrap(type(found), around)


def _has_state(module: Any) -> bool:
    """Return whether *module* has parameters or buffers, unlike transforms and losses."""
    return any(True for _ in module.parameters()) or any(True for _ in module.buffers())
