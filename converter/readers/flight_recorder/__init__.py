"""PyTorch's flight recorder: a plug-in that reads the ring buffer a rank dumps, as JSON or as a pickle."""

from ._dump import READER as READER

__all__ = ["READER"]
