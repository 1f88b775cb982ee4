"""The public interface as text: exported names, commands with their options, columns of tables.

``tests/public_face.txt`` holds it; ``test_public_face.py`` compares. A change on purpose is recorded with

    python tests/public_face.py --write
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click

RECORD = Path(__file__).with_name("public_face.txt")
COMMAND = "python tests/public_face.py --write"

# What docs/reference/stability.md names.
PROMISED = (
    "chakrascope",
    *(f"chakrascope.{name}" for name in ("converter", "errors", "runner", "tracer", "viewer")),
)

# Commands that print a table with --format csv, on the study that `small_study` makes.
CSV_COMMANDS = (
    "collectives",
    "compare --view collectives",
    "compare --view errors",
    "compare --view flows",
    "compare --view kinds",
    "compare --view nodes",
    "compare --view overview",
    "compare --view paths",
    "compare --view ranks",
    "critical-path",
    "critical-path --by kind",
    "critical-path --by network",
    "find matmul",
    "graph --fold modules",
    "graph --view edges",
    "layers",
    "links",
    "links --view dimensions",
    "links --view traffic",
    "runs",
    "slack",
    "summary --view advice",
    "summary --view kinds",
    "summary --view ranks",
    "timeline",
    "what-if --faster kind:compute=2",
)


def public_face() -> str:
    """Return the text of the whole public interface."""
    lines = [f"Recorded by `{COMMAND}`; a difference is a change for users."]
    with tempfile.TemporaryDirectory() as folder:
        lines += ["", "# Names", *names()]
        lines += ["", "# Commands", *commands()]
        lines += ["", "# Tables in Python", *tables()]
        lines += [
            "",
            "# Tables of commands (--format csv)",
            *csv_headers(small_study(Path(folder) / "study")),
        ]
    return "\n".join(lines) + "\n"


def names() -> Iterator[str]:
    """Yield every package of `PROMISED`, and below it the names that it exports."""
    for name in PROMISED:
        yield name
        yield from (f"    {each}" for each in sorted(import_module(name).__all__))


def commands() -> Iterator[str]:
    """Yield every command, and below it its arguments and options as click knows them."""
    from chakrascope.cli import cli

    context = click.Context(cli, info_name="chakrascope")
    for name in sorted(cli.list_commands(context)):
        command = cli.get_command(context, name)
        yield from _command(f"chakrascope {name}", command)
        if isinstance(command, click.Group):
            for part in sorted(command.commands):
                yield from _command(f"chakrascope {name} {part}", command.commands[part])


def _command(name: str, command: click.Command) -> Iterator[str]:
    yield name
    for parameter in sorted(command.params, key=lambda parameter: isinstance(parameter, click.Option)):
        yield f"    {_parameter(parameter, click.Context(command))}"


def _parameter(parameter: click.Parameter, context: click.Context) -> str:
    if not isinstance(parameter, click.Option):
        return parameter.make_metavar(context)
    facts = [", ".join([*parameter.opts, *parameter.secondary_opts])]
    if not parameter.is_flag:
        facts.append(parameter.make_metavar(context))
        default = parameter.to_info_dict().get("default")
        facts += [f"[default: {default}]"] if default and isinstance(default, str | int | float) else []
    facts += ["[required]"] if parameter.required else []
    facts += ["[repeats]"] if parameter.multiple else []
    return " ".join(facts)


def tables() -> Iterator[str]:
    """Yield the columns and types of the tables that simulations and analyses return."""
    from chakrascope.runner import compare, critical_path, simulate, slack

    model = small_workload()
    result = simulate(model, "default", "ring-8", backend="analytical-aware")
    path = critical_path(result, model)
    comparison = compare([simulate(model, "default", "ring-8", backend="replay"), result], model)
    found = {
        "Graph.nodes": model.graphs[0].nodes,
        "Graph.edges": model.graphs[0].edges,
        "Workload.node_table()": model.node_table(),
        **{
            f"Result.{name}": getattr(result, name)
            for name in ("ranks", "nodes", "collectives", "links", "flows", "link_use")
        },
        "CriticalPath.segments": path.segments,
        "CriticalPath.breakdown('kind')": path.breakdown("kind"),
        "slack()": slack(result, model),
        **{
            f"Comparison.{name}": getattr(comparison, name)
            for name in ("overview", "kinds", "ranks", "nodes", "collectives", "flows", "errors", "paths")
        },
    }
    for title, table in found.items():
        yield title
        for column, dtype in table.dtypes.items():
            # Texts are of one type or another by pandas' version.
            is_text = dtype.kind == "O" and all(isinstance(value, str) for value in table[column])
            yield f"    {column} {'text' if is_text else dtype}"


def csv_headers(study: Path) -> Iterator[str]:
    """Yield the CSV header that each of `CSV_COMMANDS` prints for *study*."""
    from chakrascope.cli import main

    for line in CSV_COMMANDS:
        command, *options = line.split()
        printed, told = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(told):
                main([command, str(study), *options, "--format", "csv"])
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"chakrascope {line} failed: {told.getvalue()}") from end
        yield f"chakrascope {line}"
        yield f"    {printed.getvalue().partition(chr(10))[0]}"


def small_workload():
    """Return a training step of eight ranks: computations of one module, and a collective after each."""
    import numpy as np

    from chakrascope.converter import CollectiveType, EdgeKind, Graph, NodeType, Workload

    plain = {"operator": "aten::matmul", "module": "layers.0", "phase": "forward", "step": 0}
    compute = {"name": "matmul", "type": NodeType.COMP, "duration_ns": 9_000, "kind": "compute"}
    reduce = {
        "name": "all_reduce",
        "type": NodeType.COMM_COLL,
        "duration_ns": 5_000,
        "comm_type": CollectiveType.ALL_REDUCE,
        "comm_size_bytes": 1 << 20,
        "kind": "communication",
        "stream": 1,
    }
    graphs = []
    for rank in range(8):
        rows = [
            {**plain, **each, "node_id": number, "measured_start_ns": 10_000 * number}
            for number, each in enumerate([compute, reduce, compute, reduce])
        ]
        rows[0]["duration_ns"] += 100 * rank
        graphs.append(Graph.build(rank, rows, [(number, number + 1, EdgeKind.DATA) for number in range(3)]))
    return Workload(tuple(graphs), np.arange(8, dtype=np.int32), {}, {})


def small_study(folder: Path) -> Path:
    """Make a study at *folder* with two runs of the small workload, and return *folder*."""
    from chakrascope.runner import Study, get_backend, prepare

    study = Study.create(folder)
    prefix = study.add_workload(small_workload(), "small")
    for backend in ("replay", "analytical-aware"):
        experiment = prepare(prefix, "default", "ring-8", backend=backend)
        study.add_run(experiment, get_backend(backend).run(experiment), label=backend, workload="small")
    return folder


if __name__ == "__main__":
    face = public_face()
    if sys.argv[1:] == ["--write"]:
        RECORD.write_text(face, "utf-8")
    else:
        sys.stdout.write(face)
