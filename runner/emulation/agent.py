"""The agent of a coordinator on the same machine: ``python -m chakrascope.runner.emulation.agent``.

The agent reads the address and the token from standard input, so that no other process can read the token.
"""

from __future__ import annotations

import json
import sys

from ...errors import ChakrascopeError
from ._agent import join

_WAIT_S = 10.0


def main() -> int:
    """Serve the coordinator at the address on standard input, and return the exit status."""
    instructions = json.load(sys.stdin)
    host, port = instructions["address"]
    try:
        join(
            (str(host), int(port)),
            bytes.fromhex(instructions["token"]),
            instructions["hosts"],
            wait_s=_WAIT_S,
            limit_s=float(instructions["limit_s"]),
        )
    except ChakrascopeError as error:
        sys.stderr.write(f"{error.message}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
