"""The Dash application that shows what bounds a step, and the HTML report.

Only the application needs the package Dash; the report, the queries and the page state do not.
"""

from typing import TYPE_CHECKING

from ..support import exports_of

if TYPE_CHECKING:
    from ._app import create_app as create_app
    from ._server import serve as serve
    from ._state import OpenRun as OpenRun
    from ._state import StudyView as StudyView
    from .report import write_report as write_report
else:
    __getattr__ = exports_of(__name__, __file__)
