"""The plans of a search as a table, and the command that predicts one of them alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..prediction import needed_ns, uncertainty
from ..sweep import Answer
from ._estimate import Candidate
from ._request import CHOICES, Request
from ._simulate import front, setting_of

__all__ = ["search_table"]

_ROWS = 10_000


def search_table(
    request: Request, candidates: Sequence[Candidate], figures: np.ndarray, answers: Mapping[int, Answer]
) -> tuple[pd.DataFrame, list[int]]:
    """Return a row for each of the best *candidates*, and their numbers in that order.

    Those that were simulated come first, the fastest on top, then those that were estimated alone, of these
    10,000 at most and the front. Times are ns, memory bytes; ``cost`` is a price, or without prices the
    seconds of all chips. ``front`` says which plans no other beats in step, memory and cost: *figures* has
    their estimates.
    """
    done = [number for number, answer in answers.items() if answer["state"] == "done"]
    simulated = np.zeros(len(candidates), dtype=bool)
    simulated[done] = True
    figures = figures.copy()
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
