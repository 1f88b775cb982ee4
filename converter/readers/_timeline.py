"""Divide a host thread into consecutive pieces, each of one operator or a gap."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np

from .._columns import Columns, which
from .._native import Nesting, cut
from ._communications import GLOO
from ._kineto import MODULE_FRAME, MODULE_RANGE, CommArguments, DeviceTrace, Frames

# By number, those of the native part.
PHASES = ("forward", "backward", "optimizer", "other")
_IGNORED, _OPERATOR, _BACKWARD, _ANNOTATION, _MODULE, _OPTIMIZER, _DATA_LOADER = range(7)
_BACKWARD_PREFIX = "autograd::engine::evaluate_function: "
# Annotations that tell more than that something is inside them.
_ANNOTATIONS = {MODULE_RANGE: _MODULE, "Optimizer.": _OPTIMIZER, "enumerate(DataLoader)": _DATA_LOADER}


class Op(msgspec.Struct, frozen=True):
    """An operator on the thread, clipped to the window and to its enclosing operator."""

    name: str
    record_id: int
    start_ns: int
    end_ns: int
    parent: int
    comm: CommArguments | None


class Pieces(Columns, frozen=True):
    """Intervals of a thread: self time of *op*, or for -1 time outside operators; *next_op* follows."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    op: np.ndarray
    next_op: np.ndarray


class Ops(msgspec.Struct, frozen=True, dict=True):
    """The operators of one thread in order of start.

    *event*, *module* (0: none) and *phase* are indices into the trace's events, the *modules* and `PHASES`;
    *parent* is the enclosing operator, -1 for none.
    """

    trace: DeviceTrace
    modules: Sequence[str]
    event: np.ndarray
    parent: np.ndarray
    module: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    phase: np.ndarray
    is_leaf: np.ndarray

    def __len__(self) -> int:
        return len(self.event)

    def __getitem__(self, index: int) -> Op:
        event = int(self.event[index])
        events, trace = self.trace.events, self.trace
        return Op(
            trace.texts[int(events.name[event])],
            int(events.record_id[event]),
            int(self.start_ns[index]),
            int(self.end_ns[index]),
            int(self.parent[index]),
            trace.comm(int(events.comm[event])),
        )

    @cached_property
    def name(self) -> np.ndarray:
        """The number of each operator's name among the trace's texts."""
        names: np.ndarray = self.trace.events.name[self.event]
        return names

    @cached_property
    def record_id(self) -> np.ndarray:
        """The record-function id of each operator."""
        records: np.ndarray = self.trace.events.record_id[self.event]
        return records


class Threads:
    """Finds the operators of a trace's threads.

    Nesting is by time, since recorded parents are wrong with gloo. Annotations become context (module,
    phase), never operators; those of gloo may overlap later operators and are omitted. A backward operator
    has the module of the forward operator with the same autograd sequence number, on any thread. Modules come
    from the tracer's annotations, or else from the profiler's Python frames of modules.
    """

    def __init__(self, trace: DeviceTrace) -> None:
        self._trace = trace
        self._nesting = Nesting()
        numbers = {"": 0}
        roles = np.full((2, len(trace.texts)), _ANNOTATION, dtype=np.uint8)
        self._module = np.zeros(len(trace.texts), dtype=np.int32)
        for number, text in enumerate(trace.texts):
            roles[1, number] = _BACKWARD if text.startswith(_BACKWARD_PREFIX) else _OPERATOR
            if text.startswith(GLOO):
                roles[:, number] = _IGNORED
            for prefix, role in _ANNOTATIONS.items():
                if text.startswith(prefix):
                    roles[0, number] = role
            if text.startswith(MODULE_RANGE):
                module = text[len(MODULE_RANGE) :]
                self._module[number] = numbers.setdefault(module, len(numbers))
        self._roles = roles
        self._frames, self._module_of_frame = _module_frames(trace, numbers)
        self._modules = list(numbers)

    def operators(self, events: np.ndarray, start_ns: int, end_ns: int, *, phase: str = "forward") -> Ops:
        """Return the operators among *events* (of one thread, in order) that overlap the given interval.

        *phase* is that of outermost operators.
        """
        own = self._trace.events.take(events)
        roles = self._roles[own.is_operator.astype(np.int8), own.name]
        columns = [own.start_ns, own.end_ns, own.sequence, roles, self._module[own.name]]
        if len(self._frames) and len(own):
            events, *columns = self._with_frames(int(own.thread[0]), events, columns)
        starts, ends, sequences, roles, modules = columns
        nested = self._nesting.operators(
            starts, ends, sequences, roles, modules, start_ns, end_ns, PHASES.index(phase)
        )
        nested["event"] = events[nested["event"]]
        return Ops(self._trace, self._modules, **nested)

    def _with_frames(
        self, thread: int, events: np.ndarray, columns: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Return *events* and their *columns* with the calls of modules on *thread* among them."""
        mine = self._frames.thread == thread
        frames, nothing = self._frames.take(mine), np.full(int(mine.sum()), -1)
        roles = np.full(len(frames), _MODULE)
        added = (nothing, frames.start_ns, frames.end_ns, nothing, roles, self._module_of_frame[mine])
        pairs = zip((events, *columns), added, strict=True)
        joined = [np.concatenate([one, other.astype(one.dtype)]) for one, other in pairs]
        order = np.lexsort((-joined[2], joined[1]))
        return [column[order] for column in joined]


def _module_frames(trace: DeviceTrace, numbers: dict[str, int]) -> tuple[Frames, np.ndarray]:
    """Return the calls of modules in *trace*, and the number of each module, added to *numbers*.

    None if the tracer's annotations have modules. A module's name begins with those of its callers:
    ``GPT_0.Block_3.Linear_12``.
    """
    frames = Frames.none() if len(numbers) > 1 else trace.frames
    frames = frames.take(which(trace.texts, lambda text: text.startswith(MODULE_FRAME))[frames.name])
    modules = np.zeros(len(frames), dtype=np.int32)
    around: dict[int, list[tuple[int, str]]] = {}
    paths: dict[str, str] = {}
    columns = (frames.thread, frames.start_ns, frames.end_ns, frames.name)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for row, (thread, start, end, name) in enumerate(rows):
        callers = around.setdefault(thread, [])
        while callers and callers[-1][0] <= start:
            callers.pop()
        own = trace.texts[name][len(MODULE_FRAME) :]
        path = paths.setdefault(own, f"{callers[-1][1]}.{own}" if callers else own)
        callers.append((end, path))
        modules[row] = numbers.setdefault(path, len(numbers))
    return frames, modules


def cut_pieces(ops: Ops, start_ns: int, end_ns: int) -> Pieces:
    """Return the pieces of the window in order, without gaps."""
    return Pieces(**cut(ops.start_ns, ops.end_ns, start_ns, end_ns))
