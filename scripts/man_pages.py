#!/usr/bin/env python3
"""Write a man page for every command: ``python scripts/man_pages.py [FOLDER]``, by default build/man/man1.

``man -M build/man chakrascope-run`` shows one. Needs the packages of the extra "docs".
"""

from __future__ import annotations

import argparse
from importlib.metadata import version
from pathlib import Path

import click
from click_man.core import write_man_pages

from chakrascope.cli import cli

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Read the command line and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "man" / "man1")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    write_man_pages("chakrascope", imported(cli), version=version("chakrascope"), target_dir=str(folder))
    print(f"Wrote {len(list(folder.glob('*.1')))} pages to {folder}")


def imported(group: click.Group) -> click.Group:
    """Return *group* with all its commands loaded; `chakrascope` otherwise imports each on demand."""
    context = click.Context(group)
    commands = {name: group.get_command(context, name) for name in group.list_commands(context)}
    whole = {name: command for name, command in commands.items() if command is not None}
    return click.Group("chakrascope", whole, params=group.params, help=group.help, epilog=group.epilog)


if __name__ == "__main__":
    main()
