"""The ``chakrascope`` command: one file per subcommand, no logic of its own."""

from ._interrupt import ended_by_interrupt

with ended_by_interrupt():
    from ._main import cli as cli
    from ._main import main as main
