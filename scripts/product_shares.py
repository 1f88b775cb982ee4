#!/usr/bin/env python3
"""Write the shares of the peak that large matmuls reach in isolation into the chip files.

``python scripts/product_shares.py AICONFIGURATOR`` reads the tables of a checkout of
ai-dynamo/aiconfigurator (Apache-2.0). The share is that of all products with 4,096 to 16,384 rows and at
least 2,048 columns and inner numbers together, so that long ones count most.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from chakrascope.runner.chips import find_chip, save_chip

CHIPS = Path(__file__).resolve().parent.parent / "runner" / "chips"
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
PRECISIONS = {"bf16": "bfloat16", "fp8": "fp8"}


def main() -> None:
    """Read the command line, and write the chip files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("aiconfigurator", type=Path, help="a checkout of ai-dynamo/aiconfigurator")
    folder = parser.parse_args().aiconfigurator / TABLES
    for name, system in SYSTEMS.items():
        chip = find_chip(name)
        rows = pq.read_table(folder / system / "gemm_perf.parquet").to_pandas()
        rows = rows[rows.m.between(4096, 16384) & (rows.n >= 2048) & (rows.k >= 2048)]
        shares = {}
        for precision, dtype in PRECISIONS.items():
            part = rows[rows.gemm_dtype == dtype]
            if len(part) and precision in chip.peak_flops:
                speed = (2.0 * part.m * part.n * part.k).sum() / (part.latency.sum() / 1e3)
                key = "default" if precision == "bf16" else precision
                shares[key] = round(float(speed) / chip.peak(precision), 3)
        save_chip(replace(chip, products=shares), CHIPS / f"{name}.yml")
        print(name, shares)


if __name__ == "__main__":
    main()
