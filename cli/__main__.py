"""Run the ``chakrascope`` command with ``python -m chakrascope.cli``."""

from ._main import main

if __name__ == "__main__":
    main()
