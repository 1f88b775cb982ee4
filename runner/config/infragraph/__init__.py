"""InfraGraph: files, blueprints and imported machines, read as the nodes and links of a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....support import exports_of

if TYPE_CHECKING:
    from ._files import read_network as read_network
    from ._keys import OPTION_KEYS as OPTION_KEYS
    from ._package import BLUEPRINTS as BLUEPRINTS
    from ._package import make_blueprint as make_blueprint
else:
    __getattr__ = exports_of(__name__, __file__)


__all__ = ["BLUEPRINTS", "OPTION_KEYS", "make_blueprint", "read_network"]
