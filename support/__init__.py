"""Utilities for all packages: atomic files, units, safe text, plug-ins and child processes.

This package imports only Python's standard library; its sub-packages, which it does not import, may need
more.
"""

from __future__ import annotations

from ._faces import exports_of
from ._files import (
    is_temporary,
    link_or_copy,
    new_file,
    new_folder,
    remove_folder,
    remove_leftover_of,
    remove_leftovers,
    sync_files,
    write_file,
    writing,
)
from ._lifeline import Lifeline, end_with_parent, ends_with_us
from ._plugins import load_plugin, package_version, plugin_names
from ._svg import Svg, element, picture
from ._units import (
    bandwidth_text,
    bytes_text,
    change_text,
    count_text,
    duration_text,
    instant_text,
    ordinal_text,
    parse_bandwidth,
    parse_duration,
    parse_flops,
    parse_number,
    parse_size,
    ranks_text,
    share_text,
    spreadsheet_text,
    visible,
)

__all__ = [
    "Lifeline",
    "Svg",
    "bandwidth_text",
    "bytes_text",
    "change_text",
    "count_text",
    "duration_text",
    "element",
    "end_with_parent",
    "ends_with_us",
    "exports_of",
    "instant_text",
    "is_temporary",
    "link_or_copy",
    "load_plugin",
    "new_file",
    "new_folder",
    "ordinal_text",
    "package_version",
    "parse_bandwidth",
    "parse_duration",
    "parse_flops",
    "parse_number",
    "parse_size",
    "picture",
    "plugin_names",
    "ranks_text",
    "remove_folder",
    "remove_leftover_of",
    "remove_leftovers",
    "share_text",
    "spreadsheet_text",
    "sync_files",
    "visible",
    "write_file",
    "writing",
]
