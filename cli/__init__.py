"""The ``chakrascope`` command: one file per subcommand, no logic of its own."""

from ._main import cli as cli
from ._main import main as main
