"""A command that works by itself and has further commands below it."""

from __future__ import annotations

from typing import Any

import click

__all__ = ["CommandWithMore"]


class CommandWithMore(click.Group):
    """A command with options and arguments of its own, unless the first word names a command below it."""

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        super().__init__(name, no_args_is_help=False, **settings)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of this command, or of the one that *args* begin with."""
        if not args or args[0] not in self.commands:
            return super().make_context(info_name, args, parent, **extra)
        # Arguments of the command by itself have no place in the usage of those below it.
        bare = click.Group(self.name)
        here = click.Context(bare, parent=parent, info_name=info_name, **self.context_settings)
        return self.commands[args[0]].make_context(args[0], args[1:], parent=here, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read options and arguments as those of a plain command."""
        return click.Command.parse_args(self, ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Do what the command does by itself, or what the one does whose context *ctx* is."""
        return click.Command.invoke(self, ctx) if ctx.command is self else ctx.command.invoke(ctx)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the usage of the command by itself."""
        return click.Command.collect_usage_pieces(self, ctx)
