"""Compare totals of any runs, and explain their differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ...support import duration_text
from .._traits import about_backend
from ..study import run_name
from ._differences import collective_differences, relative_step
from ._run import RunAnalysis
from ._settings import settings_table
from ._store_and_forward import second_hop_ns


def run_overview(runs: Sequence[RunAnalysis]) -> pd.DataFrame:
    """Return a row per run; ``delta_ns`` and ``relative`` are compared with the first of *runs*.

    If one of the two is a measurement, ``relative`` refers to it; it is missing if the numbers of ranks
    differ.
    """
    base = runs[0].result.makespan_ns
    rows = [
        {
            "run": run.info.id,
            "label": run_name(run.info),
            "backend": run.info.backend,
            "network": run.info.network,
            "ranks": run.info.num_ranks,
            "makespan_ns": run.result.makespan_ns,
            "delta_ns": run.result.makespan_ns - base,
            "relative": relative_step(runs[0].result, run.result),
            "exposed_comm_ns": int(run.summary.ranks["exposed_comm_ns"].max()),
        }
        for run in runs
    ]
    table: pd.DataFrame = pd.DataFrame(rows)
    return table


def run_kinds(runs: Sequence[RunAnalysis]) -> pd.DataFrame:
    """Return the critical path of each of *runs* by kind: ``run, label, key, duration_ns, share``."""
    parts = [run.summary.kinds.assign(run=run.info.id, label=run_name(run.info)) for run in runs]
    columns = ["run", "label", "key", "duration_ns", "share"]
    table: pd.DataFrame = pd.concat(parts, ignore_index=True)[columns]
    return table


def same_nodes(base: RunAnalysis, other: RunAnalysis) -> bool:
    """Return whether node ids correspond in both runs, as they come from one workload of the study."""
    return base.info.workload == other.info.workload


_TINY = 0.02


def configuration_table(runs: Sequence[RunAnalysis]) -> pd.DataFrame:
    """Return the settings of *runs*, as `settings_table` does, and their workloads."""
    results = {f"{number}. {run_name(run.info)}": run.result for number, run in enumerate(runs, 1)}
    return settings_table(results, workloads=[run.info.workload for run in runs])


def backend_reasons(base: RunAnalysis, other: RunAnalysis) -> list[str]:
    """Return the reasons why two backends may differ, one sentence each; empty for one backend."""
    names = [base.info.backend, other.info.backend]
    if names[0] == names[1]:
        return []
    bases = (name.partition(":")[0] if about_backend(name).variant else name for name in names)
    charges = {base: about_backend(base).charges for base in bases}
    lines = [f"'{base}' {charged}." for base, charged in charges.items() if charged]
    queued = _queued(base, other)
    if queued is not None:
        total, worst = queued
        lines.append(
            "No message waited for a link in this run: the difference is not congestion."
            if not total
            else f"Messages waited for links {duration_text(total)} in sum over all messages of the run, at "
            f"most "
            f"{duration_text(worst)} on one link: that is all its congestion."
        )
    return lines


def _queued(base: RunAnalysis, other: RunAnalysis) -> tuple[int, int] | None:
    """Return the total queueing time of messages, and the largest of one link, in the run that records it."""
    for run in (other, base):
        links = run.result.links
        if about_backend(run.info.backend).hops > 1 and len(links):
            return int(links["queue_ns"].sum()), int(links["queue_ns"].max())
    return None


def explained_collectives(base: RunAnalysis, other: RunAnalysis) -> pd.DataFrame:
    """Return :func:`collective_differences` of the two runs with ``why``, one sentence per collective."""
    table = collective_differences(base.result, other.result, base.collectives)
    why = [_why(row, base, other) for row in table.to_dict("records")]
    explained: pd.DataFrame = table.assign(why=pd.Series(why, index=table.index, dtype="str"))
    return explained


def _why(row: Mapping[Any, Any], base: RunAnalysis, other: RunAnalysis) -> str:
    delta = int(row["delta_ns"])
    if not delta:
        return "As long in both."
    transfer = int(row["transfer_other_ns"] - row["transfer_base_ns"])
    waiting = delta - transfer
    text = f"{_change(delta)} in the other run"
    if abs(waiting) <= _TINY * abs(delta):
        parts = "all of it in the transfer"
    elif abs(transfer) <= _TINY * abs(delta):
        return f"{text}, all of it waiting for ranks that come {'later' if delta > 0 else 'sooner'} there."
    else:
        parts = f"{_signed(transfer)} in the transfer, {_signed(waiting)} in waiting for the last rank"
    sentence = f"{text}, {parts}{_network_part(row, transfer, base, other)}."
    return sentence[0].upper() + sentence[1:]


def _network_part(row: Mapping[Any, Any], transfer: int, base: RunAnalysis, other: RunAnalysis) -> str:
    """Split a difference in *transfer* time into store-and-forward time per hop and queueing (the rest)."""
    names = (base.info.backend, other.info.backend)
    charged = {about_backend(name).hops: name for name in names}
    if charged.keys() != {1, 2}:
        return ""
    size, ranks = int(row["size_bytes"]), int(row["ranks"])
    hops = second_hop_ns(base.result.provenance, str(row["operation"]), size, ranks)
    if hops is None:
        return (
            f"; '{charged[2]}' sends each message whole over one hop after the other, and '{charged[1]}' "
            "charges it once"
        )
    hops *= 1 if names[1] == charged[2] else -1
    left = transfer - hops
    text = (
        f"; {_signed(hops)} because '{charged[2]}' sends each message whole over both hops of the switch, "
        "one after the other"
    )
    if abs(left) <= _TINY * abs(transfer):
        return f"{text}: none is congestion"
    return f"{text}, and {_signed(left)} from messages that queue or go in another order"


def _signed(nanoseconds: int) -> str:
    return f"{'+' if nanoseconds > 0 else '-' if nanoseconds < 0 else ''}{duration_text(abs(nanoseconds))}"


def _change(nanoseconds: int) -> str:
    return f"{duration_text(abs(nanoseconds))} {'longer' if nanoseconds > 0 else 'less'}"
