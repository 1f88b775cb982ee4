"""A plug-in that reads dumps of PyTorch's flight recorder, JSON or pickle."""

from ._dump import READER as READER

__all__ = ["READER"]
