"""Let ``python -m chakrascope.cli`` be the command."""

from ._main import main

main()
