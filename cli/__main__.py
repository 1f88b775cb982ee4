"""Let ``python -m chakrascope.cli`` be the command."""

from ._main import main

if __name__ == "__main__":
    main()
