"""``chakrascope algorithm``: inspect, prove and export collective programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from ..support import bytes_text, count_text, parse_bandwidth, parse_size, write_file, writing
from ._options import Choice, quantity
from ._output import console, format_option, print_frame, print_json, print_remarks

if TYPE_CHECKING:
    import pandas as pd

    from ..runner.programs import Inspection, Program, Proof

_SHOWN_PROBLEMS = 5
_source = click.argument("source", metavar="PROGRAM")
_collective = click.option("--collective", help="Collective of a built-in program, such as all-reduce.")
_ranks = click.option("--ranks", type=click.IntRange(2), help="Number of ranks of a built-in program.")
_size = click.option(
    "--size",
    default="1MiB",
    show_default=True,
    callback=quantity(parse_size),
    help="Size of the collective; for an all-gather, the size of each rank's shard.",
)


@click.group("algorithm")
def algorithm_command() -> None:
    """Inspect and export collective programs, and prove that they are correct.

    PROGRAM is an MSCCL XML file or an MSCCL++ plan, plain or compressed with gzip, or the name of a built-in
    program with --collective and --ranks. The programs of the engine are ring, direct, halvingDoubling and
    doubleBinaryTree. The programs of NCCL are nccl, nccl-ring, nccl-tree and nccl-nvls, with an optional
    protocol and number of channels (nccl-ring:LL:8). Direct exchanges are all-pairs-put, all-pairs-get and
    all-pairs-packet, with an optional number of workgroups (all-pairs-get:32).
    """


@algorithm_command.command("inspect", short_help="Show steps, messages, bounds and proof of PROGRAM.")
@_source
@_collective
@_ranks
@_size
@click.option(
    "--view",
    type=Choice(["facts", "traffic"]),
    default="facts",
    show_default=True,
    help="Table to print: a summary of the program (facts), or the messages of each step (traffic).",
)
@format_option
def inspect_command(
    *,
    source: str,
    collective: str | None,
    ranks: int | None,
    size: int,
    view: str,
    output_format: str,
) -> None:
    """Show the steps, messages, lower bounds and proof of PROGRAM, and its bytes per rank and per pair."""
    import pandas as pd

    from ..runner.programs import inspect_program, inspection_facts, prove

    program = _program(source, collective, ranks, size)
    found = inspect_program(program, size)
    if view == "traffic":
        print_frame(
            _traffic(found), output_format, title=f"{program.name}: bytes from rank to rank", limit=60
        )
        return
    proof = prove(program)
    facts = dict(inspection_facts(found))
    facts["proof"] = "holds" if proof.holds else f"fails: {proof.problems[0].message}"
    if output_format == "json":
        print_json(_plain(found, proof))
        return
    table = pd.DataFrame(facts.items(), columns=["figure", "value"])
    print_frame(table, output_format, title=program.name)
    if output_format == "table":
        print_remarks("Note", (*found.remarks, *proof.cautions))


@algorithm_command.command("prove", short_help="Prove that PROGRAM is correct.")
@click.argument("sources", metavar="PROGRAM...", nargs=-1, required=True)
@_collective
@_ranks
@format_option
def prove_command(
    *, sources: tuple[str, ...], collective: str | None, ranks: int | None, output_format: str
) -> int:
    """Prove that PROGRAM is correct in every order that it allows; exit with 1 if PROGRAM is incorrect.

    The proof covers every rank. It finds reads before writes, overwritten data, deadlocks and wrong
    results. For an error, `prove` prints the shortest execution that shows the error.
    """
    from ..runner.programs import prove

    programs = [_program(source, collective, ranks) for source in sources]
    proofs = [prove(program) for program in programs]
    if output_format == "json":
        plain = [_plain_proof(program, proof) for program, proof in zip(programs, proofs, strict=True)]
        print_json(plain[0] if len(plain) == 1 else plain)
    elif output_format == "csv":
        print_frame(_problem_table(programs, proofs), "csv")
    else:
        for program, proof in zip(programs, proofs, strict=True):
            _print_proof(program, proof)
    return 0 if all(proof.holds for proof in proofs) else 1


@algorithm_command.command("export", short_help="Write PROGRAM as Chakra graphs or MSCCL XML.")
@_source
@_collective
@_ranks
@_size
@click.option(
    "--as",
    "kind",
    type=Choice(["et", "msccl"]),
    default="et",
    show_default=True,
    help="Write Chakra graphs of messages (et: PREFIX.N.et for rank N), or MSCCL XML (msccl).",
)
@click.option(
    "--memory-bandwidth",
    metavar="BANDWIDTH",
    callback=quantity(lambda text: float(parse_bandwidth(text))),
    default="0",
    help="Bandwidth of local copies and reductions, such as 900GB/s. [default: copies and reductions take no "
    "time]",
)
@click.option(
    "--workload",
    metavar="PREFIX",
    help=(
        "Replace the matching collectives of this workload by the messages of PROGRAM, and write the "
        "workload."
    ),
)
@click.option(
    "-o",
    "--output",
    "output",
    required=True,
    type=click.Path(path_type=Path),
    help="Prefix of the graph files, or name of the XML file, to write.",
)
def export_command(
    *,
    source: str,
    collective: str | None,
    ranks: int | None,
    size: int,
    kind: str,
    memory_bandwidth: float,
    workload: str | None,
    output: Path,
) -> None:
    """Write PROGRAM as Chakra graphs of messages (for ASTRA-sim), or as MSCCL XML.

    The graphs form a workload, and also serve as a custom algorithm in a system file
    (all-reduce-implementation-custom). Only programs that are proven correct are written.
    """
    from ..runner.programs import lower, parse_program, prove, workload_of, write_msccl

    program = _program(source, collective, ranks, size)
    written = write_msccl(program) if kind == "msccl" else ""
    proof = prove(parse_program(written.encode(), program.source) if written else program)
    if not proof.holds:
        raise UsageError(
            f"{program.source} is incorrect: {proof.problems[0].message} Next: chakrascope algorithm prove "
            f"{program.source}"
        )
    if written:
        with writing(output, UsageError):
            write_file(output, written, parents=True)
        console.print_text(f"Written: {output}")
        return
    if workload is not None:
        _export_workload(program, workload, memory_bandwidth, output)
        return
    workload_of(lower(program, size), memory_bandwidth).save(output)
    what = f"{program.collective} of {bytes_text(size)}"
    console.print_text(f"Written: {output}.N.et for {count_text(program.num_ranks, 'rank')}, {what}")


def _export_workload(program: Program, prefix: str, memory_bandwidth: float, output: Path) -> None:
    """Write the workload at *prefix* with matching collectives replaced by messages of *program*."""
    from ..converter import Workload
    from ..runner.programs import demands_of, expand_workload, lower, misfit

    workload = Workload.load(prefix)
    demands = [each for each in demands_of(workload) if each.collective == program.collective]
    fitting = {each: lower(program, each.size_bytes) for each in demands if misfit(program, each) is None}
    if not fitting:
        raise UsageError(
            f"No {program.collective} of {prefix} runs on {program.num_ranks} ranks and has a size that can "
            f"be divided into the chunks of {program.source}."
        )
    expand_workload(workload, fitting, memory_bandwidth).save(output)
    left = len(demands) - len(fitting)
    console.print_text(
        f"Written: {output}.N.et for {count_text(workload.num_ranks, 'rank')}; "
        f"{count_text(len(fitting), 'size')} of {program.collective} as messages"
        + (f", {left} unchanged" if left else "")
    )


def _program(source: str, collective: str | None, ranks: int | None, size: int = 1 << 20) -> Program:
    """Return the collective program in the arguments, from a file or built in."""
    from ..runner.programs import (
        PROGRAM_NAMES,
        check_program_size,
        named_program,
        program_bytes,
        read_program,
    )

    named = source.split(":", maxsplit=1)[0] in PROGRAM_NAMES or collective is not None
    if named and not Path(source).exists():
        if collective is None or ranks is None:
            raise UsageError(
                f"'{source}' is a built-in program, which needs a collective and a number of ranks. Next: "
                "add --collective and --ranks."
            )
        check_program_size(source, ranks)
        return named_program(source, collective, ranks, program_bytes(collective, size, ranks))
    if collective is not None or ranks is not None:
        raise UsageError(
            "--collective and --ranks apply only to built-in programs; a program file specifies both. Next: "
            "leave them out."
        )
    return read_program(source)


def _traffic(found: Inspection) -> pd.DataFrame:
    import pandas as pd

    rows = [vars(item) for item in found.traffic]
    table: pd.DataFrame = pd.DataFrame(rows).rename(columns={"source": "from", "destination": "to"})
    return table


def _plain(found: Inspection, proof: Proof) -> dict[str, Any]:
    figures = {name: value for name, value in vars(found).items() if name not in ("program", "rounds")}
    return {
        "name": found.program.name,
        "collective": found.program.collective,
        "ranks": found.program.num_ranks,
        "language": found.program.language,
        "protocol": found.program.protocol,
        **figures,
        "traffic": _traffic(found).to_dict("records"),
        "proof": _plain_proof(found.program, proof),
    }


def _plain_proof(program: Program, proof: Proof) -> dict[str, Any]:
    return {
        "program": program.source,
        "holds": proof.holds,
        "steps": proof.steps,
        "cautions": list(proof.cautions),
        "problems": [vars(problem) for problem in proof.problems],
    }


def _problem_table(programs: list[Program], proofs: list[Proof]) -> pd.DataFrame:
    import pandas as pd

    columns = ["program", "kind", "rank", "block", "op", "message"]
    rows = [
        {"program": program.source, **vars(problem)}
        for program, proof in zip(programs, proofs, strict=True)
        for problem in proof.problems
    ]
    table: pd.DataFrame = pd.DataFrame(rows, columns=columns)
    return table


def _print_proof(program: Program, proof: Proof) -> None:
    steps = count_text(proof.steps, "step")
    if proof.holds:
        console.print_text(f"✓ {program.source}: correct in every order ({steps}).")
    else:
        bugs = count_text(len(proof.problems), "bug")
        console.print_text(f"✗ {program.source}: {bugs} found.")
    for problem in proof.problems[:_SHOWN_PROBLEMS]:
        console.print_text(f"  {problem.kind}: {problem.message}")
        for step in problem.interleaving:
            console.print_text(f"      {step}", "dim")
    if len(proof.problems) > _SHOWN_PROBLEMS:
        more = len(proof.problems) - _SHOWN_PROBLEMS
        console.print_text(f"  and {more} more; --format json has all of them")
    for text in proof.cautions:
        console.print_text(f"  Note: {text}", "dim")
