"""Merge what the ranks' agents left into one manifest."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..errors import NothingCaptured
from .trace_set import FORMAT, VERSION, TraceSet

__all__ = ["merge", "read_statuses"]


def read_statuses(out: Path) -> list[dict[str, Any]]:
    """Return every agent's status, in the order in which they were last written."""
    files = sorted((out / "status").glob("[0-9]*.json"), key=lambda file: file.stat().st_mtime_ns)
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def merge(out: Path, command: Sequence[str], exit_code: int, options: Mapping[str, Any]) -> TraceSet:
    """Write the manifest of the capture in *out* and return it as a trace set.

    Raises:
        NothingCaptured: no rank recorded anything; the message says how far the job came.

    """
    statuses = read_statuses(out)
    ranks = _ranks(out, statuses)
    if not any(rank["steps"] for rank in ranks) and (exit_code == 0 or not ranks):
        raise NothingCaptured(_nothing(statuses, exit_code, int(options["warmup"])))
    world_size = max(rank.pop("world_size") for rank in ranks)
    torch_version = {rank.pop("torch_version") for rank in ranks}
    reasons = _reasons(ranks, statuses, world_size, exit_code, int(options["steps"]))
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "partial": bool(reasons),
        "reasons": reasons,
        "command": list(command),
        "exit_code": exit_code,
        "torch_version": ", ".join(sorted(torch_version)),
        "world_size": world_size,
        "ranks": ranks,
        "options": dict(options),
    }
    trace_set = TraceSet(out, manifest)
    trace_set.save()
    shutil.rmtree(out / "status", ignore_errors=True)
    return trace_set


def _ranks(out: Path, statuses: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry a rank: the complete one, else the one written last (after an elastic restart)."""
    entries: dict[int, dict[str, Any]] = {}
    for status in statuses:
        entry = status["rank"]
        if entry is None:
            continue
        kept = entries.get(entry["rank"])
        if kept is None or entry["complete"] or not kept["complete"]:
            entries[entry["rank"]] = dict(entry)
    for entry in entries.values():
        _salvage(out, entry)
    return [entries[rank] for rank in sorted(entries) if entries[rank]["host_trace"] is not None]


def _salvage(out: Path, entry: dict[str, Any]) -> None:
    """Keep the host trace of a rank that was killed while it recorded: its finished lines are readable."""
    raw = out / entry.pop("raw_host_trace")
    if not raw.exists():
        return
    if entry["host_trace"] is None and raw.stat().st_size > 0:
        name = f"rank{entry['rank']}.host.json.gz"
        with raw.open("rb") as source, gzip.open(out / f".{name}.tmp", "wb", compresslevel=3) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        os.replace(out / f".{name}.tmp", out / name)
        entry["host_trace"] = name
    raw.unlink()


def _reasons(
    ranks: Sequence[Mapping[str, Any]],
    statuses: Sequence[Mapping[str, Any]],
    world_size: int,
    exit_code: int,
    wanted: int,
) -> list[str]:
    """Return why the capture is partial, one sentence each; empty when it is whole."""
    reasons = [reason for status in statuses for reason in status["reasons"]]
    if exit_code != 0:
        reasons.append(f"the training command ended with exit code {exit_code}")
    for rank in ranks:
        if rank["device_trace"] is None:
            reasons.append(f"rank {rank['rank']} died while it was recorded")
        elif not rank["complete"]:
            reasons.append(f"rank {rank['rank']} ended after {len(rank['steps'])} of {wanted} captured steps")
    missing = sorted(set(range(world_size)) - {rank["rank"] for rank in ranks})
    if missing:
        reasons.append(f"nothing was captured of rank {', '.join(map(str, missing))}")
    return list(dict.fromkeys(reasons))


def _nothing(statuses: Sequence[Mapping[str, Any]], exit_code: int, warmup: int) -> str:
    """Return the error message for a capture without any recorded rank."""
    ended = (
        f"The training command ended with exit code {exit_code}" if exit_code else "The training command ran"
    )
    seen = max((status["steps_seen"] for status in statuses), default=0)
    reasons = list(dict.fromkeys(reason for status in statuses for reason in status["reasons"]))
    if reasons:
        return f"{ended}, but nothing was captured: {'; '.join(reasons)}. Remove that cause and run it again."
    if exit_code and not seen:
        return f"{ended} before its first training step; its own output says why. Make it run alone first."
    if seen:
        return (
            f"{ended} after {seen} training steps, and the capture starts after {warmup} of warm-up. "
            f"Let it run longer, or lower --warmup below {seen}."
        )
    return (
        f"{ended}, but no training step was seen (a step is a call of a torch.optim optimizer's step()). "
        "For inference or hand-written updates mark the steps: `with chakrascope.tracer.capture(out) as c:` "
        "and `c.step()` after each; do not start python with -S, -I or -E, which switch the capture off."
    )
