"""The plans of a search as a table, and the command that predicts one of them alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ..prediction import needed_ns, uncertainty
from ..sweep import Answer
from ._estimate import Candidate
from ._request import CHOICES, Request
from ._simulate import front, setting_of

__all__ = ["search_table"]


def search_table(
    request: Request, candidates: Sequence[Candidate], answers: Mapping[int, Answer]
) -> tuple[pd.DataFrame, list[int]]:
    """Return a row for each of *candidates*, and their numbers in that order.

    Those that were simulated come first, the fastest on top, then those that were estimated alone. Times are
    ns, memory bytes; ``cost`` is a price, or without prices the seconds of all chips. ``front`` says which
    plans no other beats in step, memory and cost.
    """
    done = {number for number, answer in answers.items() if answer["state"] == "done"}
    failed = answers.keys() - done
    rows = []
    for number, candidate in enumerate(candidates):
        if number not in failed:
            step = answers[number]["makespan_ns"] if number in done else candidate.estimate_ns
            rows.append((number not in done, round(step), number))
    rows.sort()
    table = pd.DataFrame(
        [_row(request, candidates[number], step, not estimated) for estimated, step, number in rows]
    )
    figures = table[["step_ns", "memory_bytes", "cost"]].to_numpy(dtype=float)
    table.insert(table.columns.get_loc("simulated"), "front", front(figures))
    return table, [number for _, _, number in rows]


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
