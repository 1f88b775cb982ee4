"""The command group, and the one place where our errors become messages and exit codes."""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

import click

from ..errors import ChakrascopeError, DependencyError, UsageError, WorkloadFormatError, did_you_mean
from ..support import visible
from ._output import error_console, open_what_is_closed, write_what_the_terminal_can

__all__ = ["cli", "main"]

_NO_ROOM = {errno.EDQUOT, errno.ENOSPC}

EXIT_CODES = """\b
Exit codes
  0    success
  1    an error without a class of its own
  2    wrong usage
  10   the training script could not be launched or captured
  11   it ran, but no training step was seen
  20   a trace cannot be used (21: a trace file is damaged)
  30   a workload cannot be used (31: a file is damaged, 32: dependencies)
  40   a configuration is wrong
  50   a backend failed (51: not found, 52: too slow, 53: deadlock)
  60   a study folder is missing or lacks what was asked for
  70   a limit of `diff --fail-if` was passed
  130  cancelled
A training script that fails hands its own exit code through `trace` and `profile`.
"""


_SECTIONS = {
    "From a job to an answer": {
        "demo": "See it work, on a captured job that ships with the package.",
        "profile": "Capture a training command, convert, simulate and explain it.",
        "trace": "Capture a training command, unchanged.",
        "doctor": "Find what is wrong with traces, graphs or backends.",
        "convert": "Turn traces or logs into one Chakra graph per rank.",
        "import": "Import traces or graphs from a folder into a study.",
        "run": "Simulate them on a cluster.",
        "emulate": "Run their messages over a real network, without GPUs.",
        "view": "Open a study in the browser.",
        "report": "Write the answer into one HTML file.",
    },
    "What bounds the step": {
        "summary": "In one sentence, and what would help most.",
        "critical-path": "The segments across ranks that sum to the step.",
        "slack": "How much later each node could end.",
        "layers": "Time per module.",
        "collectives": "Size, skew, transfer and bandwidth of each.",
        "links": "How busy each link is, and who sends to whom.",
        "diagnose": "Which NIC, link or host is slow, and what that costs.",
        "timeline": "What fills a window of it; or all of it, for Perfetto.",
        "graph": "What a node waits for, and what waits for it.",
        "find": "Nodes by name, operator, module or number.",
        "query": "Free questions in SQL.",
    },
    "A job that was never run": {
        "predict": "Its step, its memory and what bounds it, from the model's sizes.",
    },
    "What would change it": {
        "what-if": "Simulate a run again with something changed.",
        "compare": "Backends, networks or the measurement side by side.",
        "diff": "Two captures, steps or runs: what changed, beyond the noise?",
        "sweep": "Many clusters, the best first.",
        "rescale": "Of a captured job, make a larger one.",
        "presets": "The clusters that ship with the package.",
        "algorithm": "Collective programs: what they do, their proof, their messages.",
        "network": "What a network is, and its files for other simulators.",
        "emulate-agent": "One host's part in `emulate`.",
        "calibrate": "A network file from what was measured.",
    },
    "What there is": {
        "studies": "The studies of a folder.",
        "runs": "The runs of a study: label, tag, note, delete.",
        "jobs": "What runs in the background.",
        "inspect": "What is in a graph, or in production logs: who holds the job up.",
        "export": "A graph for other tools.",
        "generate": "Graphs without a job: microbenchmarks, text workloads.",
        "completion": "Completion of commands and options in your shell.",
    },
}


# The modules of commands that are not in one of their own name.
_MODULES = {"export": "inspect", "studies": "workspace"}
_TEXTS = {name: text for section in _SECTIONS.values() for name, text in section.items()}
_NAMES = list(_TEXTS)


class _Sections(click.Group):
    """A group whose help lists the commands by what they are for; a command is imported when it is asked for.

    All of them together import half of the libraries, which takes longer than many a command.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order of their use."""
        return _NAMES

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command called *cmd_name*, or None."""
        if cmd_name not in _NAMES:
            return None
        name = cmd_name.replace("-", "_")
        module = _imported(f"_{_MODULES.get(name, name)}")
        command: click.Command = getattr(module, f"{name}_command")
        command.short_help = _TEXTS[cmd_name]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that *args* begin with; raises `UsageError` that says which may be meant."""
        if args[0] not in _NAMES and not ctx.resilient_parsing:
            raise UsageError(f"There is no command '{args[0]}'{did_you_mean(args[0], _NAMES)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list of commands a section."""
        width = max(map(len, _NAMES))
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])


def _imported(name: str) -> ModuleType:
    """Return the module *name* of this package.

    What importing makes stays until the end: the garbage collector is kept from walking it, then and later.
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


@click.group(cls=_Sections, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="chakrascope")
def cli() -> None:
    """Find what bounds a training step, on the cluster you have or the one you might buy.

    Start with `chakrascope profile -- torchrun --nproc-per-node 2 train.py`.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with the error's own code."""
    open_what_is_closed()
    write_what_the_terminal_can()
    try:
        sys.exit(cli.main(args=arguments, prog_name="chakrascope", standalone_mode=False) or 0)
    except click.ClickException as error:
        told = io.StringIO()
        error.show(told)
        sys.stderr.write(visible(told.getvalue(), keep="\n\t"))
        sys.exit(error.exit_code)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        error_console.print("Cancelled.")
        sys.exit(130)
    except BrokenPipeError:
        error_console.on_broken_pipe()
    except OSError as error:
        error_console.print(f"[bold red]error:[/] {_escaped(_sentence(error))}", soft_wrap=True)
        sys.exit(1)
    except ChakrascopeError as error:
        error_console.print(f"[bold red]error:[/] {_escaped(error.message)}", soft_wrap=True)
        if isinstance(error, (DependencyError, WorkloadFormatError)):
            error_console.print("'chakrascope doctor PREFIX' lists what else is wrong, and what to do.")
        sys.exit(error.exit_code)


def _sentence(error: OSError) -> str:
    """Return what the system refused, of which file, and what to do."""
    # Libraries raise errors with a text of their own, and without a number.
    reason = os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
    if error.errno in _NO_ROOM:
        return f"{where}{reason}; free some disk space, or write to another disk."
    return f"{where}{reason}; check the path, and that you may read and write there."


def _escaped(text: str) -> str:
    """Return *text* so that rich prints square brackets as they are."""
    return text.replace("[", "\\[")
