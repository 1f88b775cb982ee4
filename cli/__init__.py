"""Define the ``chakrascope`` command with one file per subcommand; other packages contain the logic."""

from ._main import cli as cli
from ._main import main as main
