"""How many bytes of tensors a rank holds, and at most held."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["Memory"]


class Memory:
    """Counts the bytes of storages from when an operator returns one until nothing refers to it.

    *on_free* is told the address of one that is freed: another will have it.
    """

    def __init__(self, on_free: Callable[[int], None]) -> None:
        self._on_free = on_free
        self.now_bytes = 0
        self.most_bytes = 0
        self.fixed_bytes = 0
        self._sizes: dict[int, int] = {}

    def begin(self) -> None:
        """Start over with the most; what is held now, the model and its optimizer's state, is fixed."""
        self.most_bytes = self.fixed_bytes = self.now_bytes

    def note(self, result: Any) -> None:
        """Count the storages of the tensors in *result* that are new."""
        if hasattr(result, "untyped_storage"):
            self._count(result)
        elif isinstance(result, (list, tuple)):
            for part in result:
                self.note(part)

    def resized(self, storage: Any, size_bytes: int) -> None:
        """Note that *storage* has another size from now on."""
        key = storage._cdata
        if key in self._sizes:
            self._change(key, size_bytes)

    def _count(self, tensor: Any) -> None:
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return
        key = storage._cdata
        if key not in self._sizes and tensor.device.type != "meta":
            self._sizes[key] = 0
            self._change(key, int(storage.nbytes()))
            weakref.finalize(storage, self._freed, key).atexit = False

    def _change(self, key: int, size_bytes: int) -> None:
        self.now_bytes += size_bytes - self._sizes[key]
        self._sizes[key] = size_bytes
        self.most_bytes = max(self.most_bytes, self.now_bytes)

    def _freed(self, key: int) -> None:
        self.now_bytes -= self._sizes.pop(key, 0)
        self._on_free(key)
