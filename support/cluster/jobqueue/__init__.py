"""Batch systems such as Slurm: a plug-in that starts a Dask cluster of their jobs, by dask-jobqueue."""

from ._batch import batch_cluster as batch_cluster

__all__ = ["batch_cluster"]
