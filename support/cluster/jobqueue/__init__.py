"""A plug-in for batch systems such as Slurm, which starts a Dask cluster of their jobs with dask-jobqueue."""

from ._batch import batch_cluster as batch_cluster

__all__ = ["batch_cluster"]
