#!/usr/bin/env python3
"""Write docs/fidelity.md: how far the analytical backends are from the packet-level one, and where.

``python scripts/fidelity_report.py [-o FOLDER]`` simulates every pattern of communication, of every size, on
every network, with every backend; `packet` is the measure of the others.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from chakrascope.converter import microbenchmark
from chakrascope.errors import ChakrascopeError
from chakrascope.runner import NetworkConfig, simulate

DOCS = Path(__file__).resolve().parent.parent / "docs"
PATTERNS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ring-shift", "incast")
SIZES = {"16 KiB": 1 << 14, "256 KiB": 1 << 18, "4 MiB": 1 << 22, "16 MiB": 1 << 24}
# Ranks behind leaf switches whose way up is half as wide as their way down: two tiers, 100 Gb/s.
_CLOS = {
    "topology": ["Switch"],
    "npus_count": [16],
    "bandwidth": [11.642],
    "latency": [500.0],
    "packet": {"fabric": {"hosts_per_leaf": 4, "oversubscription": 2}},
}
NETWORKS = {
    "ring-8": "8 ranks in a ring",
    "dgx-a100-8": "8 ranks on one switch, 300 GB/s",
    "cpu-cluster-16": "16 ranks on one switch",
    "dgx-a100-2x8": "2 hosts of 8 ranks",
    "clos-16": "16 ranks, 4 a leaf, 2:1 oversubscribed",
}
BACKENDS = ("analytical-unaware", "analytical-aware", "packet")
MEASURE = "packet"
_READING = (
    "* `analytical-unaware` is good where messages do not meet: rings, and ring algorithms on one switch. "
    "Its messages carry no headers (up to 8 % of the time of large ones) and never wait, so it is far too "
    "short for incasts, direct all-to-alls, and messages that several ranks send through one slow link.",
    "* `analytical-aware` is good for incasts and all-to-alls on rings and single switches, where waiting "
    "is what counts. It stores every message whole at each device before it passes it on, as ASTRA-sim "
    "does, where packets follow one another: a large message over two links takes almost twice its time, "
    "over four almost four times.",
    "* The truth is usually between the two, nearer to the first for ring algorithms. Where they agree, no "
    "packets need to be simulated; where they do not, ask `packet`.",
)
_CELL, _LEFT, _TOP = 64, 260, 70


def main() -> None:
    """Read the command line, simulate the grid and write the report with its figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=DOCS, help="folder to write (docs)")
    folder = parser.parse_args().output
    try:
        table = errors(run_grid(PATTERNS, SIZES, list(NETWORKS), BACKENDS))
    except ChakrascopeError as error:
        sys.exit(str(error))
    (folder / "images").mkdir(parents=True, exist_ok=True)
    (folder / "images" / "fidelity.svg").write_text(draw(table), encoding="utf-8")
    (folder / "fidelity.md").write_text(report(table), encoding="utf-8")


def run_grid(
    patterns: Sequence[str], sizes: dict[str, int], networks: Sequence[str], backends: Sequence[str]
) -> pd.DataFrame:
    """Return a row for each experiment of the grid, with the makespan in ns of each backend."""
    rows = []
    for name in networks:
        network = load(name)
        for pattern in patterns:
            for label, size in sizes.items():
                workload = microbenchmark(pattern, network.num_ranks, size)
                row: dict[str, Any] = {"network": name, "pattern": pattern, "size": label}
                for backend in backends:
                    row[backend] = simulate(workload, "default", network, backend=backend).makespan_ns
                rows.append(row)
                print(row, file=sys.stderr)
    grid: pd.DataFrame = pd.DataFrame(rows)
    return grid


def load(name: str) -> NetworkConfig:
    """Return the network *name* of the grid."""
    return NetworkConfig.from_mapping(_CLOS, name) if name == "clos-16" else NetworkConfig.preset(name)


def errors(grid: pd.DataFrame, measure: str = MEASURE) -> pd.DataFrame:
    """Return the grid in long form: a row a backend, with its *error* relative to the backend *measure*."""
    keys = ["network", "pattern", "size", measure]
    table: pd.DataFrame = grid.melt(keys, var_name="backend", value_name="makespan_ns")
    table["error"] = table["makespan_ns"] / table[measure] - 1
    return table


def report(table: pd.DataFrame) -> str:
    """Return the page as Markdown."""
    parts = [
        "# Where the analytical backends are good enough",
        "",
        "Written by `python scripts/fidelity_report.py`; do not edit. The makespan of one operation on each "
        "backend, relative to `packet`, which simulates every packet: +5 % means that the backend takes 5 % "
        "longer. System `default` (ring algorithms, direct all-to-all, 4 chunks), no congestion control. "
        "`packet` is a model as well: [how true it is](backends.md#packet).",
        "",
        "![Relative error of each experiment](images/fidelity.svg)",
        "",
        *_READING,
        "",
        "## In short",
        "",
        *_markdown(_summary(table, ["network", "backend"])),
        "",
        *_markdown(_summary(table, ["pattern", "backend"])),
        "",
        *_markdown(_summary(table, ["size", "backend"])),
        "",
        "## Networks",
        "",
        *[f"* `{name}`: {NETWORKS[name]}" for name in table["network"].unique()],
        "",
        "## Every experiment",
        "",
        *_markdown(_every(table)),
        "",
    ]
    return "\n".join(parts)


def _summary(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return how large the errors are, whatever their sign, in groups."""
    grouped = table.assign(size_of=table["error"].abs()).groupby(by, sort=False)["size_of"]
    found = grouped.agg(["count", "median", "max"]).reset_index()
    found["within 10 %"] = grouped.agg(lambda sizes: f"{(sizes <= 0.1).sum()}").to_numpy()
    for column in ("median", "max"):
        found[column] = found[column].map("{:.1%}".format)
    shown: pd.DataFrame = found.rename(columns={"count": "experiments", "max": "largest"})
    return shown


def _every(table: pd.DataFrame) -> pd.DataFrame:
    """Return the makespans of `MEASURE` in µs and the others' errors, a row an experiment."""
    keys = ["network", "pattern", "size", MEASURE]
    wide: pd.DataFrame = table.pivot_table(
        index=keys, columns="backend", values="error", sort=False
    ).reset_index()
    wide[MEASURE] = (wide[MEASURE] / 1000).map("{:,.1f} µs".format)
    for backend in table["backend"].unique():
        wide[backend] = wide[backend].map("{:+.1%}".format)
    return wide


def _markdown(table: pd.DataFrame) -> Iterator[str]:
    yield f"| {' | '.join(map(str, table.columns))} |"
    yield "|" + "---|" * len(table.columns)
    for row in table.itertuples(index=False, name=None):
        yield f"| {' | '.join(map(str, row))} |"


def draw(table: pd.DataFrame) -> str:
    """Return the errors as coloured cells (SVG): blue is too short, red too long."""
    rows = table[["network", "pattern"]].drop_duplicates().reset_index(drop=True)
    columns = table[["backend", "size"]].drop_duplicates().reset_index(drop=True)
    row_of = {key: index for index, key in enumerate(rows.itertuples(index=False, name=None))}
    column_of = {key: index for index, key in enumerate(columns.itertuples(index=False, name=None))}
    shapes = [_text(10, 24, "Error of the makespan, relative to every packet simulated", size=16)]
    for (network, pattern), row in row_of.items():
        shapes.append(_text(10, _TOP + 18 * row + 13, f"{network}, {pattern}"))
    for (backend, size), column in column_of.items():
        x = _LEFT + _CELL * column
        shapes.append(_text(x + _CELL / 2, _TOP - 6, size, anchor="middle"))
        if size == columns["size"].iloc[0]:
            shapes.append(_text(x, _TOP - 24, backend, size=13))
    for key in table.to_dict("records"):
        x = _LEFT + _CELL * column_of[key["backend"], key["size"]]
        y = _TOP + 18 * row_of[key["network"], key["pattern"]]
        colour = _colour(float(key["error"]))
        shapes.append(f'<rect x="{x}" y="{y}" width="{_CELL - 2}" height="16" fill="{colour}"/>')
        shapes.append(_text(x + _CELL / 2, y + 12, f"{key['error']:+.1%}", anchor="middle"))
    width, height = _LEFT + _CELL * len(columns) + 20, _TOP + 18 * len(rows) + 20
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *shapes, "</svg>\n"])


def _text(x: float, y: float, words: str, *, size: int = 11, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}">{words}</text>'


def _colour(error: float) -> str:
    """Return white for no error, full colour for 50 % and more."""
    rest = round(255 - 155 * min(abs(error), 0.5) / 0.5)
    return f"rgb(255,{rest},{rest})" if error > 0 else f"rgb({rest},{rest},255)"


if __name__ == "__main__":
    main()
