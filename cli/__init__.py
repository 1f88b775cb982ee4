"""The ``chakrascope`` command: one file per subcommand, which only parses options and prints."""

from ._interrupt import at_interrupt, end_process

at_interrupt(end_process)
try:
    from ._main import cli as cli
    from ._main import main as main
finally:
    at_interrupt()
