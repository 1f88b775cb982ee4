"""Plant one known bottleneck at a time into Kineto traces of GPUs, and see whether the summary names it.

    python benchmarks/planted_bottlenecks.py TRACE_FOLDER ... [--seed 1]

Each folder holds the traces of one job's ranks. A plant changes times only and keeps every order that the
trace had: what ended before something began still does, a kernel starts after its launch and the kernels
before it on its stream, and a call that waited for the device returns after what it waited for.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import tempfile
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chakrascope.converter import convert_files
from chakrascope.runner import Study, get_backend, prepare
from chakrascope.runner.analysis import RunAnalysis, analyse_run

Event = dict[str, Any]
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME = ("cuda_runtime", "cuda_driver")
WAITS = re.compile(r"Synchronize")
COLLECTIVE = re.compile(r"nccl", re.IGNORECASE)
WAITED_WITHIN_US = 20.0
SHARES = (0.5, 1.0, 2.0)
LEAST_LONGER = 1.2  # of the step: a plant that makes it less than this as long is no bottleneck


@dataclass
class Plant:
    """A bottleneck: the *name* of its kind, *words* one of which the answer has to hold, edited traces."""

    name: str
    words: tuple[str, ...]
    traces: list[list[Event]]


@dataclass
class Edit:
    """What changes in one rank: time (us) inserted on the host by place, and added to device events."""

    inserted: list[tuple[float, float]] = field(default_factory=list)
    longer: Callable[[Event], float] = lambda _: 0.0


def edited(events: list[Event], edit: Edit) -> list[Event]:
    """Return *events* with an edit, and everything that has to wait for it later."""
    events = [dict(event) for event in events]
    timed = [event for event in events if event.get("ph") == "X"]
    device = [event for event in timed if event.get("cat") in DEVICE]
    launches = {
        event["args"]["correlation"]: event
        for event in timed
        if event.get("cat") in RUNTIME and "correlation" in event.get("args", {})
    }
    waits = [event for event in launches.values() if WAITS.search(event["name"])]
    points = [(event["ts"], 1, event) for event in device]
    points += [(event["ts"] + event["dur"], 0, event) for event in waits]
    moved = _moved(points, launches, _Warp(edit.inserted), edit)
    warp = moved.warp
    for event in timed:
        start, end = event["ts"], event["ts"] + event["dur"]
        start, end = moved.device.get(id(event)) or (warp.at(start), warp.at(end, is_end=True))
        event["ts"], event["dur"] = start, end - start
    return events


@dataclass
class _Moved:
    """New times: of device events by identity, and of the host."""

    warp: _Warp
    device: dict[int, tuple[float, float]] = field(default_factory=dict)
    ended: list[tuple[float, float]] = field(default_factory=list)  # old and new ends, in order of the old

    def latest(self, since: float, until: float) -> float:
        """Return the latest new end of what ended in a span of old time."""
        low, high = (bisect_left(self.ended, (time,)) for time in (since, until + 1e-6))
        return max((new for _, new in self.ended[low:high]), default=float("-inf"))


def _moved(
    points: list[tuple[float, int, Event]], launches: Mapping[Any, Event], warp: _Warp, edit: Edit
) -> _Moved:
    moved = _Moved(warp)
    on_stream: dict[Any, float] = {}
    for time, is_device, event in sorted(points, key=lambda point: point[:2]):
        if not is_device:
            warp.delay_until(time, moved.latest(event["ts"], time))
            continue
        launch = launches.get(event["args"].get("correlation"))
        stream = event["args"].get("stream")
        issued = warp.at(launch["ts"]) if launch is not None else time
        # A queued kernel that began when one of another stream had just ended waited for it.
        asked = launch["ts"] + launch["dur"] if launch is not None else time
        awaited = moved.latest(max(asked, time - WAITED_WITHIN_US), time)
        start = max(time, issued, awaited, on_stream.get(stream, time))
        end = start + event["dur"] + edit.longer(event)
        moved.device[id(event)] = (start, end)
        insort(moved.ended, (time + event["dur"], end))
        on_stream[stream] = end
    return moved


class _Warp:
    """Time on the host: what was inserted, in order."""

    def __init__(self, inserted: list[tuple[float, float]]) -> None:
        self._inserted = sorted(inserted)

    def at(self, time: float, *, is_end: bool = False) -> float:
        """Return the new time of an old one; an end is not moved by what is inserted at that instant."""
        return time + sum(us for at, us in self._inserted if at < time or (at == time and not is_end))

    def delay_until(self, time: float, moment: float) -> None:
        """Have the wait that ended at *time* end no earlier than *moment*."""
        late = moment - self.at(time, is_end=True)
        if late > 0:
            before = time - 1e-3
            self._inserted = sorted([*self._inserted, (before, late)])


def steps(events: list[Event]) -> list[tuple[float, float]]:
    """Return when each step that the profiler marked begins and ends; of a trace without, all of it."""
    marked = [event for event in events if str(event.get("name", "")).startswith("ProfilerStep#")]
    spans = sorted({(event["ts"], event["ts"] + event["dur"]) for event in marked if event.get("ph") == "X"})
    timed = [event for event in events if event.get("ph") == "X"]
    return spans or [(0.0, max(event["ts"] + event["dur"] for event in timed))]


def leaves(events: list[Event], step: tuple[float, float]) -> list[Event]:
    """Return the operators of the step's busiest host thread that call no other and take time."""
    low, high = step
    operators = [event for event in events if event.get("cat") == "cpu_op" and low <= event["ts"] < high]
    thread, _ = Counter((event["pid"], event["tid"]) for event in operators).most_common(1)[0]
    own = sorted((event for event in operators if (event["pid"], event["tid"]) == thread), key=_starts)
    return [
        one
        for one, following in zip(own, [*own[1:], None], strict=True)
        if one["dur"] > 0 and (following is None or following["ts"] >= one["ts"] + one["dur"])
    ]


def around(events: list[Event], operator: Event) -> tuple[str, ...]:
    """Return the name of *operator* and of those that called it."""
    low, high = operator["ts"], operator["ts"] + operator["dur"]
    return tuple(
        event["name"]
        for event in events
        if event.get("cat") == "cpu_op" and event["tid"] == operator["tid"]
        and event["ts"] <= low and high <= event["ts"] + event["dur"]
    )  # fmt: skip


def _starts(event: Event) -> tuple[float, float]:
    return event["ts"], -event["dur"]


def kernels(events: list[Event], *, communication: bool) -> list[Event]:
    """Return the kernels that communicate, or those that do not, in order."""
    found = (event for event in events if event.get("cat") == "kernel")
    return sorted((e for e in found if bool(COLLECTIVE.search(e["name"])) == communication), key=_starts)


def slower_kernel(traces: list[list[Event]], extra_us: float, chance: random.Random) -> Plant:
    """Make all launches of one kernel longer, on all ranks, by so much in all."""
    totals: Counter[str] = Counter()
    for event in kernels(traces[0], communication=False):
        totals[event["name"]] += event["dur"]
    name = chance.choice([name for name, _ in totals.most_common(5)])
    return Plant("kernel", (name[:60],), [_longer(events, name.__eq__, extra_us) for events in traces])


def slower_collective(traces: list[list[Event]], extra_us: float, chance: random.Random) -> Plant:
    """Make the collectives of one type longer: all of them, or every other one."""
    kinds = Counter(_collective(event["name"]) for event in kernels(traces[0], communication=True))
    kind = chance.choice([kind for kind in ("all_reduce", "all_to_all") if kinds[kind]])
    half = chance.random() < 0.5
    changed = [
        _longer(events, lambda name: _collective(name) == kind, extra_us, half=half) for events in traces
    ]
    return Plant("half of the collectives" if half else "collective", (kind,), changed)


def _collective(name: str) -> str:
    match = re.search(r"AllReduce|AllGather|ReduceScatter|SendRecv|Broadcast", name)
    kinds = {"AllReduce": "all_reduce", "SendRecv": "all_to_all"}
    return kinds.get(match[0], match[0]) if match else ""


def slow_copy(traces: list[list[Event]], extra_us: float, _: random.Random) -> Plant | None:
    """Make the copies of the most frequent direction longer."""
    names = Counter(event["name"] for event in traces[0] if event.get("cat") == "gpu_memcpy")
    if not names:
        return None
    direction = names.most_common(1)[0][0].split(" (")[0]
    changed = [_longer(events, lambda name: name.startswith(direction), extra_us) for events in traces]
    return Plant("copy", (direction.split()[1],), changed)


def _longer(
    events: list[Event], test: Callable[[str], bool], extra_us: float, *, half: bool = False
) -> list[Event]:
    """Return *events* with the device's chosen ones as many times as long as adds so much to each step."""
    own = sorted((e for e in events if e.get("cat") in DEVICE and test(e["name"])), key=_starts)
    own = own[::2] if half else own
    marks = {_mark(event) for event in own}
    factor = extra_us * len(steps(events)) / max(1.0, sum(event["dur"] for event in own))
    return edited(events, Edit(longer=lambda event: factor * event["dur"] * (_mark(event) in marks)))


def _mark(event: Event) -> tuple[Any, ...]:
    return event["name"], event["ts"], event["tid"]


def longer_gap(traces: list[list[Event]], extra_us: float, chance: random.Random) -> Plant:
    """Stop the host for so long before one operator of each step, on all ranks."""
    return _stopped("host gap", traces, extra_us, chance, 0.0)


def longer_operator(traces: list[list[Event]], extra_us: float, chance: random.Random) -> Plant:
    """Stop the host for so long inside one operator of each step, on all ranks."""
    return _stopped("host stall in an operator", traces, extra_us, chance, 0.5)


def _stopped(
    name: str, traces: list[list[Event]], extra_us: float, chance: random.Random, inside: float
) -> Plant:
    share = chance.uniform(0.2, 0.8)
    changed, words = [], []
    for events in traces:
        places = []
        for step in steps(events):
            own = leaves(events, step)
            operator = own[int(share * len(own))]
            words += around(events, operator)
            places.append((operator["ts"] + inside * operator["dur"] - 1e-3 * (not inside), extra_us))
        changed.append(edited(events, Edit(places)))
    return Plant(name, tuple(dict.fromkeys(words)), changed)


def late_rank(traces: list[list[Event]], extra_us: float, chance: random.Random) -> Plant | None:
    """Stop one rank's host before a collective, in which the others wait for it."""
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
            mark = _mark(kernels(events, communication=True)[first])
            changed.append(edited(events, Edit(longer=lambda e, mark=mark: extra_us * (_mark(e) == mark))))
    return Plant(
        "late rank", (f"Rank {late} is late", f"rank {late} is late", f"on rank {late} alone"), changed
    )


PLANTS: tuple[Callable[..., Plant | None], ...] = (
    slower_kernel, slower_collective, slow_copy, longer_gap, longer_operator, late_rank,
)  # fmt: skip


def analysed(traces: list[list[Event]], world_size: int, folder: Path) -> RunAnalysis:
    """Convert and replay *traces*; returns the run."""
    folder.mkdir(parents=True)
    for rank, events in enumerate(traces):
        header = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": world_size}}
        text = json.dumps(header | {"traceEvents": events})
        (folder / f"kineto_{rank}.json.gz").write_bytes(gzip.compress(text.encode(), 1))
    workload = convert_files(device_trace=str(folder / "kineto_{rank}.json.gz"))
    study = Study.create(folder / "study")
    prefix = study.add_workload(workload, "job")
    experiment = prepare(prefix, "default", None, backend="replay", semantics="trace")
    study.add_run(experiment, get_backend("replay").run(experiment), workload="job")
    return analyse_run(study)


def is_named(run: RunAnalysis, plant: Plant) -> bool:
    """Return whether the headline or the first advice holds one of the plant's words."""
    said = [run.summary.headline, *(item.what for item in run.advices()[:1])]
    return any(word in text for word in plant.words for text in said)


def read_traces(folder: Path) -> tuple[list[list[Event]], int]:
    """Return the events of each rank's trace in *folder*, and how many ranks the job has.

    Times count from the first event (us), as large numbers have no room for fractions.
    """
    ranks, world_size = [], 1
    for file in sorted(folder.glob("*.json*")):
        data = file.read_bytes()
        trace = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        events, info = trace["traceEvents"], trace.get("distributedInfo") or {}
        world_size = max(world_size, int(info.get("world_size", 1)))
        ranks.append(
            [e for e in events if e.get("ph") in ("X", "M") and e.get("cat") != "gpu_user_annotation"]
        )
    return ranks, world_size


def plants(folder: Path, seed: int) -> Iterator[tuple[bool, str]]:
    """Yield for each kind of bottleneck in each size whether it was named, and what was said."""
    traces, world_size = read_traces(folder)
    chance = random.Random(f"{seed} {folder.name}")
    with tempfile.TemporaryDirectory() as scratch:
        step_us = analysed(traces, world_size, Path(scratch) / "plain").result.makespan_ns / 1000
        for number, (make, share) in enumerate((make, share) for make in PLANTS for share in SHARES):
            plant = make(traces, share * step_us, chance)
            if plant is None:
                continue
            run = analysed(plant.traces, world_size, Path(scratch) / str(number))
            if run.result.makespan_ns < LEAST_LONGER * step_us * 1000:
                continue  # idle time covers it, so it bounds nothing
            about = f"{folder.name}: {plant.name}, {share:g} of the step, {plant.words[-1][:50]!r}"
            whats = "; ".join(item.what for item in run.advices())
            yield is_named(run, plant), f"{about}\n    {run.summary.headline}\n    {whats}"


def main() -> None:
    """Plant each kind of bottleneck in three sizes into each job, and print which are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, help="Folders of Kineto traces, one job each.")
    parser.add_argument("--seed", type=int, default=1, help="Seed of the choices. [default: 1]")
    arguments = parser.parse_args()
    results = []
    for folder in arguments.folders:
        for named, text in plants(folder, arguments.seed):
            results.append(named)
            print(f"{'named ' if named else 'MISSED'} {text.partition(chr(10))[0] if named else text}")
    print(f"{sum(results)} of {len(results)} named")


if __name__ == "__main__":
    main()
