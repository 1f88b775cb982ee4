"""Utilities for all packages: atomic files, units, safe text, plug-ins and child processes.

This package imports only Python's standard library. The sub-packages may need other libraries, and are not
imported here.
"""

from ._files import NO_ROOM as NO_ROOM
from ._files import cache_folder as cache_folder
from ._files import is_temporary as is_temporary
from ._files import link_or_copy as link_or_copy
from ._files import load_json as load_json
from ._files import mapped_in_threads as mapped_in_threads
from ._files import new_file as new_file
from ._files import new_folder as new_folder
from ._files import open_file as open_file
from ._files import remove_folder as remove_folder
from ._files import remove_leftover_of as remove_leftover_of
from ._files import remove_leftovers as remove_leftovers
from ._files import size_and_time as size_and_time
from ._files import sync_files as sync_files
from ._files import write_file as write_file
from ._files import writing as writing
from ._lifeline import Lifeline as Lifeline
from ._lifeline import end_with_parent as end_with_parent
from ._lifeline import signals_blocked as signals_blocked
from ._plugins import KERNEL_PATTERNS as KERNEL_PATTERNS
from ._plugins import code_version as code_version
from ._plugins import exports_of as exports_of
from ._plugins import load_plugin as load_plugin
from ._plugins import package_version as package_version
from ._plugins import plugin_names as plugin_names
from ._svg import Svg as Svg
from ._svg import element as element
from ._svg import picture as picture
from ._units import bandwidth_text as bandwidth_text
from ._units import bytes_text as bytes_text
from ._units import change_text as change_text
from ._units import count_text as count_text
from ._units import delta_text as delta_text
from ._units import duration_text as duration_text
from ._units import instant_text as instant_text
from ._units import ordinal_text as ordinal_text
from ._units import parse_bandwidth as parse_bandwidth
from ._units import parse_duration as parse_duration
from ._units import parse_flops as parse_flops
from ._units import parse_number as parse_number
from ._units import parse_size as parse_size
from ._units import ranks_text as ranks_text
from ._units import share_text as share_text
from ._units import spreadsheet_text as spreadsheet_text
from ._units import visible as visible
