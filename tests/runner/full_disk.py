"""A disk that is full, as far as this process can tell."""

from __future__ import annotations

import contextlib
import resource


@contextlib.contextmanager
def files_up_to(size_bytes: int):
    """Let this process write no file beyond *size_bytes*, which ends like a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
