"""Bottlenecks to plant into traces of a job, one at a time, and the words of a correct answer."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from trace_edits import (
    PLANTED,
    RUNTIME,
    Edit,
    Event,
    edited,
    launches_of,
    span_us,
    timed_events,
    with_calls,
)

COLLECTIVE = re.compile(r"nccl|rccl", re.IGNORECASE)
_TYPES = {
    "AllReduce": "all_reduce", "AllGather": "all_gather", "ReduceScatter": "reduce_scatter",
    "SendRecv": "all_to_all", "Broadcast": "broadcast",
}  # fmt: skip
_DIRECTIONS = {"HtoD": "from host to device", "DtoH": "from device to host", "DtoD": "within devices"}
_NAME = 60  # number of characters of a kernel's name that an answer must contain
_ENOUGH = 0.3  # share of the trace: synchronisations are added until their waits take this share
_ROOM_US = 24.0  # duration of an added call and its operators if they do not wait


@dataclass
class Plant:
    """A bottleneck: the *name* of its kind, edited traces, and words.

    The answer must contain one word of each item of *words*.
    """

    name: str
    words: tuple[tuple[str, ...], ...]
    traces: list[list[Event]]


def steps(events: list[Event]) -> list[tuple[float, float]]:
    """Return the start and end of each step that the profiler marked, or of the whole trace."""
    timed = timed_events(events)
    marked = [event for event in timed if str(event.get("name", "")).startswith("ProfilerStep#")]
    spans = sorted({(event["ts"], event["ts"] + event["dur"]) for event in marked})
    return spans or [(0.0, max(event["ts"] + event["dur"] for event in timed))]


def operators(events: list[Event], step: tuple[float, float]) -> list[Event]:
    """Return the operators of the step's busiest host thread in order, enclosing operators first."""
    low, high = step
    inside = [event for event in events if event.get("cat") == "cpu_op" and low <= event["ts"] < high]
    (thread, _), *_ = Counter((event["pid"], event["tid"]) for event in inside).most_common(1)
    return sorted((event for event in inside if (event["pid"], event["tid"]) == thread), key=starts)


def leaves(events: list[Event], step: tuple[float, float]) -> list[Event]:
    """Return the operators of the step's busiest host thread that call no other operator and take time."""
    own = operators(events, step)
    return [
        one
        for one, following in zip(own, [*own[1:], None], strict=True)
        if one["dur"] > 0 and (following is None or following["ts"] >= one["ts"] + one["dur"])
    ]


def outermost(events: list[Event], step: tuple[float, float]) -> list[Event]:
    """Return the outermost operators of the step's busiest host thread."""
    found: list[Event] = []
    for event in operators(events, step):
        if not found or event["ts"] >= found[-1]["ts"] + found[-1]["dur"]:
            found.append(event)
    return found


def around(
    events: list[Event], time: float, thread: Any, categories: Sequence[str] = ("cpu_op",)
) -> list[Event]:
    """Return the events of a thread that enclose a point in time, the innermost event last."""
    found = (
        event
        for event in timed_events(events)
        if event.get("cat") in categories and event["tid"] == thread
        and event["ts"] <= time < event["ts"] + event["dur"]
    )  # fmt: skip
    return sorted(found, key=starts)


def starts(event: Event) -> tuple[float, float]:
    """Return the sort key of an event, with enclosing events first."""
    return event["ts"], -event["dur"]


def kernels(events: list[Event], *, communication: bool) -> list[Event]:
    """Return the kernels that communicate, or the kernels that do not communicate, in order."""
    found = (event for event in events if event.get("cat") == "kernel")
    return sorted((e for e in found if bool(COLLECTIVE.search(e["name"])) == communication), key=starts)


def operator_of_kernels(events: list[Event]) -> dict[int, str]:
    """Return the name of the innermost operator that issued each kernel, if any, by the kernel's identity."""
    of_thread: dict[Any, list[Event]] = {}
    for event in events:
        if event.get("cat") == "cpu_op":
            of_thread.setdefault(event["tid"], []).append(event)
    for own in of_thread.values():
        own.sort(key=starts)
    launches = launches_of(events)
    calls = sorted({id(call): call for call in launches.values()}.values(), key=starts)
    names: dict[int, str] = {}
    for thread, own in of_thread.items():
        open_: list[Event] = []
        place = 0
        for call in (call for call in calls if call["tid"] == thread):
            while place < len(own) and own[place]["ts"] <= call["ts"]:
                open_.append(own[place])
                place += 1
            while open_ and open_[-1]["ts"] + open_[-1]["dur"] <= call["ts"]:
                open_.pop()
            inner = [one for one in open_ if one["ts"] + one["dur"] > call["ts"]]
            if inner:
                names[id(call)] = inner[-1]["name"]
    found = {}
    for event in kernels(events, communication=False):
        call = launches.get(event["args"].get("correlation"))
        if call is not None and id(call) in names:
            found[id(event)] = names[id(call)]
    return found


def longer(
    events: list[Event], chosen: Sequence[Event], extra_us: float, *, of_steps: bool = True
) -> list[Event]:
    """Return *events* with longer *chosen* events, so that each step grows by the given time."""
    marks = {_mark(event) for event in chosen}
    factor = extra_us * (len(steps(events)) if of_steps else 1) / max(1.0, sum(e["dur"] for e in chosen))
    return edited(events, Edit(longer=lambda event: factor * event["dur"] * (_mark(event) in marks)))


def _mark(event: Event) -> tuple[Any, ...]:
    return event["name"], event["ts"], event["tid"]


def slower_operator(traces: list[list[Event]], extra_us: float, chance: random.Random) -> Plant | None:
    """Make all kernels of one operator longer, on all ranks."""
    owners = operator_of_kernels(traces[0])
    totals: Counter[str] = Counter()
    for event in kernels(traces[0], communication=False):
        totals[owners.get(id(event), "")] += event["dur"]
    names = [name for name, _ in totals.most_common(6) if name]
    if not names:
        return slower_kernel(traces, extra_us, chance)
    name = chance.choice(names)
    changed, words = [], [name]
    for events in traces:
        owners = operator_of_kernels(events)
        chosen = [e for e in kernels(events, communication=False) if owners.get(id(e)) == name]
        words += [event["name"][:_NAME] for event in chosen]
        changed.append(longer(events, chosen, extra_us))
    return Plant("kernels of an operator", (tuple(dict.fromkeys(words)),), changed)


def slower_kernel(traces: list[list[Event]], extra_us: float, chance: random.Random) -> Plant | None:
    """Make all launches of one kernel longer, on all ranks."""
    totals: Counter[str] = Counter()
    for event in kernels(traces[0], communication=False):
        totals[event["name"]] += event["dur"]
    name = chance.choice([name for name, _ in totals.most_common(5)])
    changed = [
        longer(events, [e for e in kernels(events, communication=False) if e["name"] == name], extra_us)
        for events in traces
    ]
    return Plant("kernel", ((name[:_NAME],),), changed)


def long_launch(traces: list[list[Event]], extra_us: float, chance: random.Random) -> Plant | None:
    """Make a single launch of each step longer, the same on all ranks."""
    share, changed, words = chance.random(), [], []
    for events in traces:
        owners = operator_of_kernels(events)
        chosen = []
        for low, high in steps(events):
            own = [e for e in kernels(events, communication=False) if low <= e["ts"] < high]
            chosen += [own[int(share * len(own))]] if own else []
        words += [word for event in chosen for word in (event["name"][:_NAME], owners.get(id(event), ""))]
        changed.append(longer(events, chosen, extra_us))
    return Plant("one launch", (tuple(word for word in dict.fromkeys(words) if word),), changed)


def slower_collective(traces: list[list[Event]], extra_us: float, chance: random.Random) -> Plant | None:
    """Make collectives of one type longer: all, every second collective, or the collectives of one size."""
    types = Counter(collective_type(event["name"]) for event in kernels(traces[0], communication=True))
    named = [name for name in types if name]
    if not named:
        return None
    chosen, how = chance.choice(sorted(named)), chance.choice(["all", "half", "one size"])
    sizes = Counter(
        _size(event)
        for event in kernels(traces[0], communication=True)
        if collective_type(event["name"]) == chosen
    )
    size = chance.choice(sorted(sizes, key=str))
    changed = []
    for events in traces:
        own = [e for e in kernels(events, communication=True) if collective_type(e["name"]) == chosen]
        own = own[::2] if how == "half" else [e for e in own if how == "all" or _size(e) == size]
        changed.append(longer(events, own, extra_us) if own else events)
    spelled = next(text for text, name in _TYPES.items() if name == chosen)
    return Plant(f"collective, {how}", ((chosen, spelled),), changed)


def collective_type(name: str) -> str:
    """Return the type of the collective that a kernel runs, or "" for other kernels."""
    match = re.search("|".join(_TYPES), name)
    return _TYPES[match[0]] if match else ""


def _size(event: Event) -> Any:
    return (event.get("args") or {}).get("In msg nelems")


def slower_copies(traces: list[list[Event]], extra_us: float, chance: random.Random) -> Plant | None:
    """Make the copies of one direction longer."""
    copies = [event for event in traces[0] if event.get("cat") == "gpu_memcpy"]
    directions = sorted({_direction(event) for event in copies} & {*_DIRECTIONS})
    if not directions:
        return None
    direction = chance.choice(directions)
    changed = []
    for events in traces:
        own = [e for e in events if e.get("cat") == "gpu_memcpy" and _direction(e) == direction]
        changed.append(longer(events, own, extra_us))
    return Plant("slower copies", ((direction, _DIRECTIONS[direction]),), changed)


def _direction(event: Event) -> str:
    words = str(event["name"]).split()
    return words[1] if len(words) > 1 else ""


def host_gap(traces: list[list[Event]], extra_us: float, chance: random.Random) -> Plant | None:
    """Stop the host for the given time between two outermost operators, on all ranks."""
    share = chance.uniform(0.2, 0.8)
    changed, words = [], []
    for events in traces:
        places = []
        for step in steps(events):
            own = outermost(events, step)
            number = max(1, int(share * len(own)))
            if number >= len(own):
                return None
            operator, before = own[number], own[number - 1]
            place = operator["ts"] - 1e-3
            words += [operator["name"]]
            for one in around(events, place, operator["tid"], ("user_annotation", "python_function")):
                if not one["name"].startswith("ProfilerStep"):
                    words.append(one["name"].partition("): ")[2] or one["name"])
            if place > before["ts"] + before["dur"]:
                places.append((place, extra_us))
        if not places:
            return None
        changed.append(edited(events, Edit(places)))
    return Plant("host gap", (tuple(dict.fromkeys(words)),), changed)


def host_stall(traces: list[list[Event]], extra_us: float, chance: random.Random) -> Plant | None:
    """Stop the host for the given time inside one operator of each step, on all ranks."""
    share = chance.uniform(0.2, 0.8)
    changed, words = [], []
    for events in traces:
        places = []
        for step in steps(events):
            own = leaves(events, step)
            operator = own[int(share * len(own))]
            middle = operator["ts"] + operator["dur"] / 2
            words += [one["name"] for one in around(events, middle, operator["tid"])]
            places.append((middle, extra_us))
        changed.append(edited(events, Edit(places)))
    return Plant("host stall in an operator", (tuple(dict.fromkeys(words)),), changed)


def late_rank(traces: list[list[Event]], extra_us: float, chance: random.Random) -> Plant | None:
    """Stop the host of one rank before a collective, in which the other ranks wait for this rank."""
    if len(traces) == 1:
        return None
    late = chance.randrange(len(traces))
    calls = kernels(traces[late], communication=True)
    number = chance.randrange(len(calls) // 2, len(calls))
    step = steps(traces[late])[-1]
    own = [one for one in leaves(traces[late], step) if one["ts"] < calls[number]["ts"]]
    place = own[-min(len(own), chance.randrange(5, 30))]["ts"]
    first = next(index for index, call in enumerate(calls) if call["ts"] > place)
    changed = []
    for rank, events in enumerate(traces):
        if rank == late:
            changed.append(edited(events, Edit([(place - 1e-3, extra_us)])))
        else:
            chosen = kernels(events, communication=True)[first]
            changed.append(longer(events, [chosen], extra_us, of_steps=False))
    words = (f"Rank {late} is late", f"rank {late} is late", f"on rank {late} alone")
    return Plant("late rank", (words,), changed)


class _Calls:
    """Makes runtime calls of a rank, and copies on the stream of the rank's kernels."""

    def __init__(self, events: list[Event], operator: Event) -> None:
        kernel = next(event for event in events if event.get("cat") == "kernel")
        streams = Counter(e["args"].get("stream") for e in kernels(events, communication=False))
        own = [e for e in events if e.get("cat") == "kernel" and e["args"].get("stream") == _most(streams)]
        self._kernel = own[0] if own else kernel
        self._thread = {"ph": "X", "pid": operator["pid"], "tid": operator["tid"]}
        names = {call["name"] for call in launches_of(events).values()}
        self.prefix = "hip" if any(name.startswith("hip") for name in names) else "cuda"

    def operator(self, name: str, ts: float, dur: float) -> Event:
        """Return an operator."""
        return {**self._thread, "cat": "cpu_op", "name": name, "ts": ts, "dur": dur, "args": {}}

    def call(self, name: str, ts: float, dur: float, correlation: int) -> Event:
        """Return a call of the runtime."""
        args = {"correlation": correlation, PLANTED: True}
        return {
            **self._thread, "cat": "cuda_runtime", "name": self.prefix + name, "ts": ts, "dur": dur,
            "args": args,
        }  # fmt: skip

    def copy(self, name: str, ts: float, dur: float, correlation: int) -> Event:
        """Return a copy on the stream."""
        place = {key: self._kernel["args"].get(key) for key in ("device", "context", "stream")}
        args = place | {"correlation": correlation, "bytes": 1 << 20, PLANTED: True}
        own = {key: self._kernel[key] for key in ("ph", "pid", "tid")}
        return {**own, "cat": "gpu_memcpy", "name": name, "ts": ts, "dur": dur, "args": args}


def _most(counter: Counter[Any]) -> Any:
    return counter.most_common(1)[0][0] if counter else None


def _copied(calls: _Calls, kind: str, inside: Sequence[str]) -> Callable[[float, int], list[Event]]:
    """Return a function that makes a copy of 24 us of a *kind* (``"HtoD Pinned"``) *inside* operators."""
    direction, memory = kind.split()
    ends = (f"{memory} -> Device", f"Device -> {memory}")[direction == "DtoH"]

    def make(ts: float, number: int) -> list[Event]:
        nested = [calls.operator(name, ts + at / 10, 24 - at / 5) for at, name in enumerate(inside)]
        copy = calls.copy(f"Memcpy {direction} ({ends})", ts + 3, 2, number)
        if memory == "Pinned":
            return [*nested, calls.call("MemcpyAsync", ts + 1, 1.5, number), copy]
        # A call that copies pageable memory returns after the copy, and PyTorch then synchronises the stream.
        sync = calls.call("StreamSynchronize", ts + 12, 6, number + 1)
        return [*nested, calls.call("MemcpyAsync", ts + 1, 8, number), copy, sync]

    return make


def _synchronised(calls: _Calls, name: str, inside: Sequence[str]) -> Callable[[float, int], list[Event]]:
    def make(ts: float, number: int) -> list[Event]:
        nested = [calls.operator(one, ts + at / 10, 24 - at / 5) for at, one in enumerate(inside)]
        return [*nested, calls.call(name, ts + 4, 8, number)]

    return make


def _places(events: list[Event], count: int, share: float) -> Iterator[tuple[Event, float]]:
    """Yield places between operators of each step, with the operator that follows each."""
    for step in steps(events):
        own = outermost(events, step)
        gaps = [
            (operator, operator["ts"] - 1e-3)
            for before, operator in pairwise(own)
            if operator["ts"] - 2e-3 > before["ts"] + before["dur"]
        ]
        for number in range(min(count, len(gaps))):
            yield gaps[int((number + share) * len(gaps) / count) % len(gaps)]


def added_copies(traces: list[list[Event]], extra_us: float, chance: random.Random) -> Plant | None:
    """Copy between host and device in each step, from pageable or pinned memory, in copying operators."""
    kind = chance.choice(["HtoD Pageable", "HtoD Pinned", "DtoH Pageable"])
    inside = ("aten::to", "aten::_to_copy", "aten::copy_")
    count, share = chance.choice([1, 4, 12]), chance.random()
    changed = []
    for events in traces:
        places = list(_places(events, count, share))
        if not places:
            return None
        make = _copied(_Calls(events, places[0][0]), kind, inside)
        added = with_calls(events, [place for _, place in places], _ROOM_US, make)
        own = [e for e in added if e.get("cat") == "gpu_memcpy" and e["args"].get(PLANTED)]
        changed.append(longer(added, own, extra_us))
    direction = kind.split()[0]
    return Plant(f"added copies, {kind}", ((direction, _DIRECTIONS[direction]), ("aten::copy_",)), changed)


def added_synchronisations(traces: list[list[Event]], _: float, chance: random.Random) -> Plant | None:
    """Synchronise often enough in each step to matter: the device, a stream in an operator, or an item."""
    how = chance.choice(["DeviceSynchronize", "StreamSynchronize in aten::nonzero", "item"])
    share = chance.random()
    for count in (2, 8, 32, 128):
        changed = [_drained(events, how, count, share) for events in traces]
        pairs = list(zip(changed, traces, strict=True))
        if all(_waited_us(new, old) > _ENOUGH * span_us(old) for new, old in pairs):
            break
    else:
        return None
    words = {"item": ("aten::item", "aten::_local_scalar_dense"), "DeviceSynchronize": ("DeviceSynchronize",)}
    own = words.get(how, ("aten::nonzero",))
    return Plant(f"added {how}, {count} times", (own,), changed)


def _waited_us(new: list[Event], old: list[Event]) -> float:
    """Return the time by which the waits in added calls make *new* longer."""
    added = sum(bool((event.get("args") or {}).get(PLANTED)) and event["cat"] in RUNTIME for event in new)
    return span_us(new) - span_us(old) - added * _ROOM_US


def _drained(events: list[Event], how: str, count: int, share: float) -> list[Event]:
    places = list(_places(events, count, share))
    if not places:
        return events
    calls = _Calls(events, places[0][0])
    if how == "item":
        make = _copied(calls, "DtoH Pageable", ("aten::item", "aten::_local_scalar_dense"))
    else:
        name, _, inside = how.partition(" in ")
        make = _synchronised(calls, name, [inside] if inside else [])
    return with_calls(events, [place for _, place in places], _ROOM_US, make)


PLANTS: tuple[Callable[..., Plant | None], ...] = (
    slower_kernel, slower_operator, long_launch, slower_collective, slower_copies, added_copies,
    added_synchronisations, host_gap, host_stall, late_rank,
)  # fmt: skip
