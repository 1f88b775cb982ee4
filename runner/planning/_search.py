"""Search the plans to train a model: estimate every plan, and simulate the plans that may be best."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from ...errors import BackendError, StudyError, UsageError
from ...support import bytes_text, load_json, write_file, writing
from ..prediction import Setting, needed_ns, uncertainty
from ..study import Study, check_name
from ..sweep import Answer, Places, PointTable, Work
from ._estimate import Candidate, EstimateWork, possible_degrees
from ._request import CHOICES, Request
from ._simulate import Chooser, SimulateWork, front, is_long, setting_of

_ROWS = 10_000


def search_table(
    request: Request, candidates: Sequence[Candidate], figures: np.ndarray, answers: Mapping[int, Answer]
) -> tuple[pd.DataFrame, list[int]]:
    """Return a table of the best *candidates*, and their numbers in the order of rows.

    Simulated plans come first, with the fastest plan on top. At most 10,000 other plans follow, and then all
    remaining plans on the Pareto front. For comparison with simulated steps, estimated times are scaled by
    the median ratio of simulated to estimated times. Times are in ns, and memory is in bytes. ``cost`` is a
    price, or chip-seconds without prices. ``front`` marks the Pareto front of step, memory and cost.
    *figures* contains the estimates.
    """
    done = [number for number, answer in answers.items() if answer["state"] == "done"]
    simulated = np.zeros(len(candidates), dtype=bool)
    simulated[done] = True
    figures = figures.copy()
    if done:
        makespans_ns = np.array([answers[number]["makespan_ns"] for number in done])
        figures[:, [0, 2]] *= np.median(makespans_ns / figures[done, 0])
    for number in done:
        step = answers[number]["makespan_ns"]
        figures[number, [0, 2]] = step, request.cost(request.clusters[candidates[number].cluster], step)
    numbers = np.setdiff1d(np.arange(len(candidates)), [*(answers.keys() - set(done))])
    order = numbers[np.lexsort((numbers, figures[numbers, 0], ~simulated[numbers]))]
    on_front = np.zeros(len(candidates), dtype=bool)
    on_front[order] = front(figures[order])
    shown = order[(np.arange(len(order)) < _ROWS) | on_front[order]]
    table = pd.DataFrame(
        [
            _row(request, candidates[number], int(figures[number, 0]), bool(simulated[number]))
            for number in shown
        ]
    )
    table.insert(table.columns.get_loc("simulated"), "front", on_front[shown])
    return table, shown.tolist()


def _row(request: Request, candidate: Candidate, step_ns: int, simulated: bool) -> dict[str, Any]:
    cluster = request.clusters[candidate.cluster]
    setting = setting_of(request, candidate)
    low, high = uncertainty(setting)
    tokens = request.global_batch * (request.sequence or request.model.sequence)
    return {
        "chip": cluster.chip.name,
        "gpus": cluster.network.num_ranks,
        **dict(zip(CHOICES, candidate.choices, strict=True)),
        "software": candidate.software,
        "step_ns": step_ns,
        "step_low_ns": round(step_ns * low),
        "step_high_ns": round(step_ns * high),
        "tokens_per_s": tokens / step_ns * 1e9,
        "utilisation": needed_ns(setting) / step_ns,
        "memory_bytes": candidate.memory_bytes,
        "cost": request.cost(cluster, step_ns),
        "simulated": simulated,
    }


SearchProgress = Callable[[str, int, int], None]
"""Callback with the current phase (``estimate`` or ``simulate``), the number done, and the total number."""

_START, _ESTIMATES = "start.json", "estimates.txt"
_ESTIMATES_OF_0_2 = "estimates.jsonl"  # had no checksums, and is no longer read


@dataclass(frozen=True, eq=False)
class Plans:
    """The result of a search for plans.

    * *table* contains the best of the *possible* plans that fit, best first (see `search_table`).
    * *combinations* counts the possible degrees. *refused_degrees* and *refused* count the impossible degrees
      and plans by reason.
    * The first *simulated* rows were simulated. *reused* of these plans were simulated in an earlier search.
    * *error* is the largest error of the estimates of simulated plans.
    * *is_certain* states that no estimate with this error could make another plan the best.
    * *settings* contains the arguments of `predict` for each simulated row.
    * *name* is the name of the sweep in the study, or ``""`` without a study.
    """

    request: Request
    table: pd.DataFrame
    combinations: int
    refused_degrees: Mapping[str, int]
    refused: Mapping[str, int]
    possible: int
    simulated: int
    reused: int
    error: float
    is_certain: bool
    settings: tuple[Setting, ...]
    name: str = ""

    @property
    def certainty(self) -> str:
        """A sentence on whether a plan that was not simulated could be the best plan."""
        if self.is_certain:
            return "even with this error, no other plan would be the best"
        return "with this error, a plan that was not simulated could be the best, so simulate more plans"

    @property
    def assumptions(self) -> list[str]:
        """The assumptions common to all plans, one sentence each."""
        request = self.request
        tokens = request.sequence or request.model.sequence
        notes = [f"A step has {request.global_batch} sequences of {tokens} tokens in every plan"]
        notes += [
            f"{cluster.network.num_ranks} x {cluster.chip.title} on the network '{cluster.network.name}': "
            f"a rank may hold {bytes_text(request.memory_bytes(cluster))}; the rest is for fragmentation "
            "of PyTorch's allocator and for NCCL's buffers"
            for cluster in request.clusters
        ]
        return [*notes, "Plans are compared by the operator times of each suitable software on the chip"]


def search_plans(
    request: Request,
    *,
    study: Study | None = None,
    name: str | None = None,
    workers: int | None = 0,
    cluster: str | None = None,
    top: int = 8,
    most: int = 16,
    progress: SearchProgress = lambda *_: None,
) -> Plans:
    """Estimate every plan of *request*, and simulate from *top* to *most* of the plans that may be the best.

    In a *study*, the simulated plans become a resumable sweep called *name* (by default named after the
    request). *workers* and *cluster* are the options of `run_sweep`. The function raises `UsageError` if no
    plan is possible or fits, and `BackendError` if no plan could be simulated.
    """
    degrees, refused_degrees = possible_degrees(request)
    if not degrees:
        raise UsageError(f"The ranks cannot be split: {_reasons(refused_degrees)}. {_NEXT}")
    named = name or f"plans-{request.content_hash[:8]}"
    check_name(named, "a sweep")
    folder = None if study is None else study.sweep_dir(named)
    with TemporaryDirectory() as scratch, nullcontext() if folder is None else PointTable(folder) as table:
        where = folder or Path(scratch)
        _begin(where, request)
        runner = _Runner(request, where, cluster, workers, progress)
        works = [EstimateWork(number, request, each) for number, each in enumerate(degrees)]
        candidates, refused = runner.estimate(works)
        if not candidates:
            raise UsageError(f"No plan is possible: {_reasons(refused)}. {_NEXT}")
        figures = _figures(request, candidates)
        chooser = Chooser(candidates, figures, _long(request, candidates), top, most)
        answers, reused = runner.simulate(chooser, table)
    if not chooser.known:
        error = next((answer["error"] for answer in answers.values() if answer["state"] == "failed"), "")
        raise BackendError(f"No plan could be simulated: {error}")
    ranked, numbers = search_table(request, candidates, figures, answers)
    rest = (number for number in range(len(candidates)) if number not in chooser.known)
    best_of_rest = next(rest, None)
    return Plans(
        request=request,
        table=ranked,
        combinations=len(degrees),
        refused_degrees=dict(refused_degrees),
        refused=dict(refused),
        possible=len(candidates) - sum(answer["state"] == "failed" for answer in answers.values()),
        simulated=len(chooser.known),
        reused=reused,
        error=chooser.error,
        is_certain=best_of_rest is None or not chooser.may_win(best_of_rest),
        settings=tuple(
            setting_of(request, candidates[number]) for number in numbers if number in chooser.known
        ),
        name="" if folder is None else folder.name,
    )


_NEXT = (
    "Next: add GPUs (--gpus), change --global-batch, raise --limit memory=, or leave out an option that "
    "allows only some plans."
)


def _reasons(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return "; ".join(f"{reason} ({count:,} times)" for reason, count in ordered) or "the options allow none"


def settings_of(request: Request, candidate: Candidate) -> dict[str, Any]:
    """Return the values of *candidate* in the columns of a sweep."""
    cluster = request.clusters[candidate.cluster]
    chosen = dict(zip(CHOICES, candidate.choices, strict=True))
    several = {"chip": cluster.chip.name, "gpus": cluster.network.num_ranks}
    return {**(several if len(request.clusters) > 1 else {}), **chosen}


def _figures(request: Request, candidates: list[Candidate]) -> np.ndarray:
    steps = [round(each.estimate_ns) for each in candidates]
    return np.array([
        (step, each.memory_bytes, request.cost(request.clusters[each.cluster], step))
        for each, step in zip(candidates, steps, strict=True)
    ])  # fmt: skip


def _long(request: Request, candidates: list[Candidate]) -> np.ndarray:
    dp, size = CHOICES.index("dp"), CHOICES.index("micro_batch")
    batches = (request.global_batch // (each.choices[dp] * each.choices[size]) for each in candidates)
    return np.array([is_long(request.model, count) for count in batches], dtype=bool)


def _begin(folder: Path, request: Request) -> None:
    """Write the request to the folder, or raise `StudyError` if the folder contains another search."""
    file = folder / _START
    described = request.describe()
    try:
        before = load_json(file) if file.is_file() else described
    except (OSError, ValueError) as error:
        raise StudyError(f"{file} is damaged ({error}). Next: restore it, or give another --name.") from error
    if before != described:
        raise StudyError(
            f"The study already has another '{folder.name}'. Next: give the search another --name."
        )
    with writing(f"The sweep {folder}", StudyError):
        (folder / _ESTIMATES_OF_0_2).unlink(missing_ok=True)
        write_file(file, json.dumps(described, indent=2) + "\n")


class _Runner:
    """Executes estimates and simulations, and caches the results in *folder*."""

    def __init__(
        self,
        request: Request,
        folder: Path,
        cluster: str | None,
        workers: int | None,
        progress: SearchProgress,
    ) -> None:
        self.request, self.folder, self.progress = request, folder, progress
        self._cluster, self._workers = cluster, workers

    def estimate(self, works: list[EstimateWork]) -> tuple[list[Candidate], Counter[str]]:
        """Return all candidates within the limits, best first, and the counts of refused plans by reason."""
        file = self.folder / _ESTIMATES
        cached = self._stored_results(file)
        refused: Counter[str] = Counter()
        candidates: list[Candidate] = []
        for done, answer in enumerate(self._estimates(works, cached, file), 1):
            refused.update(answer["refused"])
            for cluster, choices, software, step, memory in answer["candidates"]:
                candidate = Candidate(cluster, tuple(choices), software, step, memory)
                reason = self._excess(candidate)
                if reason:
                    refused[reason] += 1
                else:
                    candidates.append(candidate)
            self.progress("estimate", done, len(works))
        candidates.sort(key=lambda each: (each.estimate_ns, each.memory_bytes))
        return candidates, refused

    def _estimates(self, works: list[EstimateWork], known: dict[str, Answer], file: Path) -> Iterator[Answer]:
        yield from known.values()
        left: Iterator[Work] = iter([work for work in works if _key(work) not in known])
        with file.open("a", encoding="utf-8") as stream:
            for work, answer in self._answers(left, len(works)):
                if answer["state"] == "failed":
                    raise BackendError(str(answer["error"]))
                stream.write(_line({"degrees": _key(work), **answer}))
                yield answer

    def _stored_results(self, file: Path) -> dict[str, Answer]:
        """Return the results of an interrupted search, without truncated and damaged lines."""
        answers: dict[str, Answer] = {}
        content = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        lines = content.splitlines(keepends=True)
        for line in lines:
            text = line.partition(" ")[2]
            if line == _checked(text):
                answer = json.loads(text)
                answers[answer["degrees"]] = answer
        if len(answers) < len(lines):
            write_file(file, "".join(map(_line, answers.values())))
        return answers

    def _excess(self, candidate: Candidate) -> str:
        limits, cluster = self.request.limits, self.request.clusters[candidate.cluster]
        if limits.step_ns is not None and candidate.estimate_ns > limits.step_ns:
            return "a longer step than the limit"
        if limits.cost is not None and self.request.cost(cluster, candidate.estimate_ns) > limits.cost:
            return "a higher cost than the limit"
        return ""

    def simulate(self, chooser: Chooser, table: PointTable | None) -> tuple[dict[int, Answer], int]:
        """Simulate the chosen candidates that *table* lacks, and return all answers by candidate number."""
        answers: dict[int, Answer] = {}
        reused = 0

        def works() -> Iterator[Work]:
            nonlocal reused
            for number in chooser.choose():
                row = self._row(table, chooser.candidates[number])
                if row is None:
                    yield SimulateWork(number, setting_of(self.request, chooser.candidates[number]))
                else:
                    reused += 1
                    answers[number] = row
                    chooser.known[number] = row["makespan_ns"]

        for work, answer in self._answers(works(), chooser.most):
            number = work.number
            answers[number] = answer
            if answer["state"] == "done":
                chooser.known[number] = answer["makespan_ns"]
            if table is not None:
                self._put(table, chooser.candidates[number], answer)
            self.progress("simulate", len(answers), len(chooser.asked))
        return answers, reused

    def _row(self, table: PointTable | None, candidate: Candidate) -> Answer | None:
        row = None if table is None else table.row(settings_of(self.request, candidate))
        return row if row is not None and row["state"] == "done" else None

    def _put(self, table: PointTable, candidate: Candidate, answer: Answer) -> None:
        cluster = self.request.clusters[candidate.cluster]
        more: dict[str, Any] = {"memory_bytes": candidate.memory_bytes}
        if cluster.price is not None and answer["state"] == "done":
            more["cost"] = self.request.cost(cluster, answer["makespan_ns"])
        identity = str(answer.get("id", ""))
        table.put(
            settings_of(self.request, candidate), identity, cluster.network.num_ranks, {**answer, **more}
        )
        table.save()

    def _answers(self, works: Iterator[Work], count: int) -> Iterator[tuple[Any, Answer]]:
        places = Places(self._cluster, self._workers, count)
        with closing(places.answers(self.folder.resolve(), works, self.folder / "log.txt")) as got:  # type: ignore[type-var]
            for answered in got:
                if answered is not None:
                    yield answered


def _line(answer: Answer) -> str:
    return _checked(json.dumps(answer) + "\n")


def _checked(text: str) -> str:
    """Return *text* after its checksum."""
    return f"{zlib.crc32(text.encode()):08x} {text}"


def _key(work: EstimateWork) -> str:
    return ",".join(map(str, work.degrees))
