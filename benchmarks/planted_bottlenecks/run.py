"""Plant one known bottleneck at a time into Kineto traces of GPUs, and test whether the summary names it.

    python benchmarks/planted_bottlenecks/run.py FOLDER_OR_TRACE ... [--seed 1] [--part held]

A folder contains the traces of one job's ranks; a single trace is a job of one rank. The seed determines the
places and sizes of the planted bottlenecks. ``--part develop`` selects 60 % of the bottlenecks, and ``--part
held`` selects the others, so that rules can be developed with some bottlenecks and tested with the others.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from plants import PLANTS, Plant, steps
from trace_edits import Event, launches_of

from chakrascope.converter import convert_files
from chakrascope.errors import ChakrascopeError
from chakrascope.runner import Study, get_backend, prepare
from chakrascope.runner.analysis import RunAnalysis, analyse_run

LEAST_LONGER = 1.2  # ratio of step times: a plant with a smaller ratio is no bottleneck
_HELD = 0.4
_SHARES = (0.4, 0.8, 1.6)
_MAX_STEPS = 3


def read_job(path: Path) -> tuple[list[list[Event]], int]:
    """Return the events of each rank's trace at *path*, at most three steps, and how many ranks the job has.

    Times count from the first event (us), as large numbers have no room for fractions.
    """
    ranks, world_size = [], 1
    for file in sorted(path.glob("*.json*")) if path.is_dir() else [path]:
        data = file.read_bytes()
        trace = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        info = trace.get("distributedInfo") or {}
        world_size = max(world_size, int(info.get("world_size", 1)))
        timed = [
            e for e in trace["traceEvents"] if e.get("ph") == "X" and e.get("cat") != "gpu_user_annotation"
        ]
        first = min(event["ts"] for event in timed)
        for event in timed:
            event["ts"] -= first
        ranks.append(_last_steps(timed))
    return ranks, world_size


def _last_steps(events: list[Event]) -> list[Event]:
    """Return the last steps, without the device work that was launched before them."""
    spans = steps(events)
    if len(spans) <= _MAX_STEPS:
        return events
    begin = spans[-_MAX_STEPS][0]
    launches = launches_of(events)
    return [
        event
        for event in events
        if launches.get((event.get("args") or {}).get("correlation"), event)["ts"] >= begin <= event["ts"]
    ]


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
    """Return whether the headline and the first advice contain the plant's words."""
    text = "\n".join([run.summary.headline, *(item.what for item in run.advices()[:1])])
    return all(any(word in text for word in words) for words in plant.words)


def results(path: Path, seed: int, part: str, only: str) -> Iterator[tuple[bool, str]]:
    """Yield whether each drawn bottleneck was named, and the answer."""
    traces, world_size = read_job(path)
    with tempfile.TemporaryDirectory() as scratch:
        step_us = largest_ns = 0.0
        for number, make in enumerate(PLANTS):
            chance = random.Random(f"{seed} {path.name} {make.__name__}")
            share, held = chance.choice(_SHARES), chance.random() < _HELD
            if (part != "all" and held != (part == "held")) or only not in make.__name__:
                continue
            if not step_us:
                plain = analysed(traces, world_size, Path(scratch) / "plain")
                step_us = plain.result.makespan_ns / 1000
                causes = (one for one in plain.summary.causes if one.cause != "dispatch")
                largest_ns = max((one.path_ns for one in causes), default=0)
            plant = make(traces, share * step_us, chance)
            if plant is None:
                continue
            about = f"{path.name[:40]}: {plant.name}, {share:g} of the step, {plant.words[0][0][:60]!r}"
            try:
                run = analysed(plant.traces, world_size, Path(scratch) / str(number))
            except ChakrascopeError as error:
                yield False, f"{about}\n    {error}"
                continue
            added_ns = run.result.makespan_ns - 1000 * step_us
            if added_ns < max((LEAST_LONGER - 1) * 1000 * step_us, largest_ns):
                continue  # idle time covers it, or something else bounds the step
            advices = "".join(
                f"\n      {item.what} [{item.gain_ns / 1e6:.2f} ms, {item.key[:60]}]"
                for item in run.advices()
            )
            yield is_named(run, plant), f"{about}\n    {run.summary.headline}{advices}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Plant bottlenecks into each job, and print which are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("jobs", nargs="+", type=Path, help="Folders of Kineto traces, or traces.")
    parser.add_argument("--seed", type=int, default=1, help="Seed of the random choice. [default: 1]")
    parser.add_argument("--part", choices=["all", "develop", "held"], default="all", help="[default: all]")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="Plant only kinds of bottleneck whose name contains TEXT."
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="Print all answers.")
    given = parser.parse_args(arguments)
    outcomes = []
    for path in given.jobs:
        for named, text in results(path, given.seed, given.part, given.only):
            outcomes.append(named)
            shown = text if given.verbose or not named else text.partition("\n")[0]
            print(f"{'named ' if named else 'MISSED'} {shown}", flush=True)
    print(f"{sum(outcomes)} of {len(outcomes)} named")


if __name__ == "__main__":
    main()
