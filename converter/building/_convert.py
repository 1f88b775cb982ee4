"""From a trace set, or from loose trace files, to a workload: one graph per rank, as it was measured."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from ...errors import TraceError, TraceFormatError
from ...support import duration_text
from ...tracer import MAX_RANKS, RankEntry, StepRange, TraceSet
from ..chakra import Graph, NodeType, Workload
from ..readers import Files, RankTraces, find_rank_traces, with_archives_open, with_capture_traces
from ._belonging import doubts_of_ranks, doubts_of_work, settle
from ._fake_world import pose_for_all
from ._finished import FinishedRanks, finished_ranks
from ._late_ranks import lateness
from ._operator_table import joined_operators
from ._origin import STAND_IN_OF, STAND_INS, STEP_CHOICE, stand_ins_text
from ._overhead import measured_overhead, usual_step_ns, with_overhead_told, without_overhead
from ._rank import OpenRank, StepsDiffer, open_rank, open_ranks, read_rank
from ._stand_ins import replicas_text, with_stand_ins
from ._step_times import measured_steps
from ._steps import StepChoice, choose_steps, is_annotation, typical_steps
from ._uneven import tell_uneven
from ._workers import Workers, workers_at

__all__ = ["UNMARKED", "Progress", "StepChoice", "convert", "convert_files"]

Progress = Callable[[int, int], None]
_PEER_TYPES = (NodeType.COMM_SEND, NodeType.COMM_RECV)
UNMARKED = "no step is marked in the traces: all that was recorded counts as one step"


def convert(
    trace_dir: Path,
    *,
    step: StepChoice = "median",
    rescale_host: bool = False,
    progress: Progress | None = None,
    jobs: int | None = 1,
    cluster: str | None = None,
    finished: FinishedRanks | None = None,
) -> Workload:
    """Convert the trace set in *trace_dir* to a workload.

    *step* is the number of a captured step, ``"median"`` for the one whose slowest rank is the median,
    ``"all"``, or an annotation of the script: ``"NAME"`` for the median of its occurrences, ``"NAME#3"`` for
    the fourth (they count from 0), ``"NAME#all"``, or a glob. *progress* is called with (ranks done, ranks).
    *jobs* processes convert ranks at the same time (None: as many as there are cores, if the files are large
    enough); with more than one, the caller's main module must be safe to import. On a Dask *cluster* (an
    address or a scheduler file) its workers do, which need the traces at the same path; of a batch
    system's YAML, *jobs* are asked for. *rescale_host* scales host time by what an unprofiled step takes of
    a captured one. Of large traces *finished* keeps each rank's graph on the disk when it is made: the
    workload reads it from there, and another conversion of the same goes on from there. Raises `TraceError`
    for an unusable trace set, `UsageError` for a step that was not captured, or for *rescale_host* where no
    step was timed before the capture, and `BackendError` for a cluster that does not answer.
    """
    trace_set = TraceSet.load(trace_dir)
    unusable = trace_set.unusable_ranks
    stepless = [entry.rank for entry in trace_set.ranks if not entry.steps and entry.rank not in unusable]
    lost = sorted({*unusable, *(stepless if trace_set.partial else [])})
    if trace_set.fake_world or 2 * len(lost) > trace_set.world_size:  # too many to stand in for
        trace_set.check_usable()
        if lost:
            raise TraceError(
                f"{trace_dir} holds no whole step of rank {lost[0]}: {trace_set.why_partial}. "
                "Let the script get through the captured steps (see --warmup and --steps) and capture again."
            )
    with workers_at(cluster, jobs, finished) as workers:
        workload = _convert_what_is_whole(trace_set, lost, step, progress=progress, workers=workers)
    workload = without_overhead(workload, str(trace_dir)) if rescale_host else with_overhead_told(workload)
    if not trace_set.fake_world:
        return workload
    return pose_for_all(workload, trace_set.world_size, trace_set.ranks[0].all_groups, str(trace_dir))


def _convert_what_is_whole(
    trace_set: TraceSet, lost: list[int], step: StepChoice, *, progress: Progress | None, workers: Workers
) -> Workload:
    """Convert *step*; of a partial trace set, without the ranks whose files turn out to be damaged too."""
    try:
        return _convert_a_step(trace_set, lost, step, progress=progress, workers=workers)
    except TraceFormatError as damage:
        damaged = [*_damaged(trace_set, lost)] if trace_set.partial and not trace_set.fake_world else []
        if not damaged or 2 * len(lost + damaged) > trace_set.world_size:
            raise
        lost = sorted(lost + damaged)
        known = replace(trace_set, reasons=[*trace_set.reasons, damage.message])
        return _convert_a_step(known, lost, step, progress=progress, workers=workers)


def _convert_a_step(
    whole: TraceSet, lost: Sequence[int], step: StepChoice, *, progress: Progress | None, workers: Workers
) -> Workload:
    """Convert *step*; instead of a median one that communicates unlike the detailed step, the next to it.

    Others stand in for the *lost* ranks.
    """
    why = whole.lacking(lost)
    trace_set = replace(whole, ranks=[entry for entry in whole.ranks if entry.rank not in lost])
    convert_set = partial(_convert_set, trace_set, why, progress=progress, workers=workers)
    # An annotation covers a part of a step, to which no host trace of another step can be lent.
    structured = {entry.structure_step is not None for entry in trace_set.ranks}
    timed = not is_annotation(step) and structured == {True}
    choices: list[StepChoice] = [step]
    usual_ns = 0
    if step == "median" and len(structured) == 1:
        usual_ns = usual_step_ns(trace_set.ranks)
        ordered = typical_steps([entry.steps for entry in trace_set.ranks], usual_ns)
        choices = [*ordered] if usual_ns and ordered else [step, *ordered[1:]]
    for choice in choices:
        with suppress(StepsDiffer):
            return convert_set(choice, timed=timed, step_choice=_near(usual_ns, len(choices)))
    return convert_set("median", timed=False)


def _near(usual_ns: int, count: int) -> str:
    """Return why a step of *count* captured ones was chosen, if it is the one nearest to *usual_ns*."""
    if not usual_ns or count < 2:
        return ""
    return f"of {count} captured steps the nearest to the median unprofiled one ({duration_text(usual_ns)})"


def _damaged(trace_set: TraceSet, lost: Sequence[int]) -> Iterator[int]:
    """Yield the ranks whose traces cannot be read."""
    for entry in trace_set.ranks:
        if entry.rank not in lost:
            try:
                read_rank(_of_entry(trace_set.path, entry, timed=True))
            except TraceFormatError:
                yield entry.rank


def _convert_set(
    trace_set: TraceSet,
    why_missing: str,
    step: StepChoice,
    *,
    timed: bool,
    step_choice: str = "",
    progress: Progress | None,
    workers: Workers,
) -> Workload:
    """Convert the trace set; only its steps with a host trace of their own unless *timed*.

    *why_missing* says why ranks are not in it, and *step_choice* why this *step* was chosen, if known.
    """
    folder = trace_set.path
    ranks = [_of_entry(folder, entry, timed) for entry in trace_set.ranks]
    known: dict[str, Any] = {"trace_set": folder.name, "torch_version": trace_set.torch_version}
    known |= {STEP_CHOICE: step_choice} if step_choice else {}
    known |= measured_steps(trace_set.ranks, folder)
    known |= measured_overhead(trace_set.ranks, [rank.steps for rank in ranks])
    assumptions = _assumptions(trace_set)
    structured = any(entry.structure_step is not None for entry in trace_set.ranks)
    if not timed and structured and not is_annotation(step):
        assumptions.append(
            "the steps differ in what they communicate, or a rank ended early: the step that was recorded in "
            "detail was converted, and its operators are slower for it"
        )
    place = str(folder)
    return _convert(
        ranks,
        step,
        place,
        known=known,
        assumptions=assumptions,
        progress=progress,
        workers=workers,
        known_size=0 if trace_set.fake_world else trace_set.world_size,
        why_missing=why_missing,
    )


def convert_files(
    host_trace: Files | None = None,
    device_trace: Files | None = None,
    output: str | Path | None = None,
    *,
    linked_trace: Files | None = None,
    capture_trace: str | Path | Sequence[Path] | None = None,
    step: StepChoice = "median",
    progress: Progress | None = None,
    jobs: int | None = 1,
    cluster: str | None = None,
    finished: FinishedRanks | None = None,
) -> Workload:
    """Convert trace files that were captured by other means; returns the workload, written at *output*.

    Each of *host_trace* and *device_trace* is a pattern with ``{rank}`` (and ``*``, ``?``), such as
    ``et_{rank}.json.gz``, a folder or a pattern without, whose files tell their ranks, or the files of ranks
    0, 1, ... in order, plain or gzip; or a tar or zip archive of such files. Without host traces (None),
    costs and collectives follow from what the device traces recorded, and data dependencies are unknown.
    *linked_trace*, or linked files as *host_trace* alone, are what the public converter's linker wrote.
    *capture_trace* is a trace, or a folder of traces, taken while CUDA or HIP graphs were captured, which
    gives the operators of their kernels; if None, a folder ``capture_traces`` beside the device traces is.
    Several files may be such traces; those that are not are left out.
    *output* is the prefix of the files to write, None for none. *step*, *progress*, *jobs*, *cluster* and
    *finished* are those of `convert`; with *output* finished ranks are kept beside it. Raises `UsageError`
    for patterns that match nothing or not the same ranks, `TraceError` for unusable files.
    """
    with ExitStack() as open_until_saved:
        if finished is None and output is not None:
            finished = open_until_saved.enter_context(finished_ranks(output))
        with with_archives_open(host_trace, device_trace, linked_trace) as (hosts, devices, linked):
            ranks = with_capture_traces(find_rank_traces(hosts, devices, linked), capture_trace)
            place = str(ranks[0].device_path.parent)
            known: dict[str, Any] = {"trace_set": ranks[0].device_path.parent.name, "torch_version": ""}
            with workers_at(cluster, jobs, finished) as workers:
                workload = _convert(
                    ranks, step, place, known=known, assumptions=[], progress=progress, workers=workers
                )
        if output is not None:
            workload.save(output)
            if finished is not None and finished.is_used:
                return Workload.load(output)
    return workload


def _convert(
    ranks: Sequence[RankTraces],
    step: StepChoice,
    place: str,
    *,
    known: dict[str, Any],
    assumptions: Sequence[str],
    progress: Progress | None,
    workers: Workers,
    known_size: int = 0,
    why_missing: str = "",
) -> Workload:
    """Convert all *ranks*, of a job of *known_size*; *known* goes into the metadata as it is.

    Where the size is known, others stand in for ranks that are missing, *why_missing* says why.
    """
    if is_annotation(step):
        ranks = [replace(rank, annotation=str(step)) for rank in ranks]
    with _without_collector():
        workers.finished.begin(ranks)
        progress = _each_once(progress)
        opened = _opened(ranks, step, place, workers, known_size=known_size, progress=progress)
        _unless_repeated_alike(opened)
        settle(doubts_of_ranks([rank.identity for rank in opened], known_size))
        which = _which(step, opened[0])
        chosen = choose_steps(
            [rank.steps for rank in opened], which, place, [rank.own or rank.steps for rank in opened]
        )
        if which == "median" and len(opened[0].steps) > 1:
            known[STEP_CHOICE] = f"the median of {len(opened[0].steps)} captured steps, by the slowest rank"
        world_size = max(len(ranks), known_size, *(rank.world_size for rank in opened))
        if world_size > MAX_RANKS:
            raise TraceError(f"{place}: a trace claims {world_size} ranks, which no job has. Capture again.")
        graphs = _graphs(opened, chosen, world_size, progress, workers)
    issued = {graph.rank: graph.metadata.pop("arrivals") for graph in graphs}
    if len({rank.host for rank in ranks}) == 1 and ranks[0].host:
        known |= lateness(issued)
    notes = [*assumptions, *_belonging(opened, graphs, chosen, place, known_size)]
    if not all(rank.marked for rank in opened):
        notes.append(UNMARKED if len(opened[0].steps) == 1 else _repeated(opened[0]))
    notes += _differing_names(opened, chosen)
    graphs, groups = _with_common_groups(graphs)
    stand_ins: dict[int, int] = {}
    if known_size > len(graphs):
        graphs, groups, stand_ins = with_stand_ins(graphs, groups, known_size, why_missing)
        said = replicas_text(stand_ins)
        known |= {STAND_INS: said, STAND_IN_OF: {str(rank): other for rank, other in stand_ins.items()}}
        notes.insert(0, said)
    graphs, uneven = tell_uneven(graphs, groups, world_size)
    if world_size > len(graphs):
        _refuse_stand_ins(graphs, groups, world_size, place)
        said = stand_ins_text(len(graphs), world_size, [rank.stated_rank for rank in opened])
        known = {**known, STAND_INS: said}
        notes.append(said)
    return Workload(
        graphs=tuple(graphs),
        program_of_rank=np.arange(world_size, dtype=np.int32) % len(graphs),
        groups=groups,
        metadata=_metadata(
            known | _names(opened[0], chosen),
            chosen,
            [graph for graph in graphs if graph.rank not in stand_ins],
            [*notes, *uneven],
        ),
    )


def _opened(
    ranks: Sequence[RankTraces],
    step: StepChoice,
    place: str,
    workers: Workers,
    *,
    known_size: int,
    progress: Progress,
) -> list[OpenRank]:
    """Find the steps of all *ranks*; where those to convert follow from the first rank, convert them at once.

    Large traces are read once in this way. Should others tell otherwise, what was made so is not found later.
    """
    first = None
    if workers.finished.is_used and not any(rank.steps for rank in ranks):
        first = workers.finished.opened(ranks[0]) or open_rank(ranks[0], keep=False)
    which = step if first is None else _which(step, first)
    if first is None or (which == "median" and len(first.steps) > 1):
        return open_ranks(ranks, keep=workers.keeps(ranks), threads=workers.readers(ranks))
    chosen = choose_steps([first.steps], which, place)
    world_size = max(len(ranks), known_size, first.world_size)
    kept = (workers.finished.opened(rank) for rank in ranks)
    found = {index: rank for index, rank in enumerate(kept) if rank is not None}
    if found:
        progress(len(found), len(ranks))
    left = [index for index in range(len(ranks)) if index not in found]
    coming = workers.begun([ranks[index] for index in left], chosen, world_size)
    with closing(coming):  # type: ignore[type-var]
        for index, rank, well in coming:
            found[left[index]] = rank
            if len(found).bit_count() == 1:  # not each time, which of thousands would take long
                settle(doubts_of_ranks([found[place].identity for place in sorted(found)], known_size))
            if not well:
                break
            progress(len(found), len(ranks))
    left = [index for index in left if index not in found]
    rest = [ranks[index] for index in left]
    found.update(zip(left, open_ranks(rest, keep=False, threads=workers.readers(rest)), strict=True))
    return [found[index] for index in range(len(ranks))]


def _unless_repeated_alike(opened: Sequence[OpenRank]) -> None:
    """Take traces without marked steps as one step each, where ranks do not repeat the same equally often."""
    if len({(len(rank.steps), rank.begins_with) for rank in opened}) > 1:
        for rank in opened:
            if not rank.marked:
                rank.steps, rank.own = [StepRange(0, rank.steps[0].start_ns, rank.steps[-1].end_ns)], []


def _repeated(opened: OpenRank) -> str:
    return (
        f"no step is marked in the traces: each of the {len(opened.steps):,} repetitions in them counts as "
        "one step (the first and the last may be parts of one)"
    )


def _which(step: StepChoice, opened: OpenRank) -> StepChoice:
    """Return which of the steps of a rank *step* asks for; an annotation is known where it was found."""
    return opened.which if is_annotation(step) else step


def _each_once(progress: Progress | None) -> Progress:
    """Return what tells *progress*, if there is one, each number of ranks once, and never fewer."""
    told = 0

    def tell(done: int, total: int) -> None:
        nonlocal told
        if progress is not None and done > told:
            told = done
            progress(done, total)

    return tell


def _graphs(
    opened: Sequence[OpenRank],
    chosen: set[int],
    world_size: int,
    progress: Progress,
    workers: Workers,
) -> list[Graph]:
    """Return the graphs of all ranks; those that were finished before are not made again."""
    kept = (workers.finished.find(rank, chosen, world_size) for rank in opened)
    found = {index: graph for index, graph in enumerate(kept) if graph is not None}
    progress(len(found), len(opened))
    left = [index for index in range(len(opened)) if index not in found]
    coming = workers.graphs([opened[index] for index in left], chosen, world_size)
    with closing(coming):  # type: ignore[type-var]
        for place, graph in coming:
            found[left[place]] = graph
            progress(len(found), len(opened))
    return [found[index] for index in range(len(opened))]


@contextmanager
def _without_collector() -> Iterator[None]:
    """Keep the cyclic garbage collector off: it would walk millions of live records over and over."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _of_entry(folder: Path, entry: RankEntry, timed: bool) -> RankTraces:
    """Return where the traces of a manifest's *entry* are; with its *timed* steps if it has such."""
    structure = entry.structure_step
    steps = entry.steps if timed or structure is None else [structure]
    return RankTraces(
        rank=entry.rank,
        host_path=folder / str(entry.host_trace),
        device_path=folder / str(entry.device_trace),
        flight_path=folder / entry.flight_record if entry.flight_record else None,
        evidence_path=folder / entry.evidence if entry.evidence else None,
        groups={group.name: tuple(group.ranks) for group in entry.process_groups},
        steps=tuple(steps),
        structure=structure if timed else None,
        device=entry.device,
        process=entry.pid,
        host=entry.hostname,
    )


def _assumptions(trace_set: TraceSet) -> list[str]:
    if not trace_set.partial:
        return list(trace_set.notes)
    return [
        *trace_set.notes,
        f"the capture is partial ({trace_set.why_partial}); what it holds whole was converted",
    ]


def _with_common_groups(graphs: Sequence[Graph]) -> tuple[list[Graph], dict[int, tuple[int, ...]]]:
    """Give the groups the same numbers on all ranks; each graph came with its own."""
    own = [[tuple(ranks) for ranks in graph.metadata.pop("groups")] for graph in graphs]
    ids = {ranks: number for number, ranks in enumerate(sorted({r for rs in own for r in rs}), start=1)}
    result = []
    for graph, groups in zip(graphs, own, strict=True):
        table = np.array([0, *(ids[ranks] for ranks in groups)], dtype=np.int64)
        result.append(graph.derived(group=partial(_numbered, table)))
    return result, {number: ranks for ranks, number in ids.items()}


def _numbered(table: np.ndarray, columns: Mapping[str, Any]) -> np.ndarray:
    numbers: np.ndarray = table[columns["group"]]
    return numbers


def _belonging(
    opened: Sequence[OpenRank], graphs: Sequence[Graph], chosen: set[int], place: str, known_size: int
) -> list[str]:
    """Return what is doubtful about whether the traces belong together; raise `TraceError` if they do not."""
    identities = [graph.metadata.pop("identity") for graph in graphs]
    spans = {rank.traces.rank: next(step for step in rank.steps if step.index in chosen) for rank in opened}
    return settle([*doubts_of_ranks(identities, known_size), *doubts_of_work(graphs, spans, place)])


def _names(rank: OpenRank, chosen: set[int]) -> dict[str, dict[str, str]]:
    """Return the annotations of the *chosen* steps as metadata, by number; {} if they have none."""
    names = {str(index): rank.names[index] for index in sorted(chosen) if index in rank.names}
    return {"step_names": names} if names else {}


def _differing_names(opened: Sequence[OpenRank], chosen: set[int]) -> list[str]:
    """Return a note on the first rank whose *chosen* steps have other annotations than the first rank's."""
    first = opened[0]
    for rank in opened[1:]:
        for index in sorted(chosen):
            one, other = first.names.get(index, ""), rank.names.get(index, "")
            if one != other:
                return [
                    f"the ranks call their steps differently: step {index} is '{one}' on rank "
                    f"{first.traces.rank} and '{other}' on rank {rank.traces.rank}"
                ]
    return []


def _refuse_stand_ins(
    graphs: Sequence[Graph], groups: dict[int, tuple[int, ...]], world_size: int, place: str
) -> None:
    """Raise `TraceError` where the found ranks cannot stand for all."""
    peers = any(np.isin(graph.node_columns["type"], _PEER_TYPES).any() for graph in graphs)
    if groups or peers:
        raise TraceError(
            f"{place} holds the traces of {len(graphs)} of the job's {world_size} ranks, and those "
            "communicate in groups or pairs: they cannot stand for the others. Give the traces of all ranks."
        )


def _metadata(
    known: dict[str, Any], chosen: set[int], graphs: Sequence[Graph], notes: Sequence[str]
) -> dict[str, Any]:
    """Return what the workload says about its origin; JSON-able."""
    accounting = {str(graph.rank): graph.metadata["accounting"] for graph in graphs}
    noted = sorted({note for graph in graphs for note in graph.metadata["notes"]})
    return {
        "captured": True,
        **known,
        "steps": sorted(chosen),
        "measured_step_ns": {rank: figures["measured_step_ns"] for rank, figures in accounting.items()},
        "accounting": accounting,
        "began_ns": {str(graph.rank): graph.metadata["began_ns"] for graph in graphs},
        "step_shares": {str(graph.rank): graph.metadata["step_shares"] for graph in graphs},
        "chips": {str(graph.rank): graph.metadata["chip"] for graph in graphs},
        "operators": joined_operators({graph.rank: graph.metadata["operators"] for graph in graphs}),
        "assumptions": [*notes, *noted],
    }
