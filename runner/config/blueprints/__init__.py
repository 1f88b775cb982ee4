"""InfraGraph's blueprints, and the XML of lstopo and NCCL: plug-ins by the public package ``infragraph``."""

from ._package import BLUEPRINTS as BLUEPRINTS
from ._package import import_xml as import_xml
from ._package import make_blueprint as make_blueprint

__all__ = ["BLUEPRINTS", "import_xml", "make_blueprint"]
