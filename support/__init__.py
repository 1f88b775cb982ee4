"""What every package needs and none owns: files that appear whole or not at all, and units for people.

Nothing here imports more than Python's standard library.
"""

from __future__ import annotations

from ._files import (
    is_temporary,
    new_file,
    new_folder,
    remove_folder,
    remove_leftover_of,
    remove_leftovers,
    sync_files,
    write_file,
    writing,
)
from ._units import (
    bandwidth_text,
    bytes_text,
    change_text,
    count_text,
    duration_text,
    instant_text,
    parse_bandwidth,
    parse_duration,
    parse_size,
    share_text,
)

__all__ = [
    "bandwidth_text",
    "bytes_text",
    "change_text",
    "count_text",
    "duration_text",
    "instant_text",
    "is_temporary",
    "new_file",
    "new_folder",
    "parse_bandwidth",
    "parse_duration",
    "parse_size",
    "remove_folder",
    "remove_leftover_of",
    "remove_leftovers",
    "share_text",
    "sync_files",
    "write_file",
    "writing",
]
