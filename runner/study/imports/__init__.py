"""Importable items in a folder: trace sets, traces of other tools, production logs, graphs."""

from typing import TYPE_CHECKING

from ....support import exports_of

if TYPE_CHECKING:
    from ._bring import check_item as check_item
    from ._bring import import_item as import_item
    from ._bring import import_with_defaults as import_with_defaults
    from ._bring import step_names_of as step_names_of
    from ._find import TRACE_NAMES as TRACE_NAMES
    from ._find import ImportItem as ImportItem
    from ._find import find_items as find_items
    from ._find import item_table as item_table
    from ._find import proposed_name as proposed_name
else:
    __getattr__ = exports_of(__name__, __file__)
