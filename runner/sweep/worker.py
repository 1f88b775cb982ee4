"""A process of a sweep: ``python -m chakrascope.runner.sweep.worker FD`` answers tasks until FD is closed.

FD is one end of a connection. The first message is the study's folder. The process answers each following
`Work` with the columns of its result. When the other end disappears, the process stops its task and exits.
"""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from ...errors import Cancelled
from ...support import end_with_parent

if TYPE_CHECKING:
    from ._point import Work


def main(descriptor: int, parent: int) -> None:
    """Answer the tasks of the process *parent* that arrive on the connection *descriptor*."""
    end_with_parent(parent)
    from ._point import Solver  # noqa: PLC0415 - takes seconds on a busy machine; the parent may die meanwhile

    connection: Connection[object, object] = Connection(descriptor)
    try:
        solver = Solver(str(connection.recv()))
        while True:
            work: Work = connection.recv()  # type: ignore[assignment]  # our own parent sends nothing else
            connection.send(solver.solve(work))
    except (EOFError, BrokenPipeError, ConnectionResetError, Cancelled):
        return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
