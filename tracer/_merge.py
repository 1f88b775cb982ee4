"""Merge the files of the ranks' agents, or the trace sets of several hosts, into one trace set."""

from __future__ import annotations

import contextlib
import gzip
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

from ..errors import CaptureError, CommandFailed, NothingCaptured, TraceError, UsageError
from ..support import new_file
from ._agent.process import precedence
from ._checks import prepare_folder
from ._trace_set import MANIFEST_NAME, RankEntry, TraceSet

CLAIM = ".merging"
PATIENCE_SECONDS = 30.0
POLL_SECONDS = 0.05
MISSING = "nothing was captured of rank "
FAKE_WORLD_NOTE = (
    "one process ran as rank 0 of {ranks}: the sizes and the order of communication are those of the "
    "real job, but not its durations, nor anything that depends on received values"
)


class RankStatus(RankEntry, frozen=True, kw_only=True):
    """An agent's report on a rank: the manifest's entry, and further data for the merge."""

    world_size: int
    torch_version: str
    raw_host_trace: str
    notes: list[str]


class Status(msgspec.Struct, frozen=True):
    """The status file of one agent (``Agent._write_status``); *closed* is true after a normal end."""

    host: str
    pid: int
    steps_seen: int
    rank: RankStatus | None
    reasons: list[str]
    notes: list[str]
    closed: bool


def read_statuses(out: Path) -> list[Status]:
    """Return the status of every agent; the status that was written last comes last."""
    found: list[tuple[int, str, Status]] = []
    for file in (out / "status").glob("[!.]*.json"):
        with contextlib.suppress(FileNotFoundError, ValueError):  # a peer merged or overwrites the file
            written_ns = file.stat().st_mtime_ns
            found.append((written_ns, file.name, msgspec.json.decode(file.read_bytes(), type=Status)))
    return [status for _, _, status in sorted(found, key=lambda entry: entry[:2])]


def merge(out: Path, command: Sequence[str], exit_code: int, options: Mapping[str, Any]) -> TraceSet:
    """Return the capture in *out* as a trace set, and write its manifest unless a peer has done so.

    Raises:
        NothingCaptured: no rank has a recording; the message states the progress of the job.
        CommandFailed: no rank has a recording, and the command failed.
        CaptureError: the manifest cannot be written.

    """
    with _alone(out / CLAIM):
        statuses = read_statuses(out)
        if not statuses and (out / MANIFEST_NAME).exists():
            return TraceSet.load(out)
        return _merge(out, statuses, command, exit_code, options)


@contextlib.contextmanager
def _alone(claim: Path) -> Iterator[None]:
    """Wait until no peer, on any host, is merging the same job."""
    patience_ends = time.monotonic() + PATIENCE_SECONDS  # a dead peer may have left its lock
    while time.monotonic() < patience_ends:
        try:
            claim.touch(exist_ok=False)
            break
        except FileExistsError:
            time.sleep(POLL_SECONDS)
        except OSError:
            break  # writing the manifest will report the error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            claim.unlink(missing_ok=True)


def _merge(
    out: Path, statuses: Sequence[Status], command: Sequence[str], exit_code: int, options: Mapping[str, Any]
) -> TraceSet:
    ranks = _ranks(out, statuses)
    died = {entry.rank for entry, closed in ranks if not closed}
    entries = [entry for entry, _ in ranks]
    usable = any(entry.step_times or (entry.steps and entry.device_trace) for entry in entries)
    if not usable and (exit_code == 0 or not entries):
        message = _nothing(statuses, exit_code, options, died)
        for file in (file for entry in entries for file in entry.files):
            (out / file).unlink()
        _clean(out)
        raise CommandFailed(message, exit_code) if exit_code else NothingCaptured(message)
    fake_world = int(options.get("fake_world") or 0)
    world_size = max(entry.world_size for entry in entries)
    reasons = _reasons(entries, statuses, died, exit_code, int(options["steps"]))
    missing = [] if fake_world else missing_ranks(entries, world_size)
    trace_set = TraceSet(
        path=out,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        partial=bool(reasons or missing),
        reasons=[*reasons, *missing],
        notes=_notes(entries, statuses, fake_world),
        command=list(command),
        exit_code=exit_code,
        torch_version=", ".join(sorted({entry.torch_version for entry in entries})),
        world_size=world_size,
        fake_world=bool(fake_world),
        ranks=[msgspec.convert(entry, RankEntry, from_attributes=True) for entry in entries],
        options=dict(options),
    )
    write_manifest(trace_set)
    if not missing:  # otherwise, other hosts may share the folder, and the last host merges
        _clean(out)
    return trace_set


def write_manifest(trace_set: TraceSet) -> None:
    """Save the manifest of *trace_set*; raises `CaptureError` if it cannot be written."""
    try:
        trace_set.save()
    except OSError as error:
        raise CaptureError(
            f"The capture ended, but its manifest cannot be written to {trace_set.path}: {error.strerror}. "
            "Free some space or choose another folder with -o, and capture again."
        ) from None


def missing_ranks(entries: Sequence[RankEntry], world_size: int) -> list[str]:
    """Return a list with a sentence that names the ranks without traces, or [] for complete traces."""
    missing = sorted(set(range(world_size)) - {entry.rank for entry in entries})
    return [MISSING + ", ".join(map(str, missing))] if missing else []


def _clean(out: Path) -> None:
    """Remove temporary files after the merge, and remove the folder *out* if it is empty."""
    shutil.rmtree(out / "status", ignore_errors=True)
    for left in out.glob(".rank*"):
        left.unlink()
    with contextlib.suppress(OSError):
        (out / CLAIM).unlink(missing_ok=True)
        out.rmdir()


def _ranks(out: Path, statuses: Sequence[Status]) -> list[tuple[RankStatus, bool]]:
    """Return the status of each rank, in rank order, and whether the rank has ended normally.

    If a rank had several processes (elastic restarts, helpers), the process that wrote files represents the
    rank.
    """
    found: dict[int, tuple[RankStatus, bool]] = {}
    for status in statuses:
        entry = status.rank
        if entry is None:
            continue
        if entry.rank not in found or _precedence(entry) >= _precedence(found[entry.rank][0]):
            found[entry.rank] = (entry, status.closed)
    salvaged = ((_salvaged(out, entry), closed) for _, (entry, closed) in sorted(found.items()))
    return [(entry, closed) for entry, closed in salvaged if entry.host_trace or entry.step_times]


def _precedence(entry: RankStatus) -> tuple[bool, int, bool]:
    """Return a sort key for the processes of a rank; the best process has the largest."""
    return (entry.device_trace is not None, precedence(entry.trigger), entry.complete)


def _salvaged(out: Path, entry: RankStatus) -> RankStatus:
    """Keep the host trace of a rank that was killed during the recording; complete lines are readable."""
    raw = out / entry.raw_host_trace
    if not raw.exists():
        return entry
    if entry.host_trace is None and raw.stat().st_size > 0:
        name = f"rank{entry.rank}.host.json.gz"
        with contextlib.suppress(OSError):  # without disk space, the rank is reported as missing
            with (
                new_file(out / name, sync=False) as temporary,
                raw.open("rb") as source,
                gzip.open(temporary, "wb", compresslevel=3) as target,
            ):
                shutil.copyfileobj(source, target, 1 << 20)
            entry = msgspec.structs.replace(entry, host_trace=name)
    raw.unlink()
    return entry


def _notes(entries: Sequence[RankStatus], statuses: Sequence[Status], fake_world: int) -> list[str]:
    """Return notes on the traces, which are not defects, with one sentence per note."""
    notes = [note for status in statuses for note in status.notes]
    notes += [note for entry in entries for note in entry.notes]
    if fake_world:
        notes.append(FAKE_WORLD_NOTE.format(ranks=fake_world))
    return list(dict.fromkeys(notes))


def _reasons(
    entries: Sequence[RankStatus], statuses: Sequence[Status], died: set[int], exit_code: int, wanted: int
) -> list[str]:
    """Return the reasons why ranks are missing or incomplete, with one sentence per reason."""
    reasons = [reason for status in statuses for reason in status.reasons]
    if exit_code != 0:
        reasons.append(f"the training command ended with exit code {exit_code}")
    for entry in entries:
        if entry.rank in died:
            reasons.append(_died(entry.rank))
        elif not entry.complete and entry.device_trace is not None:
            reasons.append(f"rank {entry.rank} ended after {len(entry.steps)} of {wanted} captured steps")
    return list(dict.fromkeys(reasons))


def _died(rank: int) -> str:
    return f"rank {rank} died while it was recorded"


def _nothing(statuses: Sequence[Status], exit_code: int, options: Mapping[str, Any], died: set[int]) -> str:
    """Return the error message for a capture with *options* and without any recorded rank."""
    warmup = int(options["warmup"])
    ended = (
        f"The training command ended with exit code {exit_code}" if exit_code else "The training command ran"
    )
    seen = max((status.steps_seen for status in statuses), default=0)
    reasons = list(dict.fromkeys(reason for status in statuses for reason in status.reasons))
    reasons += [_died(rank) for rank in sorted(died)]
    if reasons:
        return (
            f"{ended}, but nothing was captured: {'; '.join(reasons)}. Next: remove this cause and capture "
            "again."
        )
    if exit_code and not seen:
        return (
            f"{ended} before its first training step; see its output for the reason. Next: make the command "
            "run without chakrascope first."
        )
    if exit_code:
        return (
            f"{ended} after {seen} training steps, before the first captured step was complete (the "
            f"capture starts after {warmup} of warm-up); see its output for the reason. Next: make the "
            "command run without chakrascope first, or lower --warmup."
        )
    if seen:
        return (
            f"{ended} for {seen} training steps, but the capture starts after {warmup} of warm-up and "
            "needs one complete step. Let it run longer, or lower --warmup: 0 captures from the first "
            "step."
        )
    # Without steps, a recording of step times is empty, but a profile may cover the whole script.
    whole = "Capture the whole script with --warmup 0, or mark" if int(options["steps"]) else "Mark"
    return (
        f"{ended}, but no training step was detected: no optimizer of torch.optim made a step, and no "
        f"module with parameters was called more than once. {whole} the steps yourself: `with "
        "chakrascope.tracer.capture(out) as c:` around the loop and `c.step()` after each step; do not "
        "start python with -S, -I or -E, which switch the capture off."
    )


def collect(folders: Iterable[str | Path], output: str | Path) -> TraceSet:
    """Copy the trace sets in *folders*, each of some ranks of one job, into one trace set in *output*.

    The ``reasons`` of the result name ranks without traces. The ``notes`` name hosts with clocks that cannot
    be compared.

    Raises:
        UsageError: no folder was given.
        TraceError: a folder contains no trace set, the sets come from different jobs, or two sets have the
            same rank.
        CaptureError: *output* already contains a trace set or cannot be written to.

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
    first, *others = trace_sets
    ours = _facts_of_job(first)
    for other in others:
        for key, theirs in _facts_of_job(other).items():
            if theirs != ours[key]:
                raise TraceError(
                    f"{other.path} belongs to a different job than {first.path}: its {key} is {theirs}, not "
                    f"{ours[key]}. Collect the folders of one run."
                )


def _facts_of_job(one: TraceSet) -> dict[str, object]:
    """Return the facts that are the same in all trace sets of a job."""
    facts = {key: getattr(one, key) for key in ("world_size", "torch_version", "fake_world")}
    return facts | {key: one.options.get(key) for key in ("warmup", "steps")}


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
        f"the ranks ran on {len(hosts)} hosts ({', '.join(sorted(hosts))}): comparisons between hosts "
        "are only as accurate as the hosts' clocks"
    ]
