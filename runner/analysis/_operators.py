"""FLOPs, bytes, TFLOP/s, TB/s and roofline share of each operator, as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import pandas as pd

from ...support import share_text
from ..chips import Chip
from ._operator_rates import OperatorRate, joined_rates, known_chip, operator_rates, peak_of

if TYPE_CHECKING:
    from ._run import RunAnalysis

_FIELDS = (
    "rank", "operator", "kind", "precision", "arguments", "calls", "kernels", "time_ns", "flops",
    "size_bytes", "tflops_per_s", "tb_per_s", "bound", "roofline_share", "chip", "reached",
)  # fmt: skip
_WORK = ("flops", "size_bytes", "tflops_per_s", "tb_per_s")
_NAMED, _LONGEST_NAME = 5, 60


def operator_table(run: RunAnalysis) -> pd.DataFrame:
    """Return a row per rank, operator, and shapes and types of its arguments, by descending time.

    ``time_ns`` is the measured device time of all ``calls``, or the operators' time on a host, and
    ``share`` its fraction of the rank's total. ``flops`` and ``size_bytes`` are the work of one
    call; they and the rates are missing, and ``kind`` is "", without a model or recorded shapes.
    ``bound`` is the resource (compute or memory) that takes longer at the peaks of the chip, and
    ``roofline_share`` that time over the measured one (NaN if unknown). Workloads that do not come
    from traces have no rows.
    """
    return _table(operator_rates(run.workload.metadata))


def joined_operators(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `operator_table` merged over all ranks of a chip, as rank -1."""
    return _table(joined_rates(_rates(table)))


@dataclass(frozen=True)
class Roof:
    """The roofline of a *chip*: its memory bandwidth in TB/s, and its *peaks* in TFLOP/s by precision."""

    chip: str
    tb_per_s: float
    peaks: Mapping[str, float]


def roofline_points(table: pd.DataFrame) -> pd.DataFrame:
    """Return the operators of known FLOPs and bytes, with their ``intensity`` in FLOP per byte."""
    points = table[(table["kind"] != "") & (table["flops"] > 0) & (table["size_bytes"] > 0)]
    points = points.astype(dict.fromkeys(["flops", "size_bytes"], "int64"))
    intensity = points["flops"] / points["size_bytes"]
    chosen: pd.DataFrame = points.assign(intensity=intensity).reset_index(drop=True)
    return chosen


def rooflines(points: pd.DataFrame) -> list[Roof]:
    """Return the roofline of each chip in *points*, with the peaks that bound any of its operators."""
    rows = []
    for device, own in points.groupby("chip", sort=False):
        chip = known_chip(str(device))
        if chip is None:
            continue
        used = set(map(peak_of, own["kind"], own["precision"]))
        peaks = {name: flops / 1e12 for name, flops in chip.peak_flops.items() if name in used}
        rows.append(Roof(chip.title, chip.memory_bytes_per_s / 1e12, peaks))
    return rows


def longest_call(run: RunAnalysis, operator: str, size_bytes: int) -> tuple[int, int]:
    """Return rank and node of the longest piece of an *operator*, preferably in a call of *size_bytes*.

    The rank is the one where the operator takes most time. The result is (-1, -1) if it runs
    nowhere.
    """
    table = operator_table(run)
    own = table[table["operator"] == operator].nlargest(1, "time_ns")
    if own.empty:
        return -1, -1
    rank = int(own["rank"].iloc[0])
    nodes = run.program_of(rank)
    nodes = nodes[(nodes["operator"] == operator) & nodes["kind"].isin(["compute", "copy"])]
    alike = nodes[nodes["tensor_size_bytes"] == size_bytes]
    longest = (nodes if alike.empty else alike).nlargest(1, "duration_ns")
    return (rank, int(longest["node_id"].iloc[0])) if len(longest) else (-1, -1)


def _rates(table: pd.DataFrame) -> Iterator[OperatorRate]:
    names = [field.name for field in fields(OperatorRate)]
    counted = table[names].fillna({"flops": 0, "size_bytes": 0})
    for row in counted.itertuples(index=False):
        yield OperatorRate(*row)


def _table(rates: Sequence[OperatorRate]) -> pd.DataFrame:
    """Return *rates* with the columns of `operator_table`."""
    total: Counter[int] = Counter()
    for rate in rates:
        total[rate.rank] += rate.time_ns
    ordered = sorted(rates, key=lambda rate: (rate.rank, -rate.time_ns))
    table: pd.DataFrame = pd.DataFrame(
        [[getattr(rate, name) for name in _FIELDS] for rate in ordered], columns=[*_FIELDS]
    )
    table = table.astype(dict.fromkeys(["flops", "size_bytes"], "Int64"))
    table[[*_WORK]] = table[[*_WORK]].where(table["kind"] != "")
    shares = [rate.time_ns / max(1, total[rate.rank]) for rate in ordered]
    table.insert(_FIELDS.index("time_ns") + 1, "share", shares)
    return table


def operators_text(table: pd.DataFrame) -> str:
    """Summarise an operator table: how much has a model, and the peaks of the chips."""
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
    lines = [
        (
            f"{share} of the time is spent in operators whose cost is modelled and whose shapes were "
            f"recorded{without}."
        )
    ]
    for device in dict.fromkeys(rate.chip for rate in rates):
        chip = known_chip(device)
        if chip is not None:
            lines.append(f"Peaks of {chip.title}: {_peaks(chip)}.")
        elif device:
            lines.append(
                f"The peaks of the chip '{device}' are unknown, so the bound and the roofline share of "
                "operators are unknown."
            )
        else:
            lines.append(
                "The trace does not name the chip, so the bound and the roofline share of operators are "
                "unknown."
            )
    return " ".join(lines)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."


def _peaks(chip: Chip) -> str:
    peaks = [f"{name.upper()} {flops / 1e12:,.0f}" for name, flops in chip.peak_flops.items()]
    return f"{', '.join(peaks)} TFLOP/s, {chip.memory_bytes_per_s / 1e12:.3g} TB/s"
