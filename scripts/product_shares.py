#!/usr/bin/env python3
"""Write the shares of the peak that large matmuls reach in isolation into the file of chips.

``python scripts/product_shares.py AICONFIGURATOR`` reads the tables of a checkout of
ai-dynamo/aiconfigurator (Apache-2.0). In a low precision, the times of the tables include the cast of the
input, which predictions count separately. The times of matmuls with 2,048 to 16,384 rows and at least 2,048
columns and inner numbers are fitted by their operations, by the elements of their three matrices, and by a
constant. The share of the peak is the share of the operations alone.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from fit_chips import CHIPS, store_chip

from chakrascope.runner.chips import find_chip

TABLES = Path("aic-core/src/aiconfigurator_core/systems/data")
# The table of a chip, and the precisions by their names there.
SYSTEMS = {
    "a100-80": "a100_sxm/gemm/trtllm/1.0.0",
    "h100": "h100_sxm/gemm/trtllm/1.3.0rc20",
    "h200": "h200_sxm/gemm/trtllm/1.3.0rc20",
    "b200": "b200_sxm/gemm/trtllm/1.3.0rc20",
    "b300": "b300_sxm/gemm/trtllm/1.3.0rc20",
    "gb200": "gb200/gemm/trtllm/1.3.0rc20",
    "gb300": "gb300/gemm/trtllm/1.3.0rc20",
}
PRECISIONS = {"bf16": "bfloat16", "fp8": "fp8", "nvfp4": "nvfp4"}


def main() -> None:
    """Read the command line, and write the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("aiconfigurator", type=Path, help="a checkout of ai-dynamo/aiconfigurator")
    folder = parser.parse_args().aiconfigurator / TABLES
    for name, system in SYSTEMS.items():
        chip = find_chip(name)
        rows = pq.read_table(folder / system / "gemm_perf.parquet").to_pandas()
        rows = rows[rows.m.between(2048, 16384) & (rows.n >= 2048) & (rows.k >= 2048)]
        shares = {}
        for precision, dtype in PRECISIONS.items():
            part = rows[rows.gemm_dtype == dtype]
            if len(part) and precision in chip.peak_flops:
                key = "default" if precision == "bf16" else precision
                shares[key] = round(_speed(part) / chip.peak(precision), 3)
        store_chip(replace(chip, products=shares), CHIPS)
        print(name, shares)


def _speed(rows: pd.DataFrame) -> float:
    """Return the operations per second of matmuls, without the fitted time per element and per call."""
    m, n, k = (rows[name].to_numpy(float) for name in "mnk")
    parts = np.stack([2 * m * n * k, m * k, m * n, n * k, np.ones(len(rows))], axis=1)
    relative = parts / rows.latency.to_numpy()[:, None] * 1e3
    free = list(range(parts.shape[1]))
    while True:  # least squares of relative errors; no part takes less than no time
        each = np.linalg.lstsq(relative[:, free], np.ones(len(rows)), rcond=None)[0]
        if each.min() >= 0:
            return float(1 / each[0])
        free.pop(int(each.argmin()))


if __name__ == "__main__":
    main()
