#!/usr/bin/env python3
"""Write the shares of the peak that large matmuls and attention reach in isolation into the file of chips.

``python scripts/product_shares.py AICONFIGURATOR`` reads the tables of a checkout of
ai-dynamo/aiconfigurator (Apache-2.0). In a low precision, the times of the tables include the cast of the
input, which predictions count separately. The times of matmuls with 2,048 to 16,384 rows and at least 2,048
columns and inner numbers are fitted by their operations, by the elements of their three matrices, and by a
constant. The share of the peak is the share of the operations alone. Likewise, the times of causal attention
with heads of 128 columns and 2,048 to 16,384 tokens are fitted by their operations, by the elements of
queries, keys and values, and by a constant.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from fit_chips import CHIPS, store_chip

from chakrascope.runner.chips import find_chip

TABLES = Path("aic-core/src/aiconfigurator_core/systems/data")
# The folder and the release of a chip's tables, and the precisions by their names there.
SYSTEMS = {
    "a100-80": ("a100_sxm", "1.0.0"),
    "h100": ("h100_sxm", "1.3.0rc20"),
    "h200": ("h200_sxm", "1.3.0rc20"),
    "b200": ("b200_sxm", "1.3.0rc20"),
    "b300": ("b300_sxm", "1.3.0rc20"),
    "gb200": ("gb200", "1.3.0rc20"),
    "gb300": ("gb300", "1.3.0rc20"),
}
PRECISIONS = {"bf16": "bfloat16", "fp8": "fp8", "nvfp4": "nvfp4"}


def main() -> None:
    """Read the command line, and write the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("aiconfigurator", type=Path, help="a checkout of ai-dynamo/aiconfigurator")
    folder = parser.parse_args().aiconfigurator / TABLES
    for name, (system, release) in SYSTEMS.items():
        chip = find_chip(name)
        rows = _table(folder / system / "gemm/trtllm" / release / "gemm_perf.parquet")
        rows = rows[rows.m.between(2048, 16384) & (rows.n >= 2048) & (rows.k >= 2048)]
        shares = {}
        for precision, dtype in PRECISIONS.items():
            part = rows[rows.gemm_dtype == dtype]
            if len(part) and precision in chip.peak_flops:
                key = "default" if precision == "bf16" else precision
                m, n, k = (part[name].to_numpy(float) for name in "mnk")
                speed = _speed([2 * m * n * k, m * k, m * n, n * k], part.latency)
                shares[key] = round(speed / chip.peak(precision), 3)
        rows = _table(folder / system / "attention/trtllm" / release / "context_attention_perf.parquet")
        attention = round(_attention_speed(rows) / chip.peak("bf16"), 3)
        store_chip(replace(chip, products=shares, attention_share=attention), CHIPS)
        print(name, shares, attention)


def _table(file: Path) -> pd.DataFrame:
    return pq.read_table(file).to_pandas()


def _attention_speed(rows: pd.DataFrame) -> float:
    """Return the operations per second of causal attention in half precision."""
    chosen = (rows.head_dim == 128) & (rows.window_size == 0) & rows.isl.between(2048, 16384)
    for dtype in (rows.attn_dtype, rows.kv_cache_dtype):
        chosen &= dtype.isin(["bfloat16", "float16"])
    rows = rows[chosen]
    tokens, length = (rows.batch_size * rows.isl).to_numpy(float), rows.isl.to_numpy(float)
    queries, keys = (128 * rows[name].to_numpy(float) for name in ("num_heads", "num_key_value_heads"))
    return _speed([2 * tokens * length * queries, tokens * queries, tokens * keys], rows.latency)


def _speed(parts: Sequence[np.ndarray], latency: pd.Series) -> float:
    """Return the amount per second of the first of *parts*, without the time of other parts and calls.

    *latency* is in ms.
    """
    columns = np.stack([*parts, np.ones(len(latency))], axis=1)
    relative = columns / latency.to_numpy()[:, None] * 1e3
    free = list(range(columns.shape[1]))
    while True:  # least squares of relative errors; no part has a negative time
        each = np.linalg.lstsq(relative[:, free], np.ones(len(latency)), rcond=None)[0]
        if each.min() >= 0:
            return float(1 / each[0])
        free.pop(int(each.argmin()))


if __name__ == "__main__":
    main()
