"""The current and peak bytes of tensors that a rank holds."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


class Memory:
    """Counts the bytes of each storage from the creation by an operator until the last reference ends.

    *on_free* is called with the address of each freed storage, because another storage may reuse the address.
    """

    def __init__(self, on_free: Callable[[int], None]) -> None:
        self._on_free = on_free
        self.now_bytes = 0
        self.most_bytes = 0
        self.fixed_bytes = 0
        self._sizes: dict[int, int] = {}

    def begin(self) -> None:
        """Reset the peak; the current bytes (model and optimizer state) count as fixed."""
        self.most_bytes = self.fixed_bytes = self.now_bytes

    def note(self, result: Any) -> None:
        """Count the new storages of the tensors in *result*."""
        if hasattr(result, "untyped_storage"):
            self._count(result)
        elif isinstance(result, (list, tuple)):
            for part in result:
                self.note(part)

    def resized(self, storage: Any, size_bytes: int) -> None:
        """Record the new size of *storage*."""
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
