"""A plug-in for messages over libfabric, with its providers verbs, EFA, Slingshot, TCP and shared memory."""

from ._entrance import LibfabricEntrance as LibfabricEntrance
from ._entrance import fabric_transport as fabric_transport
from ._entrance import join_fabric as join_fabric

__all__ = ["LibfabricEntrance", "fabric_transport", "join_fabric"]
