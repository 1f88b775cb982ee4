"""InfraGraph: files, blueprints and imported machines, read as the nodes and links of a network."""

from ._files import read_network as read_network
from ._options import OPTION_KEYS as OPTION_KEYS
from ._package import BLUEPRINTS as BLUEPRINTS
from ._package import make_blueprint as make_blueprint

__all__ = ["BLUEPRINTS", "OPTION_KEYS", "make_blueprint", "read_network"]
