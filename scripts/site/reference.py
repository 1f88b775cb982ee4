"""Generate the reference pages of commands, errors and packages as Markdown."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module

import click

from chakrascope import errors
from chakrascope.cli import cli

__all__ = ["commands_page", "errors_page", "package_page", "public_packages"]

# The packages that users import; other packages are internal.
_PACKAGES = (
    "chakrascope.tracer",
    "chakrascope.tracer.callbacks",
    "chakrascope.converter",
    "chakrascope.runner",
    "chakrascope.runner.analysis",
    "chakrascope.runner.backends",
    "chakrascope.runner.calibration",
    "chakrascope.runner.chips",
    "chakrascope.runner.config",
    "chakrascope.runner.emulation",
    "chakrascope.runner.jobs",
    "chakrascope.runner.prediction",
    "chakrascope.runner.programs",
    "chakrascope.runner.study",
    "chakrascope.runner.sweep",
    "chakrascope.viewer",
    "chakrascope.errors",
)


def public_packages() -> tuple[str, ...]:
    """Return the names of the packages that have a page."""
    return _PACKAGES


def package_page(name: str) -> str:
    """Return the page of the package *name*: its exports, with their docstrings."""
    module = import_module(name)  # a missing name should fail here, with its name
    exports = getattr(module, "__all__", ())
    members = f"    options:\n      members: [{', '.join(exports)}]\n" if exports else ""
    return f"# {name}\n\n::: {name}\n{members}"


def commands_page() -> str:
    """Return the page of all commands, with the text of their help."""
    parts = ["# Commands", "", "`chakrascope COMMAND --help` prints the same.", ""]
    for words, command, context in _commands(cli, click.Context(cli, info_name="chakrascope")):
        help_text = "\n".join(f"    {line}".rstrip() for line in command.get_help(context).splitlines())
        parts += [f"## {' '.join(words)}", "", help_text, ""]
    return "\n".join(parts)


def _commands(
    group: click.Group, context: click.Context
) -> Iterator[tuple[list[str], click.Command, click.Context]]:
    """Yield every command with its full name; commands of a group follow the group."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        inner.terminal_width = 80
        yield inner.command_path.split(), command, inner
        if isinstance(command, click.Group):
            yield from _commands(command, inner)


def errors_page() -> str:
    """Return the page of all errors: exit code, class and meaning."""
    rows = []
    for name in errors.__all__:
        kind = getattr(errors, name)
        if inspect.isclass(kind):
            bases = [base.__name__ for base in kind.__mro__[1:] if issubclass(base, errors.ChakrascopeError)]
            rows.append((kind.exit_code, name, " / ".join(bases[:1]), inspect.getdoc(kind) or ""))
    table = [
        f"| {code} | [`{name}`][chakrascope.errors.{name}] | {base} | {text.splitlines()[0]} |"
        for code, name, base, text in sorted(rows)
    ]
    head = ["# Errors", "", "| exit code | class | is a | means |", "|---|---|---|---|"]
    return "\n".join([*head, *table, ""])
