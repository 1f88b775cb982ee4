"""NCCL Inspector: a plug-in that reads the JSON lines of NCCL's own profiler."""

from ._lines import READER as READER

__all__ = ["READER"]
