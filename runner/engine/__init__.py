"""The compiled simulation engine: event queue, ranks, collectives and analytical networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ... import errors
from ._engine import Config, Output
from ._engine import simulate as _simulate

__all__ = ["Config", "Output", "simulate"]


def simulate(
    config: Config,
    programs: Sequence[bytes | str],
    program_of_rank: Sequence[int],
    progress: Callable[[int, int], bool] | None = None,
) -> Output:
    """Simulate *programs*, content or path of `.et` files, one of them on each rank.

    *program_of_rank* gives the index of each rank's program. *progress* is called about ten times a second
    with the simulated time in ns and the number of finished ranks; the simulation is cancelled when it
    returns False. Ranks that never finish are listed in ``Output.unfinished``.

    Raises:
        ConfigError: if the configuration is impossible or contradicts the workload.
        WorkloadFormatError: if a program is not a Chakra execution trace or a node lacks an attribute.
        DependencyError: if a dependency is not in the file, or no node can start.
        Cancelled: if *progress* returned False.

    """
    return _simulate(errors, config, list(programs), [int(program) for program in program_of_rank], progress)
