"""Configurations: ASTRA-sim's own files as validated models, written back unchanged in meaning."""

from ._groups import load_groups as load_groups
from ._memory import MemoryConfig as MemoryConfig
from ._network import NetworkConfig as NetworkConfig
from ._packet import PacketNetwork as PacketNetwork
from ._presets import list_presets as list_presets
from ._presets import preset_path as preset_path
from ._system import SystemConfig as SystemConfig

__all__ = [
    "MemoryConfig",
    "NetworkConfig",
    "PacketNetwork",
    "SystemConfig",
    "list_presets",
    "load_groups",
    "preset_path",
]
