"""One host thread as consecutive pieces: every nanosecond is one operator's or a gap's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .kineto import Event

__all__ = ["Op", "Piece", "cut", "operators"]

_MODULE = "chakrascope::module "
_BACKWARD = "autograd::engine::evaluate_function: "
_COMM_ANNOTATION = "gloo:"
_OPTIMIZER = "Optimizer."
_DATA_LOADER = "enumerate(DataLoader)"


@dataclass
class Op:
    """An operator on the thread, clipped to the window and to the operator around it."""

    event: Event
    start_ns: int
    end_ns: int
    parent: int
    module: str
    phase: str
    is_leaf: bool = True


@dataclass(frozen=True)
class Piece:
    """A stretch of the thread: self time of *op*, or (``op`` -1) time outside any; *next_op* follows."""

    start_ns: int
    end_ns: int
    op: int
    next_op: int


@dataclass(frozen=True)
class _Context:
    """What encloses an event: where it ends, its operator's index, and what that tells."""

    end_ns: int
    op: int
    module: str
    phase: str


def operators(
    events: Iterable[Event],
    start_ns: int,
    end_ns: int,
    *,
    modules: dict[int, str] | None = None,
    phase: str = "forward",
) -> list[Op]:
    """Return the operators among *events*, one thread's, that touch the window, in order of start.

    Nesting is by time, since recorded parents are wrong with gloo. Annotations become context (module,
    phase), never operators; gloo's own may overlap what follows and are left out. A backward operator's
    module is that of the forward operator with its autograd sequence number; *modules* carries those from
    one thread to the next. *phase* is that of operators that nothing encloses.
    """
    ops: list[Op] = []
    stack = [_Context(end_ns, -1, "", phase)]
    module_of_sequence = modules if modules is not None else {}
    for event in events:
        if event.start_ns >= end_ns or event.end_ns < start_ns or event.name.startswith(_COMM_ANNOTATION):
            continue
        begin = max(event.start_ns, start_ns)
        while len(stack) > 1 and stack[-1].end_ns <= begin:
            stack.pop()
        outer = stack[-1]
        module, inner = _context(event, outer, module_of_sequence)
        end = min(event.end_ns, outer.end_ns)
        if event.is_operator:
            if outer.op >= 0:
                ops[outer.op].is_leaf = False
            if inner != "backward" and event.sequence >= 0 and module:
                module_of_sequence[event.sequence] = module
            ops.append(Op(event, begin, end, outer.op, module, inner))
            stack.append(_Context(end, len(ops) - 1, module, inner))
        else:
            stack.append(_Context(end, outer.op, module, inner))
    return ops


def _context(event: Event, outer: _Context, module_of_sequence: dict[int, str]) -> tuple[str, str]:
    """Return module and phase inside *event*."""
    name = event.name
    if event.is_operator:
        if name.startswith(_BACKWARD):
            return module_of_sequence.get(event.sequence, ""), "backward"
        return outer.module, outer.phase
    if name.startswith(_MODULE):
        return name[len(_MODULE) :], outer.phase
    if name.startswith(_OPTIMIZER):
        return outer.module, "optimizer"
    if name.startswith(_DATA_LOADER):
        return outer.module, "other"
    return outer.module, outer.phase


def cut(ops: Sequence[Op], start_ns: int, end_ns: int) -> list[Piece]:
    """Return the pieces of the window in order; they touch, and together are the window."""
    pieces: list[Piece] = []
    stack: list[int] = []
    cursor = start_ns

    def advance(until: int, following: int) -> None:
        nonlocal cursor
        if until > cursor:
            pieces.append(Piece(cursor, until, stack[-1] if stack else -1, following))
            cursor = until

    for index, op in enumerate(ops):
        while stack and ops[stack[-1]].end_ns <= op.start_ns:
            advance(ops[stack[-1]].end_ns, index)
            stack.pop()
        advance(op.start_ns, index)
        stack.append(index)
    while stack:
        advance(ops[stack[-1]].end_ns, -1)
        stack.pop()
    advance(end_ns, -1)
    return pieces
