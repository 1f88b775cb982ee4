"""The Dash application: what bounds a step, from one sentence down to one node."""

from .app import create_app as create_app
from .server import serve as serve

__all__ = ["create_app", "serve"]
