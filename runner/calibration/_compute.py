"""Fit the costs of operator classes to captured workloads, and transfer a capture to another chip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from ...converter import NodeType, Workload
from ...converter.building import class_of, is_captured, plain_name
from ...errors import ConfigError
from ...support import count_text, duration_text, share_text
from ..chips import Chip, Costs, Fit
from ._fit import Cell, LinkFit, Row, fit_link

CLASSES = ("gemm", "attention", "pointwise")
_CLASSES = {"gemm": "gemm", "convolution": "gemm", "attention": "attention"}  # of the converter -> of a chip
_COLUMNS = ["operator", "num_ops", "tensor_size_bytes", "duration_ns"]


def cost_class(operator: str) -> str:
    """Return the class of *operator* (such as ``aten::addmm``), which is an element of `CLASSES`."""
    return _CLASSES.get(class_of(plain_name(operator)), "pointwise")


def operator_table(workload: Workload) -> pd.DataFrame:
    """Return a row per captured operator with a cost: ``rank, node_id``, operator, class, ops, bytes, ns.

    The column ``work`` determines an operator's time. For matmuls and attention, ``work`` is the number of
    operations. For other operators, ``work`` is the number of bytes. The function raises `ConfigError` for a
    workload without measurements.
    """
    if not is_captured(workload.metadata):
        raise ConfigError(
            "The workload does not come from a measurement, so it has no operator times; capture the job "
            "with 'chakrascope trace'."
        )
    tables = []
    for place, graph in enumerate(workload.graphs):
        nodes = graph.nodes
        # A cost of 1 marks an operator without a known cost.
        chosen = (nodes["type"] == NodeType.COMP) & (nodes["kind"] == "compute") & (nodes["duration_ns"] > 1)
        chosen &= nodes["tensor_size_bytes"] > 1
        tables.append(nodes.loc[chosen, ["node_id", *_COLUMNS]].assign(program=place))
    table: pd.DataFrame = pd.concat(tables, ignore_index=True)
    table["class"] = table["operator"].astype(str).map(cost_class)
    by_ops = table["class"].isin(["gemm", "attention"])
    table["work"] = np.where(by_ops, table["num_ops"], table["tensor_size_bytes"]).astype(np.float64)
    frame: pd.DataFrame = table[table["work"] > 1].reset_index(drop=True)
    return frame


MEASURED = "measured"
_FEWEST = 3
_WIDEST = 4.0  # the largest ratio between the ends of a speed's confidence interval


@dataclass(frozen=True)
class ClassFit:
    """The fit of an operator class: a start-up latency, and a time per operation or byte, in *fit*.

    *errors* are the relative errors for the *sizes* distinct operators, each compared with the median of the
    operator's repetitions.
    """

    name: str
    fit: LinkFit
    sizes: int
    count: int
    errors: tuple[float, ...]

    def time_ns(self, work: float) -> float:
        """Return the duration in ns of an operator with the given *work*."""
        return self.fit.latency_ns.value + work * self.fit.ns_per_byte.value


def compute_fits(table: pd.DataFrame) -> dict[str, ClassFit]:
    """Return a fit for each class of operators in *table* (an `operator_table`) with at least three sizes."""
    fits = {}
    for name in CLASSES:
        own = table[table["class"] == name]
        cells = [
            Cell(str(key[0]), Row(0.0, 1.0, float(key[1])), part["duration_ns"].to_numpy(np.float64))
            for key, part in own.groupby(["operator", "work"], sort=True)
        ]
        if len({cell.row.bytes for cell in cells}) < _FEWEST:
            continue
        fit = fit_link(cells)
        errors = tuple(
            cell.row.time_ns(fit.latency_ns.value, fit.ns_per_byte.value) / cell.median_ns - 1
            for cell in cells
        )
        if fit.ns_per_byte.value > 0:
            fits[name] = ClassFit(name, fit, len(cells), len(own), errors)
    return fits


def calibrated_chip(chip: Chip, fits: Mapping[str, ClassFit], source: str) -> tuple[Chip, list[str]]:
    """Return *chip* with the costs in *fits*, as the software ``measured``, and sentences on the gaps.

    An operator class keeps the chip's costs if its operators are too small to determine a speed, or have
    too few sizes. The function raises `ConfigError` if no class determines a speed, or if operators exceed
    the peaks of *chip*, because they ran on another chip.
    """
    measured = {name: fit for name, fit in fits.items() if fit.fit.ns_per_byte.spread <= _WIDEST}
    if not measured:
        raise ConfigError(
            f"{source[:1].upper()}{source[1:]} has no class of operators with at least {_FEWEST} "
            "sizes that are large enough to determine a speed, so no chip can be fitted. Next: capture a "
            "step of a larger model, with host traces, which contain FLOPs and bytes."
        )
    base = next(iter(chip.costs.values()))
    shares = {name: _share(chip, fit) for name, fit in measured.items()}
    for name, share in shares.items():
        if share > 1:
            raise ConfigError(
                f"Operators of the class '{name}' reach {share_text(share)} of the peak of '{chip.name}', so "
                "they ran on another chip, or the traces count too many operations. Name the right --chip."
            )
    errors = np.abs([error for fit in measured.values() for error in fit.errors])
    starts = ", ".join(f"{name} {duration_text(fit.fit.latency_ns.value)}" for name, fit in measured.items())
    costs = Costs(
        gemm={"default": shares["gemm"]} if "gemm" in shares else base.gemm,
        attention={"default": shares["attention"]} if "attention" in shares else base.attention,
        pointwise=shares.get("pointwise", base.pointwise),
        gemm_memory=0.0,
        fit=Fit(
            f"{source}; start-up time of an operator: {starts}",
            int(sum(fit.count for fit in measured.values())),
            mean=float(errors.mean()),
            median=float(np.median(errors)),
            worst=float(errors.max()),
        ),
    )
    why = {
        name: "too small to determine a speed" if name in fits else f"fewer than {_FEWEST} sizes"
        for name in CLASSES
    }
    notes = [
        f"{name}: {why[name]}, so it keeps the chip's own costs" for name in CLASSES if name not in measured
    ]
    notes.append("the start-up times of operators, layers, steps and collectives are 0 in the chip file")
    return replace(chip, costs={**chip.costs, MEASURED: costs}), notes


def _share(chip: Chip, fit: ClassFit) -> float:
    """Return the fraction of the chip's peak or memory bandwidth that the operator class reaches."""
    peak = chip.memory_bytes_per_s if fit.name == "pointwise" else chip.peak(chip.precision)
    return 1e9 / fit.fit.ns_per_byte.value / peak


def rescaled(workload: Workload, other: Workload, name: str) -> tuple[Workload, str]:
    """Return *workload* with operators as fast as in the capture *other*, and the error of this conversion.

    An operator with the same operations and bytes in *other* gets its median time in *other*. The time of
    every other operator is scaled by the factor of its class. The error is measured on operators in both
    captures, for which the scaled time is compared with the measured time. The function raises `ConfigError`
    if the captures have no class in common.
    """
    own, there = operator_table(workload), operator_table(other)
    mine, theirs = compute_fits(own), compute_fits(there)
    common = sorted(set(mine) & set(theirs))
    if not common:
        raise ConfigError(
            f"The captures have no common class of operators with {_FEWEST} sizes each, so the ratio of the "
            "chips is unknown. Next: capture the same model on both chips."
        )
    keys = ["operator", "num_ops", "tensor_size_bytes"]
    medians = there.groupby(keys)["duration_ns"].median().rename("known_ns").reset_index()
    table = own.merge(medians, on=keys, how="left")
    carried = np.array(
        [
            row.duration_ns * theirs[kind].time_ns(row.work) / max(mine[kind].time_ns(row.work), 1.0)
            if (kind := str(row.kind)) in common
            else np.nan
            for row in table.rename(columns={"class": "kind"}).itertuples()
        ]
    )
    measured = table["known_ns"].to_numpy(np.float64)
    both = ~np.isnan(measured) & ~np.isnan(carried)
    times = np.where(np.isnan(measured), carried, measured)
    error = float(np.median(np.abs(carried[both] / measured[both] - 1))) if both.any() else float("nan")
    left = int(np.isnan(times).sum())
    assumption = _assumption(table, measured, left, error, name)
    table = table.assign(new_ns=np.where(np.isnan(times), table["duration_ns"], times))
    return _with_times(workload, table, assumption), assumption


def _assumption(table: pd.DataFrame, measured: np.ndarray, left: int, error: float, name: str) -> str:
    count = int((~np.isnan(measured)).sum())
    off = (
        "unknown, because no operator is in both captures"
        if np.isnan(error)
        else f"{share_text(error)} in the median"
    )
    rest = f", {left} kept their times" if left else ""
    return (
        f"Compute times were scaled to {name}: {count} of {count_text(len(table), 'operator')} have "
        f"times measured there, and the others were scaled by class{rest}; the error of the scaling is {off}"
    )


def _with_times(workload: Workload, table: pd.DataFrame, assumption: str) -> Workload:
    graphs = list(workload.graphs)
    for program, part in table.groupby("program"):
        place = int(part["program"].iloc[0])
        graph = graphs[place]
        durations = graph.node_columns["duration_ns"].copy()
        rows = np.searchsorted(graph.node_columns["node_id"], part["node_id"].to_numpy())
        durations[rows] = np.maximum(1, part["new_ns"].round()).astype(np.int64)
        graphs[int(str(program))] = graph.with_columns(duration_ns=durations)
    assumptions = [*workload.metadata.get("assumptions", []), assumption]
    metadata = {**workload.metadata, "assumptions": assumptions}
    metadata.pop("accounting", None)
    return replace(workload, graphs=tuple(graphs), metadata=metadata)
