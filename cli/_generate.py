"""``chakrascope generate``: write workloads that need no training job."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import UsageError
from ..support import count_text, parse_duration, parse_size
from ._options import LateChoice, quantity
from ._output import console, print_next, print_remarks


def _whole_ns(text: str) -> int:
    exact = parse_duration(text)
    if exact.denominator != 1:
        raise ValueError(f"'{text}' is not a whole number of nanoseconds.")
    return int(exact)


def _patterns() -> list[str]:
    from ..converter import MICROBENCHMARKS

    return [*MICROBENCHMARKS, "text"]


@click.command("generate")
@click.argument("pattern", type=LateChoice(_patterns))
@click.option(
    "-o", "--output", "prefix", required=True, metavar="PREFIX", help="Write the graphs to PREFIX.{rank}.et."
)
@click.option("--ranks", required=True, type=click.IntRange(1), help="Number of ranks.")
@click.option(
    "--size",
    metavar="SIZE",
    callback=quantity(parse_size),
    default="1MiB",
    show_default=True,
    help="Size of each message or collective, such as 25MB; a number alone is in bytes.",
)
@click.option(
    "--repeats",
    default=1,
    show_default=True,
    help="Number of repetitions of the benchmark, or of training steps of a text workload.",
)
@click.option(
    "--compute-ns",
    metavar="TIME",
    callback=quantity(_whole_ns),
    default="0",
    show_default=True,
    help=(
        "Computation time before (`overlap`: alongside) each operation, such as 1.5us; a "
        "number alone is in nanoseconds."
    ),
)
@click.option("--file", "text", type=click.Path(path_type=Path), help="ASTRA-sim 1.0 text workload to read.")
@click.option("--model-group", type=int, help="Number of ranks that share a layer in a hybrid text workload.")
def generate_command(
    *,
    pattern: str,
    prefix: str,
    ranks: int,
    size: int,
    repeats: int,
    compute_ns: int,
    text: Path | None,
    model_group: int | None,
) -> None:
    """Write Chakra graphs of a microbenchmark or of an ASTRA-sim 1.0 text workload (`text --file F`)."""
    from ..converter import microbenchmark, read_text_workload

    if (pattern == "text") != (text is not None):
        raise UsageError("--file applies to the pattern 'text' only.")
    if text is None:
        workload = microbenchmark(pattern, ranks, size, repeats=repeats, compute_ns=compute_ns)
    else:
        workload = read_text_workload(text, ranks, passes=repeats, model_group=model_group)
    workload.save(prefix)
    print_remarks("Assumed", workload.metadata.get("assumptions", []))
    console.print_text(f"Wrote {prefix}.*.et for {count_text(workload.num_ranks, 'rank')}.")
    print_next("run", "--workload-configuration", prefix, then="--network PRESET")
