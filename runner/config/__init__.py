"""Configurations: ASTRA-sim's files as validated dataclasses, saved without a change of meaning."""

from typing import TYPE_CHECKING

from ...support import exports_of

if TYPE_CHECKING:
    from ._algorithms import copied_into as copied_into
    from ._algorithms import digests as digests
    from ._algorithms import program_files as program_files
    from ._algorithms import read_per_node as read_per_node
    from ._algorithms import refuse_programs as refuse_programs
    from ._algorithms import with_absolute_algorithms as with_absolute_algorithms
    from ._algorithms import with_algorithms as with_algorithms
    from ._algorithms import with_stored_algorithms as with_stored_algorithms
    from ._algorithms import without_paths as without_paths
    from ._efficiency import HANDSHAKES as HANDSHAKES
    from ._efficiency import EfficiencyPart as EfficiencyPart
    from ._fabric import NO_CONTROL as NO_CONTROL
    from ._fabric import OWN_SETTINGS as OWN_SETTINGS
    from ._fabric import RATES as RATES
    from ._fabric import SETTINGS as SETTINGS
    from ._fabric import THRESHOLDS as THRESHOLDS
    from ._fabric import Fabric as Fabric
    from ._fabric import FabricLink as FabricLink
    from ._facts import NetworkFacts as NetworkFacts
    from ._facts import accelerators_of as accelerators_of
    from ._facts import network_facts as network_facts
    from ._facts import network_links as network_links
    from ._failures import Failure as Failure
    from ._failures import check_failures as check_failures
    from ._failures import failure_of_text as failure_of_text
    from ._failures import read_failures as read_failures
    from ._network import DIMENSION_KEYS as DIMENSION_KEYS
    from ._network import EXTENSIONS as EXTENSIONS
    from ._network import GIB as GIB
    from ._network import Link as Link
    from ._network import NetworkConfig as NetworkConfig
    from ._network_fabric import fabric_of as fabric_of
    from ._network_fabric import written_out as written_out
    from ._packet import Clos as Clos
    from ._packet import PacketPart as PacketPart
    from ._presets import Shipped as Shipped
    from ._presets import is_preset as is_preset
    from ._presets import list_presets as list_presets
    from ._presets import preset_text as preset_text
    from ._system import MemoryConfig as MemoryConfig
    from ._system import SystemConfig as SystemConfig
    from ._system import load_groups as load_groups
    from ._tcp import TcpPart as TcpPart
    from ._values import BANDWIDTH as BANDWIDTH
    from ._values import DELAY_NS as DELAY_NS
    from ._values import INTEGER as INTEGER
    from ._values import Reader as Reader
    from ._values import mapping_of as mapping_of
    from ._values import read_keys as read_keys
    from ._values import refuse_unknown as refuse_unknown
    from ._values import reported_at as reported_at
    from ._values import shown as shown
    from ._values import string as string
    from ._values import typed_fields as typed_fields
    from ._values import whole as whole
    from ._values import wrong as wrong
else:
    __getattr__ = exports_of(__name__, __file__)
