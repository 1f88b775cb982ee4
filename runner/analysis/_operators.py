"""What operators do and reach: operations, bytes, TFLOP/s, TB/s and the share of the chip's roofline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

import pandas as pd

from ...support import share_text
from ..chips import Chip
from ._operator_rates import OperatorRate, joined_rates, known_chip, operator_rates

if TYPE_CHECKING:
    from ._run import RunAnalysis

__all__ = ["joined_operators", "operator_table", "operators_text"]

_FIELDS = (
    "rank", "operator", "kind", "precision", "arguments", "calls", "kernels", "time_ns", "flops",
    "size_bytes", "tflops_per_s", "tb_per_s", "bound", "roofline_share", "chip", "reached",
)  # fmt: skip
_NAMED, _LONGEST_NAME = 5, 60


def operator_table(run: RunAnalysis) -> pd.DataFrame:
    """Return a row for each rank, operator, and shapes and types of its arguments, the longest time first.

    ``time_ns`` is that of the device work of all ``calls`` as measured, on the host that of the operators
    themselves; ``share`` is its share of the rank's. ``flops`` and ``size_bytes`` are those of one call, 0
    where ``kind`` is "": these operators have no model. ``bound`` is compute or memory, whichever needs
    longer at the peaks of the chip that the trace names, and ``roofline_share`` is that time over the
    measured one, nan without a chip or model. Empty for workloads that were not converted from traces.
    """
    return _table(operator_rates(run.workload.metadata))


def joined_operators(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `operator_table` with those of all ranks of a chip joined, as rank -1."""
    return _table(joined_rates(_rates(table)))


def _rates(table: pd.DataFrame) -> Iterator[OperatorRate]:
    names = [field.name for field in fields(OperatorRate)]
    for row in table[names].itertuples(index=False):
        yield OperatorRate(*row)


def _table(rates: Sequence[OperatorRate]) -> pd.DataFrame:
    """Return *rates* as `operator_table` has them."""
    total: Counter[int] = Counter()
    for rate in rates:
        total[rate.rank] += rate.time_ns
    ordered = sorted(rates, key=lambda rate: (rate.rank, -rate.time_ns))
    table: pd.DataFrame = pd.DataFrame(
        [[getattr(rate, name) for name in _FIELDS] for rate in ordered], columns=[*_FIELDS]
    )
    shares = [rate.time_ns / max(1, total[rate.rank]) for rate in ordered]
    table.insert(_FIELDS.index("time_ns") + 1, "share", shares)
    return table


def operators_text(table: pd.DataFrame) -> str:
    """Return what is to know of `operator_table` in sentences: the chips, and what has no model."""
    rates = [*_rates(table)]
    total = max(1, sum(rate.time_ns for rate in rates))
    unmodelled: Counter[str] = Counter()
    for rate in rates:
        if not rate.kind:
            unmodelled[rate.operator] += rate.time_ns
    listed = ", ".join(
        f"{_short(name)} {share_text(ns / total)}" for name, ns in unmodelled.most_common(_NAMED)
    )
    more = f" and {len(unmodelled) - _NAMED} more" if len(unmodelled) > _NAMED else ""
    share = share_text(1 - unmodelled.total() / total)
    without = f"; without: {listed}{more}" if listed else ""
    lines = [f"{share} of the time is of operators with a model and recorded shapes{without}."]
    for device in dict.fromkeys(rate.chip for rate in rates):
        chip = known_chip(device)
        if chip is not None:
            lines.append(f"Peaks of {chip.title}: {_peaks(chip)}.")
        elif device:
            lines.append(f"No peaks are known of the chip '{device}': no bound and no share of a roofline.")
        else:
            lines.append("The trace names no chip: no bound and no share of a roofline.")
    return " ".join(lines)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."


def _peaks(chip: Chip) -> str:
    peaks = [f"{name.upper()} {flops / 1e12:,.0f}" for name, flops in chip.peak_flops.items()]
    return f"{', '.join(peaks)} TFLOP/s, {chip.memory_bytes_per_s / 1e12:.3g} TB/s"
