"""Merge the trace sets that the hosts of one job wrote to separate folders."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from ..errors import CaptureError, TraceError, UsageError
from ..support import new_file
from ._checks import prepare_folder
from ._merge import MISSING, missing_ranks, write_manifest
from ._trace_set import RankEntry, TraceSet

SAME = ("world_size", "torch_version", "fake_world")
OF_THE_WINDOW = ("warmup", "steps")


def collect(folders: Iterable[str | Path], output: str | Path) -> TraceSet:
    """Copy the trace sets in *folders*, each of some ranks of one job, into one trace set in *output*.

    The ``reasons`` of the result name ranks without traces. The ``notes`` name hosts with clocks that cannot
    be compared.

    Raises: UsageError: no folder was given. TraceError: a folder contains no trace set, the sets come from
    different jobs, or two sets have the same rank. CaptureError: *output* already contains a trace set, or
    cannot be written to.

    """
    trace_sets = [TraceSet.load(Path(folder)) for folder in folders]
    if not trace_sets:
        raise UsageError("There is nothing to collect: give the folders that `chakrascope trace` wrote.")
    _check_same_job(trace_sets)
    _check_ranks(trace_sets)
    out = Path(output).absolute()
    prepare_folder(out)
    try:
        for trace_set in trace_sets:
            _copy_files(trace_set, out)
    except OSError as error:
        raise CaptureError(
            f"The traces cannot be copied to {out}: {error.strerror}. Free some space, or choose another "
            "folder."
        ) from None
    merged = _merged(trace_sets, out)
    write_manifest(merged)
    return merged


def _check_same_job(trace_sets: Sequence[TraceSet]) -> None:
    first = trace_sets[0]
    for other in trace_sets[1:]:
        for key in SAME:
            _check_equal(first, other, key, getattr(first, key), getattr(other, key))
        for key in OF_THE_WINDOW:
            values = [one.options.get(key) for one in (first, other)]
            _check_equal(first, other, key, *values)


def _check_equal(first: TraceSet, other: TraceSet, key: str, ours: object, theirs: object) -> None:
    if ours != theirs:
        raise TraceError(
            f"{other.path} belongs to a different job than {first.path}: its {key} is {theirs}, not {ours}. "
            "Collect the folders of one run."
        )


def _check_ranks(trace_sets: Sequence[TraceSet]) -> None:
    places: dict[int, Path] = {}
    for trace_set in trace_sets:
        for rank in trace_set.ranks:
            if rank.rank in places:
                raise TraceError(
                    f"Rank {rank.rank} is in {places[rank.rank]} and in {trace_set.path}. Collect the "
                    "folders of one run, each once."
                )
            places[rank.rank] = trace_set.path


def _copy_files(trace_set: TraceSet, out: Path) -> None:
    for name in (name for rank in trace_set.ranks for name in rank.files):
        with new_file(out / name, sync=False) as temporary:  # the manifest's writer syncs all files
            shutil.copyfile(trace_set.path / name, temporary)


def _merged(trace_sets: Sequence[TraceSet], out: Path) -> TraceSet:
    ranks = sorted((rank for one in trace_sets for rank in one.ranks), key=lambda entry: entry.rank)
    reasons = [reason for one in trace_sets for reason in one.reasons if not reason.startswith(MISSING)]
    if not trace_sets[0].fake_world:
        reasons += missing_ranks(ranks, trace_sets[0].world_size)
    notes = [note for one in trace_sets for note in one.notes]
    notes += _clock_note(ranks)
    return msgspec.structs.replace(
        trace_sets[0],
        path=out,
        created=min(one.created for one in trace_sets),
        partial=bool(reasons),
        reasons=list(dict.fromkeys(reasons)),
        notes=list(dict.fromkeys(notes)),
        exit_code=next((one.exit_code for one in trace_sets if one.exit_code), 0),
        ranks=ranks,
    )


def _clock_note(ranks: Sequence[RankEntry]) -> list[str]:
    hosts = Counter(rank.hostname for rank in ranks)
    if len(hosts) < 2:
        return []
    return [
        f"the ranks ran on {len(hosts)} hosts ({', '.join(sorted(hosts))}): times of different hosts compare "
        "only as well as their clocks agree"
    ]
