"""Write docs/validation/gpu-validation.md: the GPU model against measurements and ASTRA-sim 3.0.

``python scripts/gpu_report.py [-o FOLDER] [-j PROCESSES]`` simulates and draws all curves in minutes.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpu_crossings
import yaml
from gpu_crossings import generic, time_ns
from prose import wrapped

from chakrascope.runner.gpu import Machine, find_machine
from chakrascope.runner.programs import (
    Program,
    all_pairs_program,
    nccl_choice,
    nccl_program,
    read_program,
)
from chakrascope.support import bytes_text, element, picture

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs" / "validation"
MEASURED = ROOT / "tests" / "data" / "runner" / "gpu" / "measured.yml"
PLANS = ROOT / "tests" / "data" / "runner" / "programs"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
GPUS = 8
# The published plans for two nodes by the largest size.
TWO_NODES = {64 * KIB: "allreduce_2nodes_1K_64K", 2 * MIB: "allreduce_2nodes_128K_2M"}
SLOW_NCCL = {"algorithms": ("ring", "tree"), "protocols": ("LL", "Simple")}


@dataclass(frozen=True)
class Point:
    """A size with its measured and its predicted time."""

    size_bytes: int
    measured_ns: float
    predicted_ns: float
    way: str

    @property
    def error(self) -> float:
        """The relative error of the predicted time."""
        return self.predicted_ns / self.measured_ns - 1


def main() -> None:
    """Simulate all points of the GPU page, and write the page and its pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=DOCS)
    parser.add_argument("-j", "--processes", type=int, default=2)
    arguments = parser.parse_args()
    began = time.monotonic()
    (arguments.output / "images").mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    with ProcessPoolExecutor(arguments.processes) as pool:
        for part, pictures in pool.map(_made, range(len(PARTS))):
            lines += part
            for name, svg in pictures.items():
                (arguments.output / "images" / f"{name}.svg").write_text(svg, encoding="utf-8")
    (arguments.output / "gpu-validation.md").write_text(wrapped("\n".join(lines) + "\n"), encoding="utf-8")
    print(f"Written in {time.monotonic() - began:.0f} s: {arguments.output / 'gpu-validation.md'}")


def _made(number: int) -> tuple[list[str], dict[str, str]]:
    """Return the lines and the pictures of one part of the page."""
    pictures: dict[str, str] = {}
    return list(PARTS[number](pictures)), pictures


# Against measured hardware.
@functools.cache
def measured() -> dict[str, Any]:
    """Return the measurements by name."""
    found: dict[str, Any] = yaml.safe_load(MEASURED.read_text(encoding="utf-8"))
    return found


@functools.cache
def plan(name: str) -> Program:
    """Return the published MSCCL++ plan *name*."""
    return read_program(PLANS / f"{name}.json.gz")


def times_of(name: str) -> dict[int, float]:
    """Return the measured times of a curve by size, in ns."""
    curve = measured()[name]
    found = {size: us * 1e3 for size, us in curve.get("latency_us", {}).items()}
    found |= {size: size / rate for size, rate in curve.get("algorithm_bandwidth", {}).items()}
    return found | {size: us * 1e3 for size, us in curve.get("time_us", {}).items()}


def mscclpp_points(machine: Machine, sizes: Sequence[int] | None = None) -> list[Point]:
    """Predict MSCCL++'s all-reduce: packets or NVLS, whichever is faster, as its tuner chooses."""
    plans = {"packets": "single_node_allreduce_pkt", "NVLS": "single_node_allreduce_nvls_zero_copy"}
    points = []
    for size, expected in times_of("mscclpp_allreduce").items():
        if sizes is not None and size not in sizes:
            continue
        ways = {name: time_ns(plan(file), size, machine) for name, file in plans.items()}
        best = min(ways, key=ways.__getitem__)
        if ways.get("packets", 0) > 2 * ways["NVLS"]:
            plans.pop("packets")  # larger sizes only increase the deviation
        points.append(Point(size, expected, ways[best], best))
    return points


def nccl_points(
    machine: Machine,
    sizes: Sequence[int] | None = None,
    allowed: Mapping[str, Any] | None = None,
    known: Sequence[Point] = (),
) -> list[Point]:
    """Predict NCCL's all-reduce with its tuner's choice among those *allowed*.

    Points among *known* are not simulated again.
    """
    there = {(point.size_bytes, point.way): point for point in known}
    points = []
    for size, expected in times_of("nccl_allreduce").items():
        if sizes is not None and size not in sizes:
            continue
        choice = nccl_choice("all-reduce", GPUS, size, **(allowed or {}))
        way = f"{choice.algorithm} {choice.protocol}"
        if (size, way) not in there:
            there[size, way] = Point(size, expected, time_ns(choice.program, size, machine), way)
        points.append(there[size, way])
    return points


def two_node_points(machine: Machine, sizes: Sequence[int] | None = None) -> list[Point]:
    """Predict MSCCL++'s all-reduce on two nodes with the published plan for each size."""
    points = []
    for size, expected in times_of("mscclpp_two_nodes").items():
        if sizes is None or size in sizes:
            name = next(name for most, name in TWO_NODES.items() if size <= most)
            program = read_program(MEASURED.with_name(f"{name}.json.gz"))
            points.append(Point(size, expected, time_ns(program, size, machine), name))
    return points


def other_points(machine: Machine) -> list[tuple[str, float, float]]:
    """Predict the other published points: description, measured GB/s, predicted GB/s."""
    rows = []
    ring = nccl_program("ring", "reduce-scatter", GPUS, "Simple", 24)
    for size, expected in times_of("nccl_reduce_scatter_ring").items():
        words = f"reduce-scatter, NCCL ring, {bytes_text(size)}, algorithm bandwidth"
        rows.append((words, size / expected, size / time_ns(ring, size, machine)))
    for gpus, rate in measured()["nvls_allreduce_by_gpus"]["algorithm_bandwidth_by_gpus"].items():
        program = nccl_program("nvls", "all-reduce", gpus, "Simple", 16)
        words = f"all-reduce, NCCL NVLS on {gpus} GPUs, 1 GiB, algorithm bandwidth"
        rows.append((words, rate, GIB / time_ns(program, GIB, machine)))
    factors = {"all-reduce": 2 * (GPUS - 1) / GPUS, "all-gather": (GPUS - 1) / GPUS}
    for collective, name in (("all-reduce", "ring_allreduce"), ("all-gather", "ring_all_gather")):
        program = nccl_program("ring", collective, GPUS, "Simple", 24)
        rate = GIB / time_ns(program, GIB, machine) * factors[collective]
        words = f"{collective}, NCCL ring, 1 GiB, bus bandwidth"
        rows.append((words, measured()[name]["bus_bandwidth"], rate))
    return rows


def mean_error(points: Sequence[Point]) -> float:
    """Return the mean of absolute relative errors."""
    return sum(abs(point.error) for point in points) / len(points)


def _measured(pictures: dict[str, str]) -> Iterator[str]:
    machine = find_machine("h100")
    nccl = nccl_points(machine)
    curves = {
        "MSCCL++: packets or NVLS": mscclpp_points(machine),
        "NCCL: ring, tree or NVLS": nccl,
        "NCCL without the switch: ring or tree, Simple or LL": nccl_points(machine, None, SLOW_NCCL, nccl),
    }
    yield "# The GPU model against measurements and against ASTRA-sim 3.0"
    yield ""
    yield (
        "`scripts/gpu_report.py` writes this page. The page [GPU model](../explanation/gpu-model.md) "
        "describes the backend `gpu` and its limits."
    )
    yield ""
    yield "## All-reduce on 8 H100 GPUs"
    yield ""
    yield (
        "All H100 times are simulated with one set of parameters, `h100` in `runner/gpu/machines.yml`. "
        f"The parameter `compute.launch_ns` = {machine.compute.launch_ns:g} was fitted to one measurement, "
        f"MSCCL++ at 1 KiB. The parameters `arbitration: {machine.arbitration}` and `compute.unroll` = "
        f"{machine.compute.unroll} were fitted to the MSCCL++ curve, and `scale_up.header_bytes` = "
        f"{machine.scale_up.header_bytes} to the published bandwidth of the ring (365 to 370 of 450 GB/s). "
        f"The parameters `compute.op_ns` = {machine.compute.op_ns:g} and `compute.sync_ns` = "
        f"{machine.compute.sync_ns:g} are guesses. The errors for the H100 are therefore errors of a fit, "
        "not of predictions."
    )
    yield ""
    yield f"The measured times come from {measured()['mscclpp_allreduce']['source']}"
    yield ""
    yield (
        "In each channel of NCCL's NVLS, 8 warps copy data in, 5 warps reduce, and 7 warps copy data out "
        "(NCCL 2.30 on 8 ranks); the model has the same warps. A reducing thread has eight loads in "
        "flight. Copying warps have `compute.unroll` lines in flight, although NCCL has eight loads per "
        "thread. With eight loads per thread, simulated NVLS would be 27 to 33 % too fast for 2 to 32 MiB, "
        "for an unknown reason. As in NCCL, reducing warps poll all ranks' counters through the switch "
        "(`NCCL_NVLS_MIN_POLL`), a round trip of 1 us in each round."
    )
    yield ""
    yield "| curve | mean error | largest error | point with the largest error |"
    yield "|---|---|---|---|"
    for name, points in curves.items():
        worst = max(points, key=lambda point: abs(point.error))
        yield (
            f"| {name} | {mean_error(points):.1%} | {worst.error:+.1%} | {bytes_text(worst.size_bytes)}, "
            f"{worst.way} |"
        )
    lines = []
    for name, points in list(curves.items())[:2]:
        short = name.split(":", maxsplit=1)[0]
        lines.append(
            Line(f"{short}, measured", tuple((p.size_bytes, p.measured_ns / 1e3) for p in points), True)
        )
        lines.append(Line(f"{short}, predicted", tuple((p.size_bytes, p.predicted_ns / 1e3) for p in points)))
    pictures["gpu-h100"] = chart("All-reduce on 8 H100", "us", lines)
    yield ""
    yield "![Time of an all-reduce against its size](images/gpu-h100.svg)"
    yield ""
    yield from _points_table(dict(list(curves.items())[:2]))


def _points_table(curves: Mapping[str, Sequence[Point]]) -> Iterator[str]:
    yield (
        "| size | "
        + " | ".join(f"{name.split(':')[0]} | measured us | predicted us | error" for name in curves)
        + " |"
    )
    yield "|" + "---|" * (1 + 4 * len(curves))
    for row in zip(*curves.values(), strict=True):
        cells = [
            f"{point.way} | {point.measured_ns / 1e3:.2f} | {point.predicted_ns / 1e3:.2f} | "
            f"{point.error:+.1%}"
            for point in row
        ]
        yield f"| {bytes_text(row[0].size_bytes)} | " + " | ".join(cells) + " |"
    yield ""


def _others(pictures: dict[str, str]) -> Iterator[str]:
    yield (
        "This table compares other published bandwidths of 8 H100 GPUs with predictions. Except for the "
        "ring all-reduce, no parameter was fitted to these bandwidths."
    )
    yield ""
    yield "| collective | measured GB/s | predicted GB/s | error |"
    yield "|---|---|---|---|"
    for words, there, here in other_points(find_machine("h100")):
        yield f"| {words} | {there:.0f} | {here:.0f} | {here / there - 1:+.1%} |"
    yield ""
    for name in ("nccl_reduce_scatter_ring", "nvls_allreduce_by_gpus", "ring_allreduce", "ring_all_gather"):
        yield f"* Source of *{name.replace('_', ' ')}*: {measured()[name]['source']}"
    yield ""


def _two_nodes(pictures: dict[str, str]) -> Iterator[str]:
    points = two_node_points(find_machine("h100"))
    worst = max(points, key=lambda point: abs(point.error))
    yield "## All-reduce on two nodes of 8 H100 GPUs"
    yield ""
    yield (
        "MSCCL++'s plans for two nodes send packets over NVLink within a node, and by proxies over "
        "InfiniBand between the nodes. No parameter was fitted to this curve; the parameters of "
        f"`scale_out` come from other measurements. The mean error is {mean_error(points):.1%}, and the "
        f"largest error {worst.error:+.1%} ({bytes_text(worst.size_bytes)}), for 1 KiB to 1 MiB."
    )
    yield ""
    yield f"The measured times come from {measured()['mscclpp_two_nodes']['source']}."
    yield ""


# ASTRA-sim 3.0's findings.
def curve(name: str, program: Program, sizes: Sequence[int], machine: Machine) -> Line:
    """Return the times of *program* by size, in us."""
    return Line(name, tuple((size, time_ns(program, size, machine) / 1e3) for size in sizes))


def get_against_put(collective: str, gpus: int, workgroups: int, sizes: Sequence[int]) -> dict[str, Line]:
    """Return the curves of puts and gets, with both arbitrations."""
    found = {}
    for arbitration in ("first-come", "fair"):
        machine = generic(arbitration=arbitration)
        for way in ("put", "get"):
            program = all_pairs_program(way, collective, gpus, workgroups)
            found[f"{way}, {arbitration}"] = curve(f"{way}, {arbitration}", program, sizes, machine)
    return found


def by_figure(
    program: Program, key: str, values: Sequence[int], sizes: Sequence[int], **more: Any
) -> dict[int, Line]:
    """Return the curves of *program* for values of one figure of the machine."""
    name = key.rpartition("__")[2].replace("_", " ")
    return {
        value: curve(f"{name} {value}", program, sizes, generic(**{key: value}, **more)) for value in values
    }


def sizes_of(first: int, last: int, step: int = 4) -> list[int]:
    """Return sizes from *first* to *last*; each size is *step* times the previous size."""
    found = [first]
    while found[-1] * step <= last:
        found.append(found[-1] * step)
    return found


def _findings(pictures: dict[str, str]) -> Iterator[str]:
    yield "## ASTRA-sim 3.0's findings"
    yield ""
    yield (
        "This section compares statements in ASTRA-sim 3.0's paper (arXiv 2606.10440) with simulations of "
        "the paper's generic GPU (`generic` in the same file), on which programs such as "
        "`all-pairs-put` run."
    )
    yield ""


def _crossings(pictures: dict[str, str]) -> Iterator[str]:
    yield from gpu_crossings.crossings_part()


def _reduce_scatter(pictures: dict[str, str]) -> Iterator[str]:
    lines = get_against_put("reduce-scatter", 32, 32, sizes_of(MIB, 64 * MIB))
    pictures["gpu-reduce-scatter"] = chart(
        "Reduce-scatter, 32 GPUs, 32 workgroups", "us", list(lines.values())
    )
    yield "### Reduce-scatter: gets against puts"
    yield ""
    yield "The paper reports that a reduce-scatter by gets is faster than by puts for large buffers (32 GPUs,"
    yield "32 workgroups), because puts need semaphores and cannot overlap the reduction."
    yield ""
    yield from _ratio_table(lines, "put", "get")
    yield "![Reduce-scatter by puts and gets](images/gpu-reduce-scatter.svg)"
    yield ""


def _all_gather(pictures: dict[str, str]) -> Iterator[str]:
    lines = get_against_put("all-gather", 16, 60, sizes_of(MIB, 64 * MIB))
    pictures["gpu-all-gather"] = chart("All-gather, 16 GPUs, 60 workgroups", "us", list(lines.values()))
    yield "### All-gather: puts against gets"
    yield ""
    yield "The paper reports that an all-gather by puts is faster than by gets (16 GPUs, 60 workgroups),"
    yield "because the requests of gets wait behind responses. Fair arbitration between control and data"
    yield "narrows the gap between gets and puts."
    yield ""
    yield from _ratio_table(lines, "get", "put")
    yield "![All-gather by puts and gets](images/gpu-all-gather.svg)"
    yield ""


def _ratio_table(lines: Mapping[str, Line], slow: str, fast: str) -> Iterator[str]:
    first = next(iter(lines.values()))
    yield f"| size | {slow} us | {fast} us | {slow} / {fast} | with fair arbitration |"
    yield "|---|---|---|---|---|"
    for place, (size, _) in enumerate(first.points):
        value = {name: line.points[place][1] for name, line in lines.items()}
        come = value[f"{slow}, first-come"], value[f"{fast}, first-come"]
        fair = value[f"{slow}, fair"] / value[f"{fast}, fair"]
        cells = f"{come[0]:.1f} | {come[1]:.1f} | {come[0] / come[1]:.2f} | {fair:.2f}"
        yield f"| {bytes_text(int(size))} | {cells} |"
    yield ""


def _figure_table(lines: Mapping[int, Line], words: str) -> Iterator[str]:
    first = next(iter(lines.values()))
    yield f"| {words} | " + " | ".join(bytes_text(int(size)) for size, _ in first.points) + " |"
    yield "|---|" + "---|" * len(first.points)
    for value, line in lines.items():
        yield f"| {value} | " + " | ".join(f"{us:.1f} us" for _, us in line.points) + " |"
    yield ""


_CAP = {"compute__requests_per_unit": 256}


def _unrolling(pictures: dict[str, str]) -> Iterator[str]:
    program = all_pairs_program("put", "all-to-all", 16, 60)
    sizes = (64 * KIB, 4 * MIB, 64 * MIB)
    lines = by_figure(program, "compute__unroll", (1, 2, 4, 8, 16, 32, 64), sizes, **_CAP)
    yield "### Loop unrolling"
    yield ""
    yield "The paper reports that loop unrolling speeds up transfers of large buffers, up to the limit of"
    yield "requests per compute unit, but not of small buffers (all-to-all, 16 GPUs, 60 workgroups). The"
    yield f"simulated compute units have at most {_CAP['compute__requests_per_unit']} requests in flight."
    yield ""
    yield from _figure_table(lines, "lines in flight per wavefront")


def _outstanding(pictures: dict[str, str]) -> Iterator[str]:
    program = all_pairs_program("get", "all-gather", 32, 31)
    values = (16, 64, 256, 1024, 4096)
    lines = by_figure(program, "compute__requests_per_unit", values, (MIB, 16 * MIB))
    yield "### Outstanding requests"
    yield ""
    yield "The paper reports that more requests in flight make an all-gather on 32 GPUs faster up to a limit."
    yield ""
    yield from _figure_table(lines, "requests per unit")


def _scale(pictures: dict[str, str]) -> Iterator[str]:
    machine = generic()
    lines = []
    for gpus in (2, 8, 32, 128):
        sizes = sizes_of(MIB, 256 * MIB) if gpus < 128 else sizes_of(MIB, 16 * MIB)
        program = all_pairs_program("put", "all-gather", gpus, max(32, gpus - 1))
        lines.append(curve(f"{gpus} GPUs", program, sizes, machine))
    pictures["gpu-scale"] = chart("All-gather of the generic GPU", "us", lines)
    yield "### Scale"
    yield ""
    yield "The paper reports that the time of an all-gather is linear in the buffer, for 1 to 256 MiB on 2 to"
    yield "128 GPUs."
    yield ""
    most = max(_off_line(line.points) for line in lines)
    yield f"The simulated times of an all-gather deviate from a line by at most {most:.1%}, even with 57,344"
    yield "endpoints."
    yield ""
    yield "![All-gather by size and number of GPUs](images/gpu-scale.svg)"


def _off_line(points: Sequence[tuple[float, float]]) -> float:
    """Return the largest relative deviation of *points* from the line through the first and the last."""
    (small, first), (large, last) = points[0], points[-1]
    slope = (last - first) / (large - small)
    return max(abs(us / (first + slope * (size - small)) - 1) for size, us in points)


PARTS = (
    _measured,
    _others,
    _two_nodes,
    _findings,
    _crossings,
    _reduce_scatter,
    _all_gather,
    _unrolling,
    _outstanding,
    _scale,
)
_COLOURS = ("#1f6feb", "#d1572b", "#2a9d50", "#8250df", "#b08800", "#57606a")


@dataclass(frozen=True)
class Line:
    """A curve: its name and its points."""

    name: str
    points: tuple[tuple[float, float], ...]
    dots: bool = False


def chart(title: str, unit: str, lines: Sequence[Line]) -> str:
    """Return a picture of curves over sizes, both axes logarithmic."""
    width, height, left, top, right, bottom = 720, 400, 70, 40, 190, 45
    points = [point for line in lines for point in line.points]
    axes = [
        (math.log2(min(p[axis] for p in points)), math.log2(max(p[axis] for p in points))) for axis in (0, 1)
    ]

    def across(x: float) -> float:
        return left + (math.log2(x) - axes[0][0]) / ((axes[0][1] - axes[0][0]) or 1) * (width - left - right)

    def up(y: float) -> float:
        share = (math.log2(y) - axes[1][0]) / ((axes[1][1] - axes[1][0]) or 1)
        return height - bottom - share * (height - top - bottom)

    grid, middle, bottom_y = {"stroke": "#eaeef2"}, {"text_anchor": "middle"}, height - bottom
    parts = [
        element("rect", width=width, height=height, fill="white"),
        element("text", title, x=left, y=22, font_size=14),
    ]
    for exponent in range(math.ceil(axes[0][0]), math.floor(axes[0][1]) + 1, 2):
        x = across(2**exponent)
        label = bytes_text(2**exponent).replace(".00", "").replace(".0", "")
        parts.append(element("line", x1=x, y1=top, x2=x, y2=bottom_y, **grid))
        parts.append(element("text", label, x=x, y=bottom_y + 16, **middle))
    for exponent in range(math.ceil(axes[1][0]), math.floor(axes[1][1]) + 1):
        y = up(2**exponent)
        parts.append(element("line", x1=left, y1=y, x2=width - right, y2=y, **grid))
        parts.append(element("text", f"{2**exponent:g} {unit}", x=left - 6, y=y + 4, text_anchor="end"))
    for number, line in enumerate(lines):
        colour = _COLOURS[
            number // 2 % len(_COLOURS) if any(each.dots for each in lines) else number % len(_COLOURS)
        ]
        where = [(across(x), up(y)) for x, y in line.points]
        if line.dots:
            parts += [element("circle", cx=x, cy=y, r=3.5, fill=colour) for x, y in where]
        else:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in where)
            parts.append(element("polyline", points=path, fill="none", stroke=colour, stroke_width=1.6))
        x, y = width - right + 12, top + 16 * number + 8
        parts.append(element("rect", x=x, y=y - 8, width=10, height=10, fill=colour))
        parts.append(element("text", line.name, x=x + 16, y=y + 1))
    return picture(width, height, *parts, font_family="sans-serif", font_size=11) + "\n"


if __name__ == "__main__":
    main()
