"""``chakrascope presets``: list the configurations that ship with the package."""

from __future__ import annotations

import click
import pandas as pd

from ..runner import list_presets
from ._output import format_option, print_frame

__all__ = ["presets_command"]


@click.command("presets")
@format_option
def presets_command(output_format: str) -> None:
    """List the network and system presets; use their names wherever a configuration file is asked for."""
    print_frame(pd.DataFrame(list_presets()), output_format)
