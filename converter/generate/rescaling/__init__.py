"""Change a captured workload to what the job would do with other degrees, batches or depth."""

from __future__ import annotations

from ._data import with_data_parallelism as with_data_parallelism

__all__ = [
    "with_data_parallelism",
]
