"""What operators do and reach: operations, bytes, TFLOP/s, TB/s and the share of the chip's roofline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ...converter.building import MATRIX_CLASSES, TRANSFER
from ...support import share_text
from ..chips import Chip, chip_of_device

if TYPE_CHECKING:
    from ._run import RunAnalysis

__all__ = ["joined_ranks", "operator_table", "operators_text", "reached_text"]

_CALL = ["operator", "kind", "precision", "arguments", "flops", "read_bytes", "written_bytes"]
_FIGURES = ["calls", "kernels", "time_ns"]
_COLUMNS = [
    "rank",
    "operator",
    "kind",
    "precision",
    "arguments",
    "calls",
    "kernels",
    "time_ns",
    "share",
    "flops",
    "bytes",
    "tflops_per_s",
    "tb_per_s",
    "bound",
    "roofline_share",
    "chip",
]
# What vector units compute is bounded by this peak, whatever the type in memory.
_VECTOR = "fp32"


def operator_table(run: RunAnalysis) -> pd.DataFrame:
    """Return a row for each rank, operator, and shapes and types of its arguments, the longest time first.

    ``time_ns`` is that of the device work of all ``calls`` as measured, on the host that of the operators
    themselves; ``share`` is its share of the rank's. ``flops`` and ``bytes`` are those of one call, 0 where
    ``kind`` is "": these operators have no model. ``bound`` is compute or memory, whichever needs longer at
    the peaks of the chip that the trace names, and ``roofline_share`` is that time over the measured one, nan
    without a chip or model. Empty for workloads that were not converted from traces.
    """
    metadata = run.workload.metadata
    known = metadata.get("operators")
    if not isinstance(known, Mapping) or not any(known["ranks"].values()):
        return pd.DataFrame(columns=_COLUMNS)
    rows = [[int(rank), *known["kinds"][number], *figures]
            for rank, calls in known["ranks"].items() for number, *figures in calls]  # fmt: skip
    table = pd.DataFrame(rows, columns=["rank", *_CALL, *_FIGURES])
    chips = {int(rank): name for rank, name in metadata.get("chips", {}).items()}
    table["chip"] = table["rank"].map(chips).fillna("")
    table["bytes"] = table["read_bytes"] + table["written_bytes"]
    table.loc[table["kind"] == "", ["flops", "bytes"]] = 0
    table = _with_rates(table)
    order = table.sort_values(["rank", "time_ns"], ascending=[True, False], kind="stable")
    return order[_COLUMNS].reset_index(drop=True)


def joined_ranks(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `operator_table` with those of all ranks of a chip joined: their calls and times."""
    keys = ["chip", "operator", "kind", "precision", "arguments", "flops", "bytes"]
    joined = table.groupby(keys, as_index=False, sort=False)[_FIGURES].sum()
    ordered = _with_rates(joined.assign(rank=-1)).sort_values("time_ns", ascending=False, kind="stable")
    return ordered[_COLUMNS].drop(columns="rank").reset_index(drop=True)


def operators_text(table: pd.DataFrame) -> str:
    """Return what is to know of `operator_table` in sentences: the chips, and what has no model."""
    total = max(1, int(table["time_ns"].sum()))
    unmodelled = table[table["kind"] == ""]
    names = unmodelled.groupby("operator")["time_ns"].sum().sort_values(ascending=False, kind="stable")
    listed = ", ".join(f"{name} {share_text(time / total)}" for name, time in names.head(5).items())
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    share = share_text(1 - float(unmodelled["time_ns"].sum()) / total)
    without = f"; without: {listed}{more}" if listed else ""
    lines = [f"{share} of the time is of operators with a model{without}."]
    for device in table["chip"].unique():
        chip = chip_of_device(device)
        if chip is not None:
            lines.append(f"Peaks of {chip.title}: {_peaks(chip)}.")
        elif device:
            lines.append(f"No peaks are known of the chip '{device}': no bound and no share of a roofline.")
        else:
            lines.append("The trace names no chip: no bound and no share of a roofline.")
    return " ".join(lines)


def reached_text(row: Mapping[str, Any]) -> str:
    """Return the rate that a row of `operator_table` reaches of what bounds it; "" without a model.

    Without peaks that is TFLOP/s for products, convolutions and attention, TB/s for others.
    """
    if not row["kind"]:
        return ""
    if row["bound"] == "compute" or (not row["bound"] and row["kind"] in MATRIX_CLASSES):
        return f"{row['tflops_per_s']:.3g} TFLOP/s"
    return f"{row['tb_per_s']:.3g} TB/s" if row["tb_per_s"] >= 1e-3 else "<0.001 TB/s"


def _with_rates(table: pd.DataFrame) -> pd.DataFrame:
    """Return *table* with what follows from operations, bytes, times and chips."""
    time = np.maximum(1, table["time_ns"].to_numpy(np.float64))
    flops = table["flops"].to_numpy(np.float64) * table["calls"]
    moved = table["bytes"].to_numpy(np.float64) * table["calls"]
    total = table.groupby("rank")["time_ns"].transform("sum")
    rates = {"share": table["time_ns"] / np.maximum(1, total)}
    rates |= {"tflops_per_s": flops / time / 1e3, "tb_per_s": moved / time / 1e3}
    compute_ns, memory_ns = (np.zeros(len(table)) for _ in range(2))
    for device in table["chip"].unique():
        chip = chip_of_device(device)
        own = ((table["chip"] == device) & ~table["kind"].isin(["", TRANSFER])).to_numpy()
        if chip is None:
            continue
        peaks = table["precision"].where(table["kind"].isin(MATRIX_CLASSES), _VECTOR)
        peak = peaks.map(chip.peak_flops).fillna(np.inf).to_numpy(np.float64)
        compute_ns[own] = (flops / peak * 1e9)[own]
        memory_ns[own] = (moved / chip.memory_bytes_per_s * 1e9)[own]
    least = np.maximum(compute_ns, memory_ns)
    bound = np.where(compute_ns > memory_ns, "compute", np.where(least > 0, "memory", ""))
    return table.assign(**rates, bound=bound, roofline_share=np.where(least > 0, least / time, np.nan))


def _peaks(chip: Chip) -> str:
    peaks = [f"{name.upper()} {flops / 1e12:,.0f}" for name, flops in chip.peak_flops.items()]
    return f"{', '.join(peaks)} TFLOP/s, {chip.memory_bytes_per_s / 1e12:.3g} TB/s"
