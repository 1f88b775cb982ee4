"""``chakrascope completion``: print the shell script that completes commands, options and values."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from ._options import Choice

_SHELLS = {
    "bash": 'eval "$(chakrascope completion bash)"    # in ~/.bashrc',
    "fish": "chakrascope completion fish > ~/.config/fish/completions/chakrascope.fish",
    "zsh": 'eval "$(chakrascope completion zsh)"    # in ~/.zshrc, after compinit',
}
_HOW = "\b\n" + "\n".join(f"  {line}" for line in _SHELLS.values())


@click.command("completion", epilog=_HOW)
@click.argument("shell", type=Choice(list(_SHELLS)))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL."""
    kind = get_completion_class(shell)
    assert kind is not None, f"click completes in {shell}"
    root = context.find_root()
    click.echo(kind(root.command, {}, "chakrascope", "_CHAKRASCOPE_COMPLETE").source())
