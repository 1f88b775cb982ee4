"""Work for the workers of a Dask cluster, its own or one of a batch system: many calls, answered as they end.

Dask is an extra: it is imported when a cluster is connected to.
"""

from __future__ import annotations

from ._dask import Cluster, connected

__all__ = ["Cluster", "connected"]
