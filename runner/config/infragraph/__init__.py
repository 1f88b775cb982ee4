"""Read InfraGraph files and blueprints as nodes and links of a network."""

from typing import TYPE_CHECKING

from ....support import exports_of

if TYPE_CHECKING:
    from ._files import read_network as read_network
else:
    __getattr__ = exports_of(__name__, __file__)
