"""The command group, and the one place where our errors become messages and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from ..errors import ChakrascopeError, DependencyError, WorkloadFormatError
from ._collectives import collectives_command
from ._compare import compare_command
from ._convert import convert_command
from ._critical_path import critical_path_command
from ._doctor import doctor_command
from ._generate import generate_command
from ._inspect import export_command, inspect_command
from ._jobs import jobs_command
from ._links import links_command
from ._output import error_console
from ._presets import presets_command
from ._profile import profile_command
from ._report import report_command
from ._run import run_command
from ._runs import runs_command
from ._slack import slack_command
from ._summary import summary_command
from ._sweep import sweep_command
from ._trace import trace_command
from ._view import view_command
from ._what_if import what_if_command

__all__ = ["cli", "main"]

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
  50   a backend failed (51: not found, 52: too slow, 53: ranks wait for each other)
  60   a study folder is missing or lacks what was asked for
  130  cancelled
A training script that fails hands its own exit code through `trace` and `profile`.
"""


_SECTIONS: dict[str, dict[click.Command, str]] = {
    "From a job to an answer": {
        profile_command: "Capture a training command, convert, simulate and explain it.",
        trace_command: "Capture a training command, unchanged.",
        doctor_command: "Find what is wrong with traces, graphs or backends.",
        convert_command: "Turn traces into one Chakra graph a rank.",
        run_command: "Simulate them on a cluster.",
        view_command: "Open a study in the browser.",
        report_command: "Write the answer into one HTML file.",
    },
    "What bounds the step": {
        summary_command: "In one sentence, and what would help most.",
        critical_path_command: "The segments across ranks that sum to the step.",
        slack_command: "How much later each node could end.",
        collectives_command: "Size, skew, transfer and bandwidth of each.",
        links_command: "How busy each link is.",
    },
    "What would change it": {
        what_if_command: "Simulate a run again with something changed.",
        compare_command: "Backends, networks or the measurement side by side.",
        sweep_command: "Many clusters, the best first.",
        presets_command: "The clusters that ship with the package.",
    },
    "What there is": {
        runs_command: "The runs of a study: label, tag, note, delete.",
        jobs_command: "What runs in the background.",
        inspect_command: "What is in a graph.",
        export_command: "A graph for other tools.",
        generate_command: "Graphs without a job: microbenchmarks, text workloads.",
    },
}


class _Sections(click.Group):
    """A group whose help lists the commands by what they are for, in the order of their use."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list of commands a section."""
        width = max(map(len, self.commands))
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(str(command.name).ljust(width), text) for command, text in commands.items()]
                )


@click.group(cls=_Sections, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="chakrascope")
def cli() -> None:
    """Find what bounds a training step, on the cluster you have or the one you might buy.

    Start with `chakrascope profile -- torchrun --nproc-per-node 2 train.py`.
    """


for _commands in _SECTIONS.values():
    for _command in _commands:
        cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with the error's own code."""
    try:
        sys.exit(cli.main(args=arguments, prog_name="chakrascope", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        error_console.print("Cancelled.")
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(141)
    except ChakrascopeError as error:
        error_console.print(f"[bold red]error:[/] {_escaped(error.message)}", soft_wrap=True)
        if isinstance(error, (DependencyError, WorkloadFormatError)):
            error_console.print("'chakrascope doctor PREFIX' lists what else is wrong, and what to do.")
        sys.exit(error.exit_code)


def _escaped(text: str) -> str:
    """Return *text* so that rich prints square brackets as they are."""
    return text.replace("[", "\\[")
