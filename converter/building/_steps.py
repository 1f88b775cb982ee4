"""Find the steps of a trace, and choose the steps to convert."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from operator import attrgetter
from types import MappingProxyType

import msgspec
import numpy as np
from msgspec.structs import replace

from ...errors import TraceError, UsageError, did_you_mean
from ...tracer import StepRange
from .._columns import which
from ..chakra import DEVICE_LANE
from ..linking import Linked
from ..readers import STEP_MARK, DeviceTrace

_start_ns = attrgetter("start_ns")
# The choice of the steps to convert: a number, "median", "all", or an annotation (NAME, NAME#3, or a glob).
StepChoice = int | str
_EACH = ("all", "median")
_STUMP_SHARE = 0.1
_MAX_NAMES = 5
_MAX_SUGGESTED = 20
# Pattern of names that end with a number and contain no wildcards.
_NUMBERED = re.compile(r"([^\[\]*?]*#)\d+")
_UNKNOWN = -1
# Kinds of batches by SGLang's forward mode (`ForwardMode`). Speculative drafts and their verification count
# as decode.
_SGLANG_KINDS = {
    "decode": "decode",
    "draft_extend": "decode",
    "draft_extend_v2": "decode",
    "extend": "prefill",
    "idle": "idle",
    "mixed": "mixed",
    "prefill": "prefill",
    "split_prefill": "prefill",
    "target_verify": "decode",
}


class MarkedSteps(msgspec.Struct, frozen=True):
    """The steps that annotations mark, in order, and their annotations by number of the step.

    *which* is the choice among these steps, if the request named an occurrence of the annotation.
    """

    steps: list[StepRange]
    names: dict[int, str]
    which: StepChoice = "median"


def step_choice(text: str) -> StepChoice:
    """Return the choice of steps in *text*; raises `UsageError` for an empty text."""
    if not text.strip():
        raise UsageError("--step is empty. Next: give median, all, a step number or an annotation.")
    return int(text) if text.isdecimal() else text


def is_annotation(step: StepChoice) -> bool:
    """Return whether *step* names an annotation, instead of a number, ``"all"`` or ``"median"``."""
    return isinstance(step, str) and step not in _EACH


def annotated_steps(device: DeviceTrace) -> MarkedSteps:
    """Return the steps that *device* marks: the profiler's steps, or the batches of an inference engine.

    A profiler's step has the name of the batches in the step. If a single profiler's step contains several
    batches, the batches are the steps. Nested batches and idle batches are omitted.
    """
    steps, batches = _profiler_steps(device), _batches(device)
    starts = np.array([step.start_ns for step, _ in batches], dtype=np.int64)
    if not steps or (len(steps) == 1 and len(batches) > 1):
        return MarkedSteps([step for step, _ in batches], {step.index: name for step, name in batches})
    names = {}
    for step in steps:
        first, last = np.searchsorted(starts, [step.start_ns, step.end_ns]).tolist()
        own = {name for _, name in batches[first:last]}
        if len(own) == 1:
            names[step.index] = own.pop()
    return MarkedSteps(steps, names)


def _profiler_steps(device: DeviceTrace) -> list[StepRange]:
    """Return the steps that ``torch.profiler`` marks in the trace.

    A profiler that stops within a step leaves a truncated annotation, which is ignored.
    """
    marked: dict[int, StepRange] = {}
    events = device.events
    marks = np.flatnonzero(which(device.texts, lambda text: text.startswith(STEP_MARK))[events.name])
    for index in marks.tolist():
        number = device.texts[events.name[index]][len(STEP_MARK) :]
        if number.isdecimal() and len(number) < 19:
            step = StepRange(int(number), int(events.start_ns[index]), int(events.end_ns[index]))
            marked.setdefault(int(number), step)
    steps = [marked[index] for index in sorted(marked)]
    if len(steps) > 1 and _length(steps[-1]) < _STUMP_SHARE * max(map(_length, steps)):
        steps.pop()
    return steps


def _batches(device: DeviceTrace) -> list[tuple[StepRange, str]]:
    """Return the batches of an inference engine, numbered from 0."""
    kinds = {text: batch.kind for text in device.texts if (batch := batch_of(text)) is not None}
    return _occurrences(device, [text for text, kind in kinds.items() if kind != "idle"])


def named_steps(device: DeviceTrace, annotation: str, place: str, window: Window | None) -> MarkedSteps:
    """Return the occurrences of *annotation* (NAME, NAME#3 or a glob) in *window*, numbered from 0.

    An exact name has precedence over a glob, and a glob has precedence over NAME#3. Nested occurrences are
    omitted. If there is no occurrence, raises `UsageError`, which names *place*.
    """
    events = device.events
    if window is not None:
        inside = (events.start_ns >= window.start_ns) & (events.end_ns <= window.end_ns)
        device = replace(device, events=events.take(np.flatnonzero(inside)))
        events = device.events
    marks = events.name[~events.is_operator & (events.end_ns > events.start_ns)]
    counts = Counter({device.texts[name]: count for name, count in Counter(marks.tolist()).items()})
    for name, occurrence in _readings(annotation):
        names = [name] if name in counts else [text for text in counts if fnmatchcase(text, name)]
        if not names:
            continue
        marked = _occurrences(device, names)
        if isinstance(occurrence, int) and occurrence >= len(marked):
            raise UsageError(
                f"{place}: annotation '{name}' occurs {len(marked):,} time{'s' * (len(marked) != 1)}, so "
                f"'{annotation}' does not exist: occurrences count from 0 to {len(marked) - 1}."
            )
        return MarkedSteps([step for step, _ in marked], {s.index: text for s, text in marked}, occurrence)
    raise UsageError(f"{place} has no annotation '{annotation}'{_most_frequent(annotation, counts)}")


def _readings(annotation: str) -> Iterable[tuple[str, StepChoice]]:
    """Yield the readings of *annotation*, most literal first: a name, and the selected occurrences."""
    yield annotation, "median"
    counted = re.fullmatch(r"(.+)#(\d{1,18}|all|median)", annotation)
    if counted is not None:
        yield counted[1], int(counted[2]) if counted[2].isdecimal() else counted[2]


def _most_frequent(annotation: str, counts: Counter[str]) -> str:
    """Return the end of an error message that lists the most frequent annotations."""
    if not counts:
        return ": the traces have no annotations. Next: mark the steps in the script, or leave out --step."
    most = counts.most_common(_MAX_NAMES)
    named = ", ".join(f"'{name}' ({count:,} times)" if count > 1 else f"'{name}'" for name, count in most)
    hint = did_you_mean(annotation, counts).partition(" Allowed: ")[0]
    more = f", and {len(counts) - len(most):,} more" if len(counts) > len(most) else ""
    return f"{hint} Most frequent: {named}{more}."


def _occurrences(device: DeviceTrace, names: Sequence[str]) -> list[tuple[StepRange, str]]:
    """Return the annotations with one of *names*, without nested annotations, numbered from 0."""
    events = device.events
    wanted = which(device.texts, frozenset(names).__contains__)[events.name]
    wanted &= ~events.is_operator & (events.end_ns > events.start_ns)
    marked: list[tuple[StepRange, str]] = []
    until_ns = 0
    for index in np.flatnonzero(wanted).tolist():
        start_ns, end_ns = int(events.start_ns[index]), int(events.end_ns[index])
        if start_ns >= until_ns:
            marked.append((StepRange(len(marked), start_ns, end_ns), device.texts[events.name[index]]))
            until_ns = end_ns
    return marked


def step_names(device: DeviceTrace) -> list[str]:
    """Return the values of ``--step`` for the annotations in the trace *device*, sorted by covered time.

    Annotations that differ only in the number at their end form one pattern.
    """
    events = device.events
    is_mark = ~events.is_operator & (events.end_ns > events.start_ns)
    lengths = (events.end_ns - events.start_ns)[is_mark]
    sums = np.bincount(events.name[is_mark], lengths, minlength=len(device.texts))
    covered: Counter[str] = Counter()
    for number in np.flatnonzero(sums).tolist():
        numbered = _NUMBERED.fullmatch(device.texts[number])
        covered[f"{numbered[1]}*" if numbered else device.texts[number]] += int(sums[number])
    return [name for name, _ in covered.most_common(_MAX_SUGGESTED)]


def _length(step: StepRange) -> int:
    return step.end_ns - step.start_ns


def whole_trace(device: DeviceTrace) -> StepRange:
    """Return the whole host time of *device* as one step, number 0."""
    tables = [table for table in (device.events, device.calls) if len(table)]
    starts, ends = zip(*((int(table.start_ns[0]), int(table.end_ns.max())) for table in tables), strict=True)
    return StepRange(0, min(starts), max(ends))


def own_steps(device: DeviceTrace, steps: Sequence[StepRange]) -> list[StepRange]:
    """Return the time of each of *steps* on host and device (see `Window.shares`).

    If some steps issued work to the device, steps without device work are omitted, because they are parts of
    a truncated trace.
    """
    call = device.issuing_calls()
    issued_ns = device.calls.start_ns[call[call >= 0]]
    shares = Window.of(steps).shares(issued_ns, device.works.end_ns[call >= 0], 0)
    own = [StepRange(number, start_ns, end_ns) for number, start_ns, end_ns in shares.tolist()]
    busy = {step.index for step in steps if ((issued_ns >= step.start_ns) & (issued_ns < step.end_ns)).any()}
    return [step for step in own if step.index in busy] or own


def typical_steps(
    steps: Sequence[Sequence[StepRange]],
    usual_ns: int = 0,
    delays: Mapping[str, int] = MappingProxyType({}),
    fallback: Collection[int] = (),
) -> list[int]:
    """Return the numbers of the steps that all ranks have (if none: *fallback*), most typical first.

    The most typical step is nearest to the usual duration *usual_ns*, or to the median if *usual_ns* is 0
    (unknown). *delays* are the machine's delays of each step, by number. The delays are subtracted from the
    steps' durations, and the ``median`` delay is subtracted from *usual_ns*.
    """
    common = _common(steps) or fallback
    slowest = dict.fromkeys(common, 0)
    for item in (item for own in steps for item in own if item.index in common):
        slowest[item.index] = max(slowest[item.index], item.end_ns - item.start_ns)
    slowest = {index: took_ns - delays.get(str(index), 0) for index, took_ns in slowest.items()}
    if usual_ns:
        usual_ns -= delays.get("median", 0)
        return sorted(common, key=lambda index: (abs(slowest[index] - usual_ns), index))
    ordered = sorted(common, key=lambda index: (slowest[index], index))
    middle = (len(ordered) - 1) // 2
    return [ordered[place] for place in sorted(range(len(ordered)), key=lambda place: abs(place - middle))]


def _common(steps: Sequence[Sequence[StepRange]]) -> set[int]:
    return set.intersection(*({item.index for item in own if item.end_ns > item.start_ns} for own in steps))


def choose_steps(
    steps: Sequence[Sequence[StepRange]],
    step: StepChoice,
    place: str,
    own: Sequence[Sequence[StepRange]] = (),
) -> set[int]:
    """Return the numbers of the steps to convert: step number *step*, ``"all"`` or the ``"median"`` step.

    *steps* are the steps of each rank. Only a step that every rank has can be chosen. The median step is the
    median of the slowest rank, by the *own* time of the rank's steps if it is known. Raises `TraceError`
    without a common step and `UsageError` for an unknown *step*; both name *place*.
    """
    common = _common(steps)
    if not common:
        raise TraceError(f"{place}: no complete step was captured on every rank. Next: capture more steps.")
    if step == "all":
        return common
    if step == "median":
        return {typical_steps(own or steps, fallback=common)[0]}
    if step not in common:
        raise UsageError(
            f"Step {step} was not captured on every rank of {place}. "
            f"Captured: {', '.join(map(str, sorted(common)))}; or 'median' or 'all'."
        )
    return {int(step)}


class Window(msgspec.Struct, frozen=True):
    """The interval of a trace to convert, and the steps in this interval."""

    start_ns: int
    end_ns: int
    steps: tuple[StepRange, ...]

    @classmethod
    def of(cls, steps: Sequence[StepRange]) -> Window:
        """Return the window from the start of the first step of *steps* to the end of the last step."""
        return cls(min(s.start_ns for s in steps), max(s.end_ns for s in steps), tuple(steps))

    def steps_at(self, times_ns: np.ndarray) -> np.ndarray:
        """Return the step of each time of *times_ns*: the last step begun before it, or the first step.

        Host work after the end of a step belongs to this step until the next step begins.
        """
        ordered = sorted(self.steps, key=_start_ns)
        begun = np.searchsorted([step.start_ns for step in ordered], times_ns, side="right") - 1
        numbers = np.array([step.index for step in ordered], dtype=np.int64)
        return numbers[np.maximum(begun, 0)]

    def own_times(self) -> list[list[int]]:
        """Return the number, start and end of each step on the host, in ns since the window's start."""
        ordered = sorted(self.steps, key=_start_ns)
        return [[s.index, s.start_ns - self.start_ns, s.end_ns - self.start_ns] for s in ordered]

    def shares(self, issued_ns: np.ndarray, ended_ns: np.ndarray, busy_until_ns: int) -> np.ndarray:
        """Return the time of each step: rows of number, start and end, in order of start.

        *issued_ns* and *ended_ns* are the issue and end times of device work. *busy_until_ns* is the end of
        work issued before the window. A step ends when the host has finished the step and the device has
        finished all work of the step. A step begins with the host's step or at the end of earlier device
        work, whichever is later. As a result, the times of steps that overlap on the device add up.
        """
        order = np.argsort(issued_ns, kind="stable")
        done = np.maximum.accumulate(np.append(busy_until_ns, ended_ns[order]))
        rows = []
        for step in sorted(self.steps, key=_start_ns):
            before, own = np.searchsorted(issued_ns[order], [step.start_ns, step.end_ns]).tolist()
            start, end = (max(step.start_ns, int(done[before])), max(step.end_ns, int(done[own])))
            rows.append((step.index, min(start, end), end))
        return np.array(rows, dtype=np.int64).reshape(-1, 3)


class Extent(msgspec.Struct, frozen=True):
    """The time from the first to the last work of a device, *start_ns* to *end_ns*."""

    start_ns: int
    end_ns: int

    @classmethod
    def of(cls, linked: Linked) -> Extent | None:
        """Return the extent of all device work *linked* with the host, or None if there is no device work."""
        launches = linked.launches
        if not len(launches):
            return None
        return cls(int(launches.start_ns.min()), int(launches.end_ns.max()))

    def cut(
        self, lanes: np.ndarray, starts_ns: np.ndarray, durations_ns: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the starts and durations of nodes on *lanes*, without host time outside the extent."""
        host = lanes < DEVICE_LANE
        times = starts_ns, starts_ns + durations_ns
        begin, end = (np.clip(time, self.start_ns, self.end_ns) for time in times)
        return np.where(host, begin, starts_ns), np.where(host, end - begin, durations_ns)


class Batch(msgspec.Struct, frozen=True):
    """The batch of a forward pass: *kind* is prefill, decode, mixed, diffusion or idle.

    *requests* and *tokens* are -1 if unknown.
    """

    kind: str
    requests: int = _UNKNOWN
    tokens: int = _UNKNOWN


def batch_of(name: str) -> Batch | None:
    """Return the batch that the annotation *name* describes, or None for other annotations."""
    for pattern, parsed in _FORMATS:
        match = pattern.fullmatch(name)
        if match is not None:
            return parsed(match)
    return None


def _of_both(prefill: int, decode: int, tokens: int = _UNKNOWN) -> Batch:
    """Return the batch with the given numbers of *prefill* and *decode* requests."""
    kinds = {(True, True): "mixed", (True, False): "prefill", (False, True): "decode"}
    return Batch(kinds.get((prefill > 0, decode > 0), "idle"), prefill + decode, tokens)


def _vllm(match: re.Match[str]) -> Batch:
    prefill, prefill_tokens, decode, decode_tokens = map(int, match.groups())
    return _of_both(prefill, decode, prefill_tokens + decode_tokens)


def _early_vllm(match: re.Match[str]) -> Batch:
    return _of_both(*map(int, match.groups()))


def _sglang(match: re.Match[str]) -> Batch:
    kind = _SGLANG_KINDS.get(match[1].lower(), "")
    sizes = _sizes(match[2] or "")
    requests = sizes.get("bs", _UNKNOWN)
    tokens = sizes.get("toks", _UNKNOWN)
    for parts in (("c_sq", "g_sq"), ("ext", "dec")):
        if tokens < 0 and any(part in sizes for part in parts):
            tokens = sum(sizes.get(part, 0) for part in parts)
    if tokens < 0 and match[1].lower() == "decode":
        tokens = requests
    return Batch(kind, requests, tokens)


def _atom(match: re.Match[str]) -> Batch:
    sizes = _sizes(match[2])
    kind = "mixed" if match[1] == "decode" and sizes.get("p", 0) > 0 else match[1]
    return Batch(kind, sizes.get("bs", _UNKNOWN), sizes.get("tok", _UNKNOWN))


def _diffusion(match: re.Match[str]) -> Batch:
    return Batch("diffusion", int(match[1]))


def _sizes(text: str) -> Mapping[str, int]:
    """Return the numbers in *text*, such as ``bs=117/128 tok=117``, by name."""
    return {name: int(value) for name, value in re.findall(r"(\w+)=(\d{1,18})", text)}


# Published formats of annotations: vLLM ``execute_context_2(6144)_generation_3(3)``
# (``GPUWorker.annotate_profile``), earlier ``execute_new_2_cached_3`` (vLLM pull request 22496), and ROCm's
# variant with squares of lengths, ``execute_6147_context_2(sq6144sk7144sqsq..sqsk..)_generation_3(sq3..)``;
# SGLang ``step[DECODE bs=32]``, ``step[EXTEND bs=15 toks=15360]``, ``step[MIXED bs=66 c=2 g=64 c_sq=2048
# g_sq=64 ..]`` (pull requests 23419 and 24911); ATOM ``prefill[bs=2 tok=14721 ctx=[..]]``,
# ``decode[bs=117/128 tok=117 p=0 d=117]``; xDiT ``execute_diffusion_1_1024x1024``.
_FORMATS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Batch]], ...] = (
    (
        re.compile(
            r"execute_(?:\d+_)?context_(\d{1,18})\((?:sq)?(\d{1,18})[^)]*\)"
            r"_generation_(\d{1,18})\((?:sq)?(\d{1,18})[^)]*\)"
        ),
        _vllm,
    ),
    (re.compile(r"execute_new_(\d{1,18})_cached_(\d{1,18})"), _early_vllm),
    (re.compile(r"step\[(\w+)((?: \w+=\S+)*)\]"), _sglang),
    (re.compile(r"(prefill|decode)\[(bs=.*)\]"), _atom),
    (re.compile(r"execute_diffusion_(\d{1,18})_\d+x\d+"), _diffusion),
)
