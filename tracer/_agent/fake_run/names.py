"""Determine the module and the pass (forward, backward) of an operator."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ..modules import module_names
from .program import PROGRAM


class Names:
    """Tracks the module of the current operator; a backward operator has the forward operator's module."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._stack: list[tuple[Any, str]] = []
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []
        self._of_sequence: dict[int, str] = {}
        self._compiling = 0

    def watch(self) -> None:
        """Track the forward passes of all modules."""
        from torch.nn.modules import module  # noqa: PLC0415

        module.register_module_forward_pre_hook(self._enter)
        module.register_module_forward_hook(self._leave, always_call=True)

    def here(self) -> tuple[str, str]:
        """Return the module and the phase of the current operator."""
        node = self._torch._C._current_autograd_node()
        if node is not None:
            inner = self._stack[-1][1] if self._stack else ""  # a recomputed operator
            return inner or self._of_sequence.get(node._sequence_nr(), ""), "backward"
        if self._torch._C._current_graph_task_id() >= 0:
            return "", "backward"  # callbacks that were queued for the end of the backward pass
        self.passed()
        return (self._stack[-1][1], "forward") if self._stack else ("", "other")

    def passed(self) -> None:
        """Store the current operator's module, which the corresponding backward operator will get."""
        if self._stack:
            number = self._torch._C._autograd._get_sequence_nr() - 1
            self._of_sequence.setdefault(number, self._stack[-1][1])

    @contextlib.contextmanager
    def compiled(self, name: str) -> Iterator[None]:
        """Treat all operators and modules in the block as one compiled part called *name*."""
        around = self._stack[-1][1] if self._stack else ""
        part = object(), f"{around}.{name}" if around else name
        PROGRAM.compiled.append(part[1])
        self._stack.append(part)
        self._compiling += 1
        try:
            yield
        finally:
            self._compiling -= 1
            self._leave(part[0], None, None)

    def forget(self) -> None:
        """Delete the data on the operators of the previous step."""
        self._of_sequence.clear()

    def _enter(self, module: Any, _inputs: Any) -> None:
        if id(module) not in self._names:
            inside: set[int] = set()
            for name, part in module_names(module):
                self._names.setdefault(id(part), name)
                self._kept.append(part)
                if getattr(part, "_chakrascope_compiled", False):
                    inside.update(id(inner) for inner in part.modules())
            PROGRAM.compiled += [name for key, name in self._names.items() if key in inside]
        if self._compiling:
            PROGRAM.compiled.append(self._names[id(module)])
        self._stack.append((module, self._names[id(module)]))

    def _leave(self, module: Any, _inputs: Any, _output: Any) -> None:
        while self._stack:
            last, _ = self._stack.pop()
            if last is module:
                return
