#!/usr/bin/env python3
"""Write docs/validation/fidelity.md: errors of each backend against packets, and its cost.

``python scripts/fidelity_report.py [-o FOLDER]`` simulates every communication pattern of every size on every
network with every backend, and some larger messages and pauses. `packet` is the reference for the other
backends. The script takes about five minutes, mostly for TCP, which needs ns-3 and a C++ compiler.
"""

from __future__ import annotations

import argparse
import itertools
import math
import resource
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from prose import wrapped

from chakrascope.converter import microbenchmark
from chakrascope.errors import ChakrascopeError
from chakrascope.runner import NetworkConfig, Result, simulate
from chakrascope.runner.backends.ns3 import build_driver
from chakrascope.runner.config import PacketPart, TcpPart
from chakrascope.support import Svg, element, picture

DOCS = Path(__file__).resolve().parent.parent / "docs" / "validation"
PATTERNS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "ring-shift", "incast")
SIZES = {"16 KiB": 1 << 14, "256 KiB": 1 << 18, "4 MiB": 1 << 22, "16 MiB": 1 << 24}
# Ranks below leaf switches with half as much uplink as downlink bandwidth: two tiers, 100 Gb/s.
_CLOS: dict[str, Any] = {
    "topology": ["Switch"],
    "npus_count": [16],
    "bandwidth": [11.642],
    "latency": [500.0],
    "packet": {"fabric": {"hosts_per_leaf": 4, "oversubscription": 2}},
}
# The same network with such small buffers that switches pause their neighbours.
_PAUSES = _CLOS | {"packet": _CLOS["packet"] | {"BUFFER_SIZE": 1}}
_OWN = {"clos-16": _CLOS, "clos-16-1mib": _PAUSES}
NETWORKS = {
    "ring-8": "8 ranks in a ring",
    "dgx-a100-8": "8 ranks on one switch, 300 GB/s",
    "cpu-cluster-16": "16 ranks on one switch",
    "dgx-a100-2x8": "2 hosts of 8 ranks",
    "clos-16": "16 ranks, 4 per leaf switch, 2:1 oversubscribed",
}
# In addition to the grid: network, pattern, size.
BEYOND = [
    *((name, pattern, "64 MiB") for name in NETWORKS for pattern in ("all-reduce", "all-to-all")),
    *(
        ("clos-16-1mib", pattern, size)
        for pattern in ("all-reduce", "all-to-all", "incast")
        for size in ("4 MiB", "16 MiB")
    ),
]
_ABOUT = NETWORKS | {"clos-16-1mib": "`clos-16` with 1 MiB of buffer per switch, which causes pause frames"}
TRAINS = "packet, trains"
TCP = "ns3, TCP"
MEASURE = "packet"
FLOW = "flow"
# Backends in order of cost, with the colour of each in the picture.
BACKENDS = {
    "analytical-unaware": "#c2410c",
    "analytical-aware": "#a16207",
    FLOW: "#1d4ed8",
    TRAINS: "#7e22ce",
    MEASURE: "#111827",
    TCP: "#15803d",
}
_TRAIN = 64
_AUTO = "flow without a flag, else packet"
_READING = (
    "* `analytical-unaware` is accurate for rings, and for ring algorithms on one switch. "
    "`analytical-unaware` models neither queues nor headers, which take up to 8 % of the time of a large "
    "message. The times of `analytical-unaware` are far too short for incasts, direct all-to-alls and slow "
    "links that several ranks share.",
    "* `analytical-aware` is accurate for incasts and all-to-alls on rings and single switches. Like "
    "ASTRA-sim, `analytical-aware` stores and forwards whole messages at each device, so a large "
    "message over two links takes almost twice as long as on `packet`.",
    "* `flow` is accurate unless it sets a [flag](../reference/backends.md#flow). The row "
    f"*{_AUTO}* shows the error of `auto`, which runs `packet` if `flow` sets a flag.",
    f"* `{TRAINS}` saves CPU time for large messages and deep windows, as on `ring-8` and `dgx-a100-2x8`.",
    f"* `{TCP}` has larger headers, slow start, and timeouts of 200 ms after incasts that overflow a "
    f"port's buffer of 1 MiB. `packet` pauses the senders of an incast instead. The path hash of `{TCP}` "
    "selects other equal-cost paths than `packet`, which can be faster.",
)
_ERRORS = ("0.01 % or less", "0.1 %", "1 %", "10 %", "100 %")
_CELL, _LEFT, _TOP = 64, 260, 70


def main() -> None:
    """Read the command line, simulate the grid and write the report with its figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=DOCS, help="folder to write")
    folder = parser.parse_args().output
    grid = [(name, *rest) for name in NETWORKS for rest in itertools.product(PATTERNS, SIZES)]
    try:
        build_driver()
        table = errors(run(grid + BEYOND, list(BACKENDS)))
    except ChakrascopeError as error:
        sys.exit(str(error))
    (folder / "images").mkdir(parents=True, exist_ok=True)
    (folder / "images" / "fidelity.svg").write_text(draw(table), encoding="utf-8")
    (folder / "images" / "fidelity-cost.svg").write_text(draw_cost(table), encoding="utf-8")
    (folder / "fidelity.md").write_text(wrapped(report(table)), encoding="utf-8")
    every(table).to_csv(folder / "fidelity.csv", index=False)


def run(experiments: Sequence[tuple[str, str, str]], backends: Sequence[str]) -> pd.DataFrame:
    """Return a row for each experiment (network, pattern, size) and backend.

    Further columns: *makespan_ns*, *seconds* of CPU time and the *flags* of `FLOW`.
    """
    rows = []
    for name, pattern, label in experiments:
        network = load(name)
        workload = microbenchmark(pattern, network.num_ranks, size_of(label))
        for backend in backends:
            if backend == TCP and not _on_tcp(name, pattern, label):
                continue
            changed, asked = _asked(network, backend)
            begun = _processor_s()
            result = simulate(workload, "default", changed, backend=asked)
            row = {"network": name, "pattern": pattern, "size": label, "backend": backend}
            rows.append(
                row
                | {
                    "makespan_ns": result.makespan_ns,
                    "seconds": _processor_s() - begun,
                    "flags": _flags(backend, result),
                }
            )
            print(rows[-1], file=sys.stderr)
    table: pd.DataFrame = pd.DataFrame(rows)
    return table


def _on_tcp(network: str, pattern: str, size: str) -> bool:
    """Return whether TCP also simulates the experiment: only if it takes seconds and no switch pauses."""
    return network in NETWORKS and size_of(size) <= 1 << 22 and (pattern, size) != ("all-gather", "4 MiB")


def _asked(network: NetworkConfig, backend: str) -> tuple[NetworkConfig, str]:
    """Return the network and the backend of the column *backend*."""
    if backend == TCP:
        return replace(network, tcp=TcpPart()), "ns3"
    if backend == TRAINS:
        written: dict[str, Any] = {} if network.packet is None else dict(network.packet.written)
        part = PacketPart.from_mapping(written | {"PACKET_TRAIN": _TRAIN})
        return replace(network, packet=part), MEASURE
    return network, backend


def _flags(backend: str, result: Result) -> str:
    """Return the flags of a result: single words for possible errors."""
    if backend == TRAINS:
        return "drops" if result.provenance["packets"]["drops"] else ""
    return " ".join(result.provenance.get(FLOW, {}).get("flags", []))


def _processor_s() -> float:
    """Return the CPU time of this process and of its child processes that have ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def size_of(label: str) -> int:
    """Return the bytes that a label such as ``4 MiB`` means."""
    number, unit = label.split()
    return int(number) << {"KiB": 10, "MiB": 20}[unit]


def load(name: str) -> NetworkConfig:
    """Return the network *name* of the grid."""
    return NetworkConfig.from_mapping(_OWN[name], name) if name in _OWN else NetworkConfig.preset(name)


def errors(table: pd.DataFrame, measure: str = MEASURE) -> pd.DataFrame:
    """Return the table of `run` with the *error* of each row relative to the backend *measure*."""
    keys = ["network", "pattern", "size"]
    true = table[table["backend"] == measure].set_index(keys)["makespan_ns"].rename("true_ns")
    joined: pd.DataFrame = table.join(true, on=keys)
    joined["error"] = joined["makespan_ns"] / joined["true_ns"] - 1
    return joined


def report(table: pd.DataFrame) -> str:
    """Return the page as Markdown."""
    parts = [
        "# Backends compared with packets",
        "",
        "`python scripts/fidelity_report.py` writes this page. `fidelity_report.py` compares the "
        "makespan of one operation on each backend with the makespan of `packet`. An error of +5 % "
        "means that the backend's makespan is 5 % longer. All experiments use the system `default` "
        "(ring algorithms, direct all-to-all, 4 chunks) without congestion control. The model of "
        "`packet` is [validated](../reference/backends.md#packet) separately. Times are CPU times on "
        "one core, and include a constant 2 ms.",
        "",
        f"The row *{TRAINS}* shows `packet` with [`PACKET_TRAIN: "
        f"{_TRAIN}`](../reference/backends.md#packet-trains). "
        f"The row *{TCP}* shows [another transport](../reference/backends.md#ns3-on-tcp-networks), for "
        "messages up to 4 MiB; its difference from `packet` is not an error.",
        "",
        "![Error against cost of each experiment](images/fidelity-cost.svg)",
        "",
        *_READING,
        "",
        "## Summary",
        "",
        *_markdown(_summary(pd.concat([table, _auto(table)]), ["backend"])),
        "",
        "These tables show the median and the largest error of each backend, by network and by "
        "communication pattern.",
        "",
        *(line for key in ("network", "pattern") for line in [*_markdown(_matrix(table, key)), ""]),
        "## Networks",
        "",
        *[f"* `{name}`: {_ABOUT[name]}" for name in table["network"].unique()],
        "",
        "## Every experiment",
        "",
        "The file [fidelity.csv](fidelity.csv) has the makespan on `packet`, the errors and the CPU "
        "times of every experiment.",
        "",
        "![Relative error of each experiment](images/fidelity.svg)",
        "",
    ]
    return "\n".join(parts)


def _matrix(table: pd.DataFrame, key: str) -> pd.DataFrame:
    """Return median and largest error with a row per value of *key* and a column per backend."""
    others = table[table["backend"] != MEASURE]
    sizes = others.assign(size_of=others["error"].abs()).groupby([key, "backend"], sort=False)["size_of"]
    cells = sizes.median().map(_share) + ", " + sizes.max().map(_share)
    wide: pd.DataFrame = cells.unstack("backend", sort=False).fillna("").reset_index()
    return wide


def _auto(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `auto`: the rows of `FLOW`, or of `MEASURE` where a flag is set."""
    keys = ["network", "pattern", "size"]
    packets = table[table["backend"] == MEASURE].set_index(keys)["seconds"].rename("packet_s")
    rows: pd.DataFrame = table[table["backend"] == FLOW].join(packets, on=keys)
    flagged = rows["flags"] != ""
    return rows.assign(
        backend=_AUTO,
        error=rows["error"].where(~flagged, 0.0),
        seconds=rows["seconds"] + rows["packet_s"].where(flagged, 0.0),
    )


def _summary(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return the absolute errors and the CPU times of each group."""
    groups = table.assign(size_of=table["error"].abs()).groupby(by, sort=False)
    found = groups["size_of"].agg(["count", "median", "max"])
    found.insert(2, "90 % quantile", groups["size_of"].quantile(0.9))
    shown: pd.DataFrame = found.map(_share).assign(count=found["count"])
    shown["experiments within 2 %"] = groups["size_of"].agg(lambda sizes: (sizes <= 0.02).sum()).astype(int)
    shown["median time"] = groups["seconds"].median().map(_time)
    shown["time of all"] = groups["seconds"].sum().map(_time)
    return shown.reset_index().rename(
        columns={"count": "experiments", "median": "median error", "max": "largest error"}
    )


def _share(error: float, sign: str = "") -> str:
    return f"{error:{sign}.1%}" if error < 10 else f"{error + 1:,.0f} times"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def every(table: pd.DataFrame) -> pd.DataFrame:
    """Return the error and CPU time of every backend, a row per experiment; `MEASURE` has its makespan."""
    cells = []
    for row in table.to_dict("records"):
        made = (
            f"{row['makespan_ns'] / 1000:,.1f} µs" if row["backend"] == MEASURE else _share(row["error"], "+")
        )
        cells.append(f"{made}, {_time(row['seconds'])}" + (f", {row['flags']}" if row["flags"] else ""))
    keys = ["network", "pattern", "size"]
    wide = table.assign(cell=cells).set_index([*keys, "backend"])["cell"].unstack("backend", sort=False)
    order = [MEASURE, *(name for name in wide.columns if name != MEASURE)]
    places = table[keys].drop_duplicates()
    shown: pd.DataFrame = places.join(wide[order].fillna(""), on=keys)
    return shown


def _markdown(table: pd.DataFrame) -> Iterator[str]:
    yield f"| {' | '.join(map(str, table.columns))} |"
    yield "|" + "---|" * len(table.columns)
    for row in table.itertuples(index=False, name=None):
        yield f"| {' | '.join(map(str, row))} |"


def draw(table: pd.DataFrame) -> str:
    """Return the errors as coloured cells (SVG): blue cells are too short, red cells too long."""
    table = table[table["backend"] != MEASURE]
    rows = table[["network", "pattern"]].drop_duplicates().reset_index(drop=True)
    columns = table[["backend", "size"]].drop_duplicates()
    columns = columns.sort_values("backend", key=lambda names: names.map(list(BACKENDS).index), kind="stable")
    row_of = {key: index for index, key in enumerate(rows.itertuples(index=False, name=None))}
    column_of = {key: index for index, key in enumerate(columns.itertuples(index=False, name=None))}
    shapes = [_text(10, 24, "Makespan relative to that of every packet simulated", size=16)]
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
        shapes.append(element("rect", x=x, y=y, width=_CELL - 2, height=16, fill=colour))
        shapes.append(_text(x + _CELL / 2, y + 12, _share(float(key["error"]), "+"), anchor="middle"))
    return _picture(_LEFT + _CELL * len(columns) + 20, _TOP + 18 * len(rows) + 20, shapes)


def draw_cost(table: pd.DataFrame) -> str:
    """Return the error over the CPU time (SVG, logarithmic) with a dot per experiment and backend.

    The ring of each backend is at the medians; `MEASURE` has no error, and lies on the lowest line.
    """
    width, height, left, top, bottom = 860, 460, 70, 60, 400
    least, most = 1e-4, 4.0
    seconds = table["seconds"].clip(lower=1e-3)
    first, last = math.floor(math.log10(seconds.min())), math.ceil(math.log10(seconds.max()))

    def across(value: float) -> float:
        return left + (width - left - 30) * (math.log10(max(value, 1e-3)) - first) / max(last - first, 1)

    def up(error: float) -> float:
        share = math.log10(min(max(abs(error), least), most) / least) / math.log10(most / least)
        return bottom - (bottom - top) * share

    shapes = [_text(10, 24, "Error of the makespan against the time the simulation takes", size=16)]
    for error, words in zip((least, 1e-3, 1e-2, 0.1, 1.0), _ERRORS, strict=True):
        shapes.append(element("path", d=f"M{left} {up(error):.1f}H{width - 30}", stroke="#d1d5db"))
        shapes.append(_text(left + 4, up(error) - 4, words))
    for power in range(first, last + 1):
        x = across(10.0**power)
        shapes.append(element("path", d=f"M{x:.1f} {top}V{bottom}", stroke="#e5e7eb"))
        shapes.append(_text(x, bottom + 18, _time(10.0**power), anchor="middle"))
    shapes.append(_text((left + width) / 2, bottom + 40, "processor time of one simulation", anchor="middle"))
    for place, backend in enumerate(table["backend"].unique()):
        rows, colour = table[table["backend"] == backend], BACKENDS.get(backend, "#6b7280")
        dots = zip(rows["seconds"], rows["error"], strict=True)
        shapes += [
            element("circle", cx=across(s), cy=up(e), r=3, fill=colour, fill_opacity=0.45) for s, e in dots
        ]
        x, y = across(rows["seconds"].median()), up(rows["error"].abs().median())
        shapes.append(element("circle", cx=x, cy=y, r=9, fill="none", stroke=colour, stroke_width=3))
        shapes.append(element("circle", cx=16 + 142 * place, cy=42, r=5, fill=colour))
        shapes.append(_text(26 + 142 * place, 46, backend, size=12))
    return _picture(width, height, shapes)


def _picture(width: float, height: float, shapes: list[Svg]) -> str:
    """Return the shapes on a white ground, for light and dark pages."""
    ground = element("rect", width="100%", height="100%", fill="white")
    shown = {"width": width, "height": height, "font_family": "sans-serif"}
    return picture(width, height, ground, *shapes, **shown) + "\n"


def _text(x: float, y: float, words: str, *, size: int = 11, anchor: str = "start") -> Svg:
    return element("text", words, x=x, y=y, font_size=size, text_anchor=anchor)


def _colour(error: float) -> str:
    """Return the colour of an error: white for none, full colour from 50 %."""
    rest = round(255 - 155 * min(abs(error), 0.5) / 0.5)
    return f"rgb(255,{rest},{rest})" if error > 0 else f"rgb({rest},{rest},255)"


if __name__ == "__main__":
    main()
