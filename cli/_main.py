"""The ``chakrascope`` command group; turns errors into messages and exit codes."""

from __future__ import annotations

import errno
import gc
import io
import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from ..errors import ChakrascopeError, DependencyError, UsageError, WorkloadFormatError, did_you_mean
from ..support import NO_ROOM, visible
from ._interrupt import at_interrupt, end_process, raise_or_end
from ._output import (
    error_console,
    flushed_output,
    open_closed_streams,
    replace_unencodable_output,
    shortened,
)

HELP = """\
Find what bounds a training step, on the cluster you have or one that you might buy.

\b
a training script      chakrascope profile -- torchrun train.py
a trace (Perfetto)     chakrascope summary trace.json.gz
which rank is slow     chakrascope diagnose TRACES
slow collectives       chakrascope summary TRACES --view collectives
two clusters           chakrascope sweep STUDY --on 64xa100,64xh100
a model, no job yet    chakrascope predict --model llama3-8b --on 64xh100
a regression in CI     chakrascope diff OLD NEW --fail-if 'step > +3%'
a file to hand over    chakrascope report STUDY -o report.html
nothing yet            chakrascope demo

STUDY is a folder of captures and runs. Commands that explain a run also accept TRACES. `sweep` and
other commands that simulate need a STUDY, which `chakrascope import` makes from TRACES.
"""

EXIT_CODES = """\b
Exit codes
  0    success
  1    other error
  2    invalid command or option
  10   the training script could not be launched or captured
  11   the script ran without a training step
  20   unusable trace (21: damaged file)
  30   unusable workload (31: damaged file, 32: invalid dependencies)
  40   invalid configuration
  50   backend failed (51: not found, 52: too slow, 53: deadlock)
  60   study missing, or it lacks the requested item
  70   a limit of `diff --fail-if` was exceeded (71: undecided)
  130  cancelled
`trace` and `profile` return the exit code of a training script that fails.
"""


_SECTIONS = {
    "From a job to an answer": {
        "demo": "Convert, simulate and explain a captured job that ships with the package.",
        "profile": "Capture a training command and print what bounds its step.",
        "trace": "Capture a few training steps of an unchanged command.",
        "doctor": "Check traces, graphs or a study for errors, and list the usable simulators.",
        "convert": "Convert traces or logs to one Chakra graph per rank.",
        "import": "Import traces or graphs from a folder into a study.",
        "run": "Simulate a workload on a cluster.",
        "emulate": "Send a workload's messages over a real network, without GPUs.",
        "view": "Show a study or a trace in the browser.",
        "report": "Write a report on a run to one HTML file that you can share.",
    },
    "What bounds the step": {
        "summary": "Print what bounds the step, or a table (operators, collectives, links).",
        "critical-path": "List the segments of the critical path across ranks, which add up to the step.",
        "diagnose": "Find the slow rank, NIC, link or host in a run, traces or production logs.",
        "timeline": "List what runs in a time window, or export to Perfetto.",
        "graph": "Count, find or show the nodes of a graph, or export the graph.",
        "query": "Query a run in SQL.",
    },
    "What would change it": {
        "what-if": "Simulate a run with parts of it faster, slower or removed.",
        "compare": "Compare runs of one workload with each other or with the measured step.",
        "diff": "Compare two captures, steps or runs, and fail CI on a regression.",
        "sweep": "Simulate a workload with many clusters or settings, and rank them.",
        "rescale": "Scale a captured job to more ranks or layers, or to another chip.",
        "predict": "Predict step time and memory from model sizes, or find the best parallelism.",
    },
    "Networks and collectives": {
        "network": "List preset clusters, describe a network, or write its files.",
        "calibrate": "Fit a network to measurements.",
        "algorithm": "Check, prove, simulate and export collective programs.",
    },
    "Studies and workloads": {
        "runs": "List runs, background jobs and studies; label or delete runs.",
        "generate": "Write microbenchmarks as Chakra graphs.",
    },
}
_HIDDEN = ("completion", "emulate-agent")
# Old command name -> words of the new command. The old name warns, and is removed two minor versions later.
MOVED: Mapping[str, tuple[str, ...]] = {
    "collectives": ("summary", "--view", "collectives"),
    "export": ("graph",),
    "find": ("graph",),
    "inspect": ("graph", "--content"),
    "jobs": ("runs", "--jobs"),
    "layers": ("summary", "--view", "layers"),
    "links": ("summary", "--view", "links"),
    "presets": ("network", "--print"),
    "slack": ("summary", "--view", "slack"),
    "studies": ("runs", "--studies"),
}
# Suggested command line -> words of other tools that users may type instead.
_GUESSED = {
    "summary TRACE": "analyse analyze bottleneck bottlenecks bound profile-trace stats trace-analysis why",
    "summary STUDY --view operators": "kernel kernels operator operators ops top",
    "summary STUDY --view collectives": "allreduce comm communication comms nccl",
    "diagnose STUDY": "imbalance ranks skew slow straggler stragglers",
    "timeline STUDY --host": "flame flamegraph stacks",
    "timeline STUDY -o trace.json": "chrome chrome-trace perfetto",
    "view STUDY": "browse dashboard gui open serve server show start ui viewer viz web",
    "run STUDY --on 64xh100": "replay sim simulate simulation",
    "sweep STUDY --on 64xa100,64xh100": "clusters compare-clusters explore tune",
    "network": "chips cluster hardware machines systems topology",
    "runs FOLDER": "history list ls projects workspace",
    "predict --model llama3-8b --on 64xh100": "estimate forecast memory model",
    "predict search --model llama3-8b --gpus 64": "autotune optimize parallelism plan search",
    "trace -- torchrun train.py": "capture collect launch record start-trace",
    "diff BEFORE@all AFTER@all --fail-if 'step > +3%'": "ci gate regress regression",
    "doctor STUDY": "check lint validate verify",
    "report STUDY": "html pdf share",
    "rescale STUDY --dp 64": "scale scale-up upscale",
    "import STUDY FOLDER": "add ingest load",
    "generate all-reduce --ranks 8 -o PREFIX": "bench benchmark microbenchmark",
    "query STUDY --examples": "duckdb select sql",
    "--help": "help usage",
}
# Command and an option that it lacks -> the command line that has it.
_ELSEWHERE: Mapping[tuple[str, str], str] = {
    ("compare", "--network"): "chakrascope sweep STUDY --on 64xa100,64xh100",
    ("compare", "--on"): "chakrascope sweep STUDY --on 64xa100,64xh100",
    ("predict", "--gpus"): "chakrascope predict search --model NAME --gpus N",
    ("predict", "--ranks"): "chakrascope predict search --model NAME --gpus N",
    ("summary", "--network"): "chakrascope run STUDY --on 64xh100",
    ("summary", "--on"): "chakrascope run STUDY --on 64xh100",
    ("what-if", "--network"): "chakrascope run STUDY --on 64xh100",
    ("what-if", "--on"): "chakrascope run STUDY --on 64xh100",
}

# Command -> its module, where the names differ.
_MODULES = {"emulate_agent": "emulate"}
_TEXTS = {name: text for section in _SECTIONS.values() for name, text in section.items()}
_NAMES = [*_TEXTS, *_HIDDEN]


class _Help(click.HelpFormatter):
    """Help texts whose lines do not break at the hyphens of names, such as ``algorithm.all-reduce``."""

    def write_text(self, text: str) -> None:
        """Write a paragraph."""
        super().write_text(_with_whole_words(text))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write names and their texts in two columns."""
        super().write_dl([(name, _with_whole_words(text)) for name, text in rows], col_max, col_spacing)

    def getvalue(self) -> str:
        """Return the help."""
        return super().getvalue().replace(_WHOLE_HYPHEN, "-")


_WHOLE_HYPHEN = "\u2011"  # a line does not break after this hyphen


def _with_whole_words(text: str) -> str:
    return text.replace("-", _WHOLE_HYPHEN)


class _Context(click.Context):
    formatter_class = _Help


class _Sections(click.Group):
    """Lists commands by purpose, and imports a command's module on first use.

    Importing all of them would load most libraries, which takes longer than many commands.
    """

    context_class = _Context

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all visible commands, in the order of a workflow."""
        return list(_TEXTS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command *cmd_name*, or None."""
        if cmd_name not in _NAMES:
            return None
        name = cmd_name.replace("-", "_")
        module = _imported(f"_{_MODULES.get(name, name)}")
        command: click.Command = getattr(module, f"{name}_command")
        command.short_help = _TEXTS.get(cmd_name, "")
        for one in (command, *getattr(command, "commands", {}).values()):
            one.context_class = _Context
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command at the start of *args*; raises `UsageError` with a suggestion if unknown."""
        if args[0] in MOVED:
            new = MOVED[args[0]]
            error_console.print_text(
                f"Warning: '{args[0]}' is now '{' '.join(new)}'; the old name will be removed in 0.5.",
                "yellow",
            )
            args = [*new, *args[1:]]
        if args[0] not in _NAMES and Path(args[0]).exists():
            raise UsageError(
                f"{args[0]} is a file or folder, not a command. Next: chakrascope summary {shlex.join(args)}"
            )
        if args[0] not in _NAMES and not ctx.resilient_parsing:
            raise UsageError(f"There is no command '{args[0]}'{_instead(args[0])}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command, then flush standard output."""
        with flushed_output():  # otherwise, click exits with code 1 if the reader of a pipe is gone
            return super().invoke(ctx)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the arguments; print the help if they ask for it."""
        with flushed_output():
            return super().make_context(info_name, args, parent, **extra)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands into the help, section by section."""
        width = max(map(len, _TEXTS))
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])


def _instead(word: str) -> str:
    """Return the end of the error about the unknown command *word*: a suggestion."""
    line = next((line for line, words in _GUESSED.items() if word.lower() in words.split()), None)
    return f". Next: chakrascope {line}" if line else did_you_mean(word, _NAMES)


def _imported(name: str) -> ModuleType:
    """Import a module of this package without giving its objects to the garbage collector.

    The objects live until the process ends, so scanning them would be a waste of time.
    """
    module = sys.modules.get(f"{__package__}.{name}")
    if module is None:
        gc.disable()
        try:
            module = import_module(f".{name}", __package__)
        finally:
            gc.freeze()
            gc.enable()
    return module


@click.group(
    cls=_Sections, help=HELP, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="chakrascope")
def cli() -> None:
    """Find what bounds a training step, on the cluster you have or one that you might buy."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit; the kind of an error determines the exit code."""
    # PyArrow's default allocator does not return freed memory, and takes 60 ms longer than jemalloc
    # to write a workload.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
    try:
        sys.exit(_exit_code(arguments))
    except click.ClickException as error:
        help_text = io.StringIO()
        error.show(help_text)
        help_text.write(_elsewhere(error))
        sys.stderr.write(visible(shortened(help_text.getvalue()), keep="\n\t"))
        sys.exit(error.exit_code)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt) as end:
        if isinstance(end.__cause__, EOFError):  # click takes any EOFError for the end of a prompt's input
            error_console.print_error(_cut_short(end.__cause__))
            sys.exit(1)
        error_console.print("Cancelled.")
        sys.exit(130)
    except (OSError, MemoryError) as error:
        error_console.print_error(_sentence(error))
        sys.exit(1)
    except ChakrascopeError as error:
        error_console.print_error(error.message)
        if isinstance(error, (DependencyError, WorkloadFormatError)):
            error_console.print_text(
                "'chakrascope doctor PREFIX' lists further errors and how to correct them."
            )
        sys.exit(error.exit_code)


def _exit_code(arguments: Sequence[str] | None) -> int:
    """Run the command, and return its exit code.

    In the process of a command, without *arguments*, Ctrl-C ends the process during imports and afterwards.
    """
    if arguments is None:
        at_interrupt(raise_or_end)
    try:
        open_closed_streams()
        replace_unencodable_output()
        return cli.main(args=arguments, prog_name="chakrascope", standalone_mode=False) or 0
    finally:
        if arguments is None:
            at_interrupt(end_process)


def _elsewhere(error: click.ClickException) -> str:
    """Return a line naming the command that has *error*'s unknown option, or ""."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return ""
    path = error.ctx.command_path.removeprefix("chakrascope ")
    command = _ELSEWHERE.get((path, error.option_name))
    return f"Next: {command}\n" if command else ""


def _cut_short(error: EOFError) -> str:
    """Return a sentence about a truncated file, such as Python's byte code after the disk was full."""
    return (
        f"A file ends too early: {error}. Next: if none of your files is truncated, remove the folders "
        f"__pycache__ in {Path(__file__).parents[1]}."
    )


def _sentence(error: OSError | MemoryError) -> str:
    """Return a sentence about a system error: file, reason and next step."""
    if isinstance(error, MemoryError) or error.errno == errno.ENOMEM:
        return "The memory is not sufficient. Next: end other programs, or use a machine with more memory."
    # Some libraries raise `OSError` with their own text, or without a number.
    reason = os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
    if error.errno in NO_ROOM:
        return f"{where}{reason}; free some disk space, or write to another disk."
    return f"{where}{reason}; check the path and its permissions."
