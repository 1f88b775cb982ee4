"""Studies on disk, workspaces of several studies, runs and notes, and imports into studies."""

from typing import TYPE_CHECKING

from ...support import exports_of

if TYPE_CHECKING:
    from ._layout import NAME_LENGTH as NAME_LENGTH
    from ._layout import RUN_FILE as RUN_FILE
    from ._layout import check_name as check_name
    from ._layout import safe_name as safe_name
    from ._marks import TimelineNote as TimelineNote
    from ._marks import add_timeline_note as add_timeline_note
    from ._marks import remove_timeline_note as remove_timeline_note
    from ._marks import timeline_notes as timeline_notes
    from ._networks import add_network as add_network
    from ._networks import network_names as network_names
    from ._networks import read_network_file as read_network_file
    from ._notes import note_problem as note_problem
    from ._runs import RunInfo as RunInfo
    from ._runs import compared as compared
    from ._runs import run_name as run_name
    from ._runs import run_rows as run_rows
    from ._runs import run_table as run_table
    from ._study import Study as Study
    from ._study import refuse_damaged_workload as refuse_damaged_workload
    from ._workspace import StudyInfo as StudyInfo
    from ._workspace import Workspace as Workspace
    from ._workspace import describe_study as describe_study
    from .imports import TRACE_NAMES as TRACE_NAMES
    from .imports import ImportItem as ImportItem
    from .imports import check_item as check_item
    from .imports import find_items as find_items
    from .imports import import_item as import_item
    from .imports import import_with_defaults as import_with_defaults
    from .imports import item_table as item_table
    from .imports import proposed_name as proposed_name
    from .imports import step_names_of as step_names_of
else:
    __getattr__ = exports_of(__name__, __file__)
