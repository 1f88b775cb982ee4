"""The ``chakrascope`` command: one file per subcommand; the logic is in other packages."""

from ._main import cli as cli
from ._main import main as main
