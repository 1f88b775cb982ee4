"""Distribute calls to the workers of a Dask cluster, existing or on a batch system.

Dask is an optional dependency, imported when a cluster is connected.
"""

from __future__ import annotations

from ._dask import Cluster as Cluster
from ._dask import connected as connected
