"""Find steps in traces without step marks, from optimizer calls or repeated sequences of work."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from ...tracer import StepRange
from .._columns import which
from ..readers import DeviceTrace, Events
from ._steps import whole_trace

_MIN_REPEATED = 3
_MIN_PIECES = 4  # minimum pieces per step; fewer pieces are a loop within a step
_MIN_PIECES_OF_TWO = 16  # minimum pieces per step of two steps, because fewer pieces may be layers
_SAME = 0.9  # minimum share of the sequence that recurs one period later
_AS_GOOD = 0.002  # a shorter period is preferred if its match is worse than the best by at most this much
_CONTEXT = 4  # number of pieces that identify the beginning of a step
_SPACING = 0.1  # maximum deviation of the distance between beginnings, as a share of the period
_MAX_PIECES = 1 << 18
_MAX_PERIODS = 256  # number of candidate periods to compare in full
_DIMENSIONS = 8
# The prefixes of PyTorch's annotations of each call of an optimizer's ``step``, and of each backward node.
OPTIMIZER_STEP = "Optimizer.step#"
_BACKWARD = "autograd::engine::evaluate_function"


class _Pieces(msgspec.Struct, frozen=True):
    """A sequence of pieces of work: a number that identifies each piece, and the times of its host call.

    *opens* marks the pieces at which a step may start. No step starts within the pieces of a graph launch or
    an operator.
    """

    symbol: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    opens: np.ndarray


def optimizer_steps(trace: DeviceTrace) -> tuple[list[StepRange], str]:
    """Return the steps of *trace*, numbered from 0, and the optimizer that ends each step.

    A step ends with a call of an optimizer's ``step``. If several optimizers take turns, a step ends with the
    call of the last optimizer. A call of ``step`` within an operator is part of a backward pass, and does not
    end a step. The steps cover the whole trace. The first step and the last step may be incomplete. The
    result is empty if fewer than two steps are found.
    """
    events = trace.events
    is_mark = which(trace.texts, lambda text: text.startswith(OPTIMIZER_STEP))[events.name]
    marks = np.flatnonzero(is_mark & (events.end_ns > events.start_ns))
    if len(marks) < 2:
        return [], ""
    around = _outermost(trace, events.thread[marks], events.start_ns[marks])
    if not (is_mark[around] | (around < 0)).all():
        return [], ""
    marks = marks[(around < 0) | (around == marks)]
    marks = _last_of_each_cycle(events, _before_a_backward(trace, marks))
    if len(marks) < 2:
        return [], ""
    whole, ends = whole_trace(trace), events.end_ns[marks].tolist()
    rest_ns, usual_ns = whole.end_ns - ends[-1], float(np.median(np.diff(ends)))
    bounds = [whole.start_ns, *(ends if rest_ns > _SPACING * usual_ns else ends[:-1]), whole.end_ns]
    steps = [StepRange(number, *bounds[number : number + 2]) for number in range(len(bounds) - 1)]
    return steps, trace.texts[int(events.name[marks[-1]])]


def _before_a_backward(trace: DeviceTrace, marks: np.ndarray) -> np.ndarray:
    """Return the optimizer calls *marks* that are followed by a backward pass before the next optimizer call.

    The last optimizer call is always included. In a trace without marks of backward passes, all calls are
    included.
    """
    events = trace.events
    is_backward = which(trace.texts, lambda text: text.startswith(_BACKWARD))[events.name]
    starts = events.start_ns[is_backward]
    if not len(starts):
        return marks
    count = np.searchsorted(starts, events.start_ns[marks])
    before: np.ndarray = marks[np.append(np.diff(count) > 0, True)]
    return before


def _last_of_each_cycle(events: Events, marks: np.ndarray) -> np.ndarray:
    """Return the last call in each cycle of optimizers that take turns, identified by their names."""
    names = events.name[marks]
    turns = next(turn for turn in range(1, len(names) + 1) if np.array_equal(names[turn:], names[:-turn]))
    return marks[turns - 1 :: turns]


def repeated_steps(trace: DeviceTrace) -> tuple[list[StepRange], str]:
    """Return the steps of *trace*, numbered from 0, and the first piece of each step, if steps are certain.

    The sequence consists of the kernels on the busiest stream or, without a device, of the operators of a
    host thread. The sequence must repeat one period at least three times from its first piece to its last.
    The layers of a single step do not repeat in this way, because other work precedes or follows them. Two
    repetitions are enough if they are equal piece by piece. Repetitions within one operator are not steps.
    The steps cover the whole trace. Of at least three steps, the first and the last may be incomplete.
    """
    pieces = _on_the_device(trace) if len(trace.works) else _on_the_host(trace)
    if not 2 * _MIN_REPEATED <= len(pieces.symbol) <= _MAX_PIECES:
        return [], ""
    period = next((found for found in _periods(pieces.symbol) if _is_all(pieces.symbol, found)), 0)
    least = _MIN_REPEATED
    if not period and _has_equal_halves(pieces.symbol):
        period, least = len(pieces.symbol) // 2, 2
    if period < _MIN_PIECES:
        return [], ""
    first = _beginnings(pieces, period, least)
    if len(first) < least:
        return [], ""
    names = (trace.texts[number] for number in pieces.symbol[first[0] : first[0] + _CONTEXT].tolist())
    return _ranges(trace, pieces, first, period), "; ".join(names)


def _on_the_device(trace: DeviceTrace) -> _Pieces:
    """Return the kernels, copies and memory sets of the busiest stream whose calls are known."""
    works, calls = trace.works, trace.calls
    issuing = trace.issuing_calls()
    queues = np.column_stack([works.device, works.stream])[issuing >= 0]
    if not len(queues):
        return _on_the_host(trace)
    _, queue, sizes = np.unique(queues, axis=0, return_inverse=True, return_counts=True)
    own = np.flatnonzero(issuing >= 0)[queue.ravel() == int(np.argmax(sizes))]
    own = own[np.argsort(works.start_ns[own], kind="stable")]
    call = issuing[own]
    around = _outermost(trace, calls.thread[call], calls.start_ns[call])
    opens = (call[1:] != call[:-1]) & ((around[1:] < 0) | (around[1:] != around[:-1]))
    return _Pieces(works.name[own], calls.start_ns[call], calls.end_ns[call], np.append(True, opens))


def _outermost(trace: DeviceTrace, threads: np.ndarray, moments_ns: np.ndarray) -> np.ndarray:
    """Return the row of the outermost operator at each thread and time, or -1 if there is no operator."""
    around = np.full(len(moments_ns), -1)
    operators = np.flatnonzero(trace.events.is_operator)
    for thread in np.unique(threads).tolist():
        rows = operators[trace.events.thread[operators] == thread]
        rows = rows[_is_outer(trace.events.take(rows))]
        asked = np.flatnonzero(threads == thread)
        place = np.searchsorted(trace.events.start_ns[rows], moments_ns[asked], "right") - 1
        within = (place >= 0) & (np.append(trace.events.end_ns[rows], 0)[place] > moments_ns[asked])
        around[asked[within]] = rows[place[within]]
    return around


def _is_outer(operators: Events) -> np.ndarray:
    """Return a mask of the operators of a thread (sorted by start) that no earlier operator encloses."""
    return operators.start_ns >= np.maximum.accumulate(np.append(0, operators.end_ns))[:-1]


def _on_the_host(trace: DeviceTrace) -> _Pieces:
    """Return the outermost operators of the thread with the most operators."""
    events = trace.events.take(trace.events.is_operator)
    threads, sizes = np.unique(events.thread, return_counts=True)
    if len(threads):
        events = events.take(events.thread == threads[np.argmax(sizes)])
    outer = events.take(_is_outer(events))
    return _Pieces(outer.name, outer.start_ns, outer.end_ns, np.ones(len(outer), bool))


def _periods(symbols: np.ndarray) -> Iterator[int]:
    """Yield the periods that explain nearly all of the sequence, shortest first."""
    longest = len(symbols) // _MIN_REPEATED
    likely = _likely(symbols, longest)
    same = {period: float(np.mean(symbols[period:] == symbols[:-period])) for period in likely}
    best = max(same.values(), default=0.0)
    if best >= _SAME:
        yield from (period for period in sorted(same) if same[period] >= best - _AS_GOOD)


def _likely(symbols: np.ndarray, longest: int) -> list[int]:
    """Return the periods up to *longest* with the highest autocorrelation of the sequence.

    Each symbol is a random vector of 1 and -1. The autocorrelation, computed by Fourier transforms, then
    estimates the number of equal pieces.
    """
    _, numbers = np.unique(symbols, return_inverse=True)
    signs = np.random.default_rng(0).integers(0, 2, (_DIMENSIONS, int(numbers.max()) + 1)) * 2 - 1
    size = 1 << (2 * len(symbols) - 1).bit_length()
    power = sum(np.abs(np.fft.rfft(row[numbers.ravel()], size)) ** 2 for row in signs)
    alike = np.fft.irfft(power, size)[1 : longest + 1] / _DIMENSIONS
    alike /= len(symbols) - np.arange(1, longest + 1)
    return sorted((np.argsort(-alike, kind="stable")[:_MAX_PERIODS] + 1).tolist())


def _is_all(symbols: np.ndarray, period: int) -> bool:
    """Return whether all pieces in the first and last *period* of the sequence also occur elsewhere."""
    ends = np.concatenate([symbols[:period], symbols[-period:]])
    within = np.unique(symbols[period:-period])
    return bool(np.isin(ends, within).all())


def _has_equal_halves(symbols: np.ndarray) -> bool:
    """Return whether the sequence consists of two equal, long halves without a shorter period."""
    half, odd = divmod(len(symbols), 2)
    if odd or half < _MIN_PIECES_OF_TWO or not np.array_equal(symbols[:half], symbols[half:]):
        return False
    shorter = (period for period in range(1, half // 2 + 1) if half % period == 0)
    return not any(np.array_equal(symbols[period:half], symbols[: half - period]) for period in shorter)


def _beginnings(pieces: _Pieces, period: int, least: int) -> np.ndarray:
    """Return the starts of steps: at the sequence's start if periods fit, or after the longest pause."""
    windows = np.lib.stride_tricks.sliding_window_view(pieces.symbol, min(_CONTEXT, period))
    _, context = np.unique(windows, axis=0, return_inverse=True)
    context = context.ravel()
    pause = np.append(0, pieces.start_ns[1:] - pieces.end_ns[:-1])[: len(context)]
    order = np.argsort(context, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(context[order])) + 1)
    found = [rows for rows in groups if _is_regular(rows, period, least) and pieces.opens[rows].all()]
    if not found:
        return np.zeros(0, np.int64)
    for rows in found:
        rest = (len(pieces.symbol) - int(rows[-1])) / period
        if rows[0] == 0 and abs(rest - 1) <= _SPACING:
            return rows
    return max(found, key=lambda rows: (float(np.median(pause[rows[1:]])), -int(rows[0])))


def _is_regular(rows: np.ndarray, period: int, least: int) -> bool:
    """Return whether *rows* has at least *least* rows at distances of one *period*."""
    if len(rows) < least or rows[0] >= period * (1 + _SPACING):
        return False
    return bool((np.abs(np.diff(rows) - period) <= _SPACING * period).all())


def _ranges(trace: DeviceTrace, pieces: _Pieces, first: np.ndarray, period: int) -> list[StepRange]:
    """Divide the host time of the trace at the starts of steps; short remainders join adjacent steps."""
    rests = np.minimum(first, len(pieces.symbol) - first)
    cuts = [_opened(trace, pieces, row) for row in first[rests > _SPACING * period].tolist()]
    whole = whole_trace(trace)
    bounds = [whole.start_ns, *cuts, whole.end_ns]
    return [StepRange(number, *bounds[number : number + 2]) for number in range(len(bounds) - 1)]


def _opened(trace: DeviceTrace, pieces: _Pieces, row: int) -> int:
    """Return the start of the outermost operator around a piece, if it starts after the previous piece."""
    call_ns = int(pieces.start_ns[row])
    before_ns = int(pieces.end_ns[row - 1]) if row else 0
    events = trace.events
    around = (events.start_ns <= call_ns) & (events.end_ns > call_ns) & (events.start_ns >= before_ns)
    return int(events.start_ns[around & events.is_operator].min(initial=call_ns))
