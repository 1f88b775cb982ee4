"""Merge what the ranks' agents left into one manifest."""

from __future__ import annotations

import contextlib
import gzip
import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..errors import CaptureError, CommandFailed, NothingCaptured
from ..support import new_file
from ._trace_set import FILE_KEYS, FORMAT, MANIFEST_NAME, VERSION, TraceSet

__all__ = ["MISSING", "merge", "missing_ranks", "read_statuses", "write_manifest"]

CLAIM = ".merging"
PATIENCE_SECONDS = 30.0
POLL_SECONDS = 0.05
MISSING = "nothing was captured of rank "
FAKE_WORLD_NOTE = (
    "one process posed as rank 0 of {ranks}: sizes and order of its communication are those of a rank of the "
    "real job, durations of communication and what depends on received values are not"
)


def read_statuses(out: Path) -> list[dict[str, Any]]:
    """Return every agent's status, in the order in which they were last written."""
    found: list[tuple[int, str, dict[str, Any]]] = []
    for file in (out / "status").glob("[!.]*.json"):
        with contextlib.suppress(FileNotFoundError, ValueError):  # a peer has merged or overwrites it
            written_ns = file.stat().st_mtime_ns
            found.append((written_ns, file.name, json.loads(file.read_text(encoding="utf-8"))))
    return [status for _, _, status in sorted(found, key=lambda entry: entry[:2])]


def merge(out: Path, command: Sequence[str], exit_code: int, options: Mapping[str, Any]) -> TraceSet:
    """Write the manifest of the capture in *out*, or find it written by a peer, and return it as a trace set.

    Raises:
        NothingCaptured: no rank recorded anything; the message says how far the job came.
        CommandFailed: so it is, and the command failed.
        CaptureError: the manifest cannot be written.

    """
    with _alone(out / CLAIM):
        statuses = read_statuses(out)
        if not statuses and (out / MANIFEST_NAME).exists():
            return TraceSet.load(out)
        return _merge(out, statuses, command, exit_code, options)


@contextlib.contextmanager
def _alone(claim: Path) -> Iterator[None]:
    """Wait until no peer of a job that ends everywhere at once, on any host, is doing the same."""
    patience_ends = time.monotonic() + PATIENCE_SECONDS  # a peer that died left its claim
    while time.monotonic() < patience_ends:
        try:
            claim.touch(exist_ok=False)
            break
        except FileExistsError:
            time.sleep(POLL_SECONDS)
        except OSError:
            break  # writing the manifest will say what is wrong
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            claim.unlink(missing_ok=True)


def _merge(
    out: Path,
    statuses: Sequence[Mapping[str, Any]],
    command: Sequence[str],
    exit_code: int,
    options: Mapping[str, Any],
) -> TraceSet:
    ranks = _ranks(out, statuses)
    usable = any(rank["steps"] and rank["device_trace"] for rank in ranks)
    if not usable and (exit_code == 0 or not ranks):
        message = _nothing(statuses, exit_code, int(options["warmup"]), ranks)
        for file in (rank[key] for rank in ranks for key in FILE_KEYS if rank[key]):
            (out / file).unlink()
        _clean(out)
        raise CommandFailed(message, exit_code) if exit_code else NothingCaptured(message)
    fake_world = int(options.get("fake_world") or 0)
    notes = _notes(ranks, statuses)
    if fake_world:
        notes.append(FAKE_WORLD_NOTE.format(ranks=fake_world))
    world_size = max(rank.pop("world_size") for rank in ranks)
    torch_version = {rank.pop("torch_version") for rank in ranks}
    reasons = _reasons(ranks, statuses, exit_code, int(options["steps"]))
    missing = [] if fake_world else missing_ranks(ranks, world_size)
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "partial": bool(reasons or missing),
        "reasons": [*reasons, *missing],
        "notes": notes,
        "command": list(command),
        "exit_code": exit_code,
        "torch_version": ", ".join(sorted(torch_version)),
        "world_size": world_size,
        "fake_world": bool(fake_world),
        "ranks": ranks,
        "options": dict(options),
    }
    trace_set = write_manifest(out, manifest)
    if not missing:  # else other hosts may share the folder; the last one to end merges all of them
        _clean(out)
    return trace_set


def write_manifest(out: Path, manifest: Mapping[str, Any]) -> TraceSet:
    """Save *manifest* in *out* and return the trace set; raises `CaptureError` when it cannot be written."""
    trace_set = TraceSet(out, manifest)
    try:
        trace_set.save()
    except OSError as error:
        raise CaptureError(
            f"The capture ended, but its manifest cannot be written to {out}: {error.strerror}. Free some "
            "space or choose another folder with -o, and capture anew."
        ) from None
    return trace_set


def missing_ranks(ranks: Sequence[Mapping[str, Any]], world_size: int) -> list[str]:
    """Return a sentence that names the ranks without any trace, or nothing if there are none."""
    missing = sorted(set(range(world_size)) - {rank["rank"] for rank in ranks})
    return [MISSING + ", ".join(map(str, missing))] if missing else []


def _clean(out: Path) -> None:
    """Remove what is of no use after the merge, and the folder itself if nothing is left in it."""
    shutil.rmtree(out / "status", ignore_errors=True)
    for left in out.glob(".rank*"):
        left.unlink()
    with contextlib.suppress(OSError):
        (out / CLAIM).unlink(missing_ok=True)
        out.rmdir()


def _ranks(out: Path, statuses: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry a rank: of its processes (elastic restarts, helpers), the one that left its files."""
    entries: dict[int, dict[str, Any]] = {}
    for status in statuses:
        entry = status["rank"]
        if entry is None:
            continue
        kept = entries.get(entry["rank"])
        if kept is None or _precedence(entry) >= _precedence(kept):
            entries[entry["rank"]] = {**entry, "died": not status["closed"]}
    for entry in entries.values():
        _salvage(out, entry)
    return [entries[rank] for rank in sorted(entries) if entries[rank]["host_trace"] is not None]


def _precedence(entry: Mapping[str, Any]) -> tuple[bool, bool, bool]:
    """Return what makes a process's entry better than that of another one of its rank, the worst first."""
    return (entry["device_trace"] is not None, entry["trigger"] != "forward", entry["complete"])


def _salvage(out: Path, entry: dict[str, Any]) -> None:
    """Keep the host trace of a rank that was killed while it recorded: its finished lines are readable."""
    raw = out / entry.pop("raw_host_trace")
    if not raw.exists():
        return
    if entry["host_trace"] is None and raw.stat().st_size > 0:
        name = f"rank{entry['rank']}.host.json.gz"
        with contextlib.suppress(OSError):  # no space for it: that rank is missing
            with (
                new_file(out / name, sync=False) as temporary,
                raw.open("rb") as source,
                gzip.open(temporary, "wb", compresslevel=3) as target,
            ):
                shutil.copyfileobj(source, target, 1 << 20)
            entry["host_trace"] = name
    raw.unlink()


def _notes(ranks: Sequence[dict[str, Any]], statuses: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what a reader of the traces should know though nothing is missing, one sentence each."""
    notes = [note for status in statuses for note in status["notes"]]
    notes += [note for rank in ranks for note in rank.pop("notes")]
    return list(dict.fromkeys(notes))


def _reasons(
    ranks: Sequence[dict[str, Any]],
    statuses: Sequence[Mapping[str, Any]],
    exit_code: int,
    wanted: int,
) -> list[str]:
    """Return why the captured ranks are not whole, one sentence each; empty when they are."""
    reasons = [reason for status in statuses for reason in status["reasons"]]
    if exit_code != 0:
        reasons.append(f"the training command ended with exit code {exit_code}")
    for rank in ranks:
        if rank.pop("died"):
            reasons.append(_died(rank))
        elif not rank["complete"] and rank["device_trace"] is not None:
            reasons.append(f"rank {rank['rank']} ended after {len(rank['steps'])} of {wanted} captured steps")
    return list(dict.fromkeys(reasons))


def _died(rank: Mapping[str, Any]) -> str:
    return f"rank {rank['rank']} died while it was recorded"


def _nothing(
    statuses: Sequence[Mapping[str, Any]],
    exit_code: int,
    warmup: int,
    ranks: Sequence[Mapping[str, Any]],
) -> str:
    """Return the error message for a capture without any recorded rank."""
    ended = (
        f"The training command ended with exit code {exit_code}" if exit_code else "The training command ran"
    )
    seen = max((status["steps_seen"] for status in statuses), default=0)
    reasons = list(dict.fromkeys(reason for status in statuses for reason in status["reasons"]))
    reasons += [_died(rank) for rank in ranks if rank["died"]]
    if reasons:
        return f"{ended}, but nothing was captured: {'; '.join(reasons)}. Remove that cause and run it again."
    if exit_code and not seen:
        return f"{ended} before its first training step; its own output says why. Make it run alone first."
    if exit_code:
        return (
            f"{ended} after {seen} training steps, before the capture's first was whole (it starts after "
            f"{warmup} of warm-up); its own output says why. Make it run alone first, or lower --warmup."
        )
    if seen:
        return (
            f"{ended} for {seen} training steps, but the capture starts after {warmup} of warm-up and needs "
            "one whole step then. Let it run longer, or lower --warmup."
        )
    return (
        f"{ended}, but no training step was seen: no optimizer of torch.optim stepped, nor, in a script "
        "without one, was a module with parameters called more than once. Mark the steps yourself: "
        "`with chakrascope.tracer.capture(out) as c:` around the loop and `c.step()` after each step; do not "
        "start python with -S, -I or -E, which switch the capture off."
    )
