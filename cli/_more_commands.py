"""A command that works on its own and has subcommands."""

from __future__ import annotations

from typing import Any

import click

__all__ = ["CommandWithMore"]


class CommandWithMore(click.Group):
    """A command with its own options and arguments, unless the first word names a subcommand."""

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        super().__init__(name, no_args_is_help=False, **settings)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of this command, or of the subcommand with which *args* begin."""
        if not args or args[0] not in self.commands:
            return super().make_context(info_name, args, parent, **extra)
        # Arguments of the command itself are not part of a subcommand's usage.
        bare = click.Group(self.name)
        here = click.Context(bare, parent=parent, info_name=info_name, **self.context_settings)
        return self.commands[args[0]].make_context(args[0], args[1:], parent=here, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse options and arguments like a plain command."""
        return click.Command.parse_args(self, ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command itself, or the subcommand with the context *ctx*."""
        return click.Command.invoke(self, ctx) if ctx.command is self else ctx.command.invoke(ctx)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the usage of the command itself."""
        return click.Command.collect_usage_pieces(self, ctx)
