"""The Dash application: what bounds a step, from one sentence down to one node; and a report in one file."""

from .app import create_app as create_app
from .report import write_report as write_report
from .server import serve as serve

__all__ = ["create_app", "serve", "write_report"]
