#!/usr/bin/env python3
"""Measure the costs of operators on a local GPU, and write a chip file for ``predict``.

``python scripts/measure_chip.py --chip h100 -o mine.yml`` measures matmuls, attention, pointwise operators
and launches of several sizes. ``--chip`` names the shipped chip that provides the peaks and the memory, which
come from a data sheet. The costs are stored as the software stack ``measured``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from chakrascope.errors import ChakrascopeError
from chakrascope.runner.calibration import calibrated_chip, compute_fits
from chakrascope.runner.chips import Chip, find_chip, save_chip

if TYPE_CHECKING:
    import torch

GEMMS = (256, 512, 1024, 2048, 4096, 8192)
ATTENTIONS = (256, 512, 1024, 2048, 4096)
POINTWISE = tuple(1 << power for power in range(16, 29, 2))
LAUNCHES = (1, 8, 64, 512)
_ROUNDS = 20
MEASURED = "measured"


class Launches(NamedTuple):
    """The cost of an additional kernel in ns: of its launch on the host, and within a graph on the device."""

    host_ns: float
    device_ns: float


def main() -> None:
    """Read the command line, measure and write the chip file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--chip", required=True, help="shipped chip that provides the peaks")
    parser.add_argument("-o", "--output", type=Path, required=True, help="chip file to write")
    given = parser.parse_args()
    import torch  # noqa: PLC0415 - it takes seconds, and fitting needs none

    if not torch.cuda.is_available():
        print("PyTorch finds no GPU here: run this on the chip to be measured.")
        sys.exit(2)
    device = torch.device("cuda")
    where = f"{torch.cuda.get_device_name(device)}, PyTorch {torch.__version__}"
    try:
        table = pd.concat([gemms(device), attentions(device), pointwise(device)], ignore_index=True)
        curve = launch_times(device)
        chip, notes = measured_chip(
            find_chip(given.chip), table, slopes(*curve), kernels_of_layer(device), where
        )
        save_chip(chip, given.output)
    except ChakrascopeError as error:
        sys.exit(str(error))
    print(*notes, f"Written: {given.output}", sep="\n")


def measured_chip(
    base: Chip, table: pd.DataFrame, launches: Launches, kernels: int, where: str
) -> tuple[Chip, list[str]]:
    """Return *base* with the costs in *table*, and the costs that it lacks.

    *table* has a row per repetition: ``operator, class, work, duration_ns``, work in operations of gemm and
    attention, in bytes of pointwise. *launches* has the cost of a kernel, of which a layer has *kernels*.
    """
    chip, notes = calibrated_chip(base, compute_fits(table), f"measured on {where}")
    costs = replace(
        chip.costs[MEASURED],
        layer_ns=round(kernels * launches.device_ns, 1),
        host_ns=round(kernels * launches.host_ns, 1),
    )
    kept = [note for note in notes if "starting operators" not in note]
    kept.append(f"a layer has {kernels} kernels in its forward pass; steps and collectives start at once")
    return replace(chip, costs={**chip.costs, MEASURED: costs}), kept


def slopes(counts: tuple[int, ...], host_ns: list[float], device_ns: list[float]) -> Launches:
    """Return the cost of an additional kernel, from the times of *counts* kernels."""
    return Launches(*(float(np.polyfit(counts, times, 1)[0]) for times in (host_ns, device_ns)))


def gemms(device: torch.device) -> pd.DataFrame:
    """Return the times of square matmuls in BF16."""
    import torch  # noqa: PLC0415

    def cases() -> Iterator[tuple[float, Callable[[], object]]]:
        for size in GEMMS:
            one, other = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
            yield 2.0 * size**3, lambda one=one, other=other: torch.mm(one, other)

    return _timed("aten::mm", "gemm", cases(), device)


def attentions(device: torch.device) -> pd.DataFrame:
    """Return the times of attention in BF16: 16 heads of 128, without a mask."""
    import torch  # noqa: PLC0415
    from torch.nn.functional import scaled_dot_product_attention  # noqa: PLC0415

    def cases() -> Iterator[tuple[float, Callable[[], object]]]:
        for length in ATTENTIONS:
            query, key, value = (
                torch.randn(1, 16, length, 128, device=device, dtype=torch.bfloat16) for _ in range(3)
            )
            work = 4.0 * 16 * 128 * length**2
            yield work, lambda q=query, k=key, v=value: scaled_dot_product_attention(q, k, v)

    return _timed("aten::scaled_dot_product_attention", "attention", cases(), device)


def pointwise(device: torch.device) -> pd.DataFrame:
    """Return the times of additions in BF16: two tensors read, one written."""
    import torch  # noqa: PLC0415

    def cases() -> Iterator[tuple[float, Callable[[], object]]]:
        for count in POINTWISE:
            one, other = (torch.randn(count, device=device, dtype=torch.bfloat16) for _ in range(2))
            yield 3.0 * 2 * count, lambda one=one, other=other: one + other

    return _timed("aten::add", "pointwise", cases(), device)


def _timed(
    operator: str,
    kind: str,
    cases: Iterator[tuple[float, Callable[[], object]]],
    device: torch.device,
) -> pd.DataFrame:
    """Return a row per repetition of each case: its work and its time between two events of the device."""
    import torch  # noqa: PLC0415

    rows = []
    for work, call in cases:
        for _ in range(3):
            call()
        for _ in range(_ROUNDS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize(device)
            rows.append((operator, kind, work, begin.elapsed_time(end) * 1e6))
    return pd.DataFrame(rows, columns=["operator", "class", "work", "duration_ns"])


def launch_times(device: torch.device) -> tuple[tuple[int, ...], list[float], list[float]]:
    """Return numbers of tiny kernels, the host's launch times, and the device's times in a CUDA graph."""
    import torch  # noqa: PLC0415

    small = torch.zeros(1, device=device)

    def calls(count: int) -> None:
        for _ in range(count):
            small.add_(1)

    calls(100)
    host, graphs = [], []
    for count in LAUNCHES:
        torch.cuda.synchronize(device)
        rounds = []
        for _ in range(_ROUNDS):
            began = time.perf_counter_ns()
            calls(count)
            rounds.append(float(time.perf_counter_ns() - began))
            torch.cuda.synchronize(device)
        host.append(statistics.median(rounds))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            calls(count)
        times = _timed("graph", "launch", iter([(float(count), graph.replay)]), device)
        graphs.append(float(times["duration_ns"].median()))
    return LAUNCHES, host, graphs


def kernels_of_layer(device: torch.device) -> int:
    """Return how many kernels the forward pass of a Transformer's layer launches."""
    import torch  # noqa: PLC0415
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415

    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, device=device)
    tokens = torch.randn(2, 64, 256, device=device)
    layer(tokens)
    with profile(activities=[ProfilerActivity.CUDA]) as record:
        layer(tokens)
        torch.cuda.synchronize(device)
    return sum(event.count for event in record.key_averages() if event.self_device_time_total > 0)


if __name__ == "__main__":
    main()
