"""Make workloads that no job left: microbenchmarks."""

from __future__ import annotations

from ._microbenchmarks import MICROBENCHMARKS as MICROBENCHMARKS
from ._microbenchmarks import microbenchmark as microbenchmark

__all__ = [
    "MICROBENCHMARKS",
    "microbenchmark",
]
