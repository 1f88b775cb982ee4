"""Backends that run the user's own ASTRA-sim: write its input files, run it and read its log."""

from typing import TYPE_CHECKING

from ....support import exports_of

if TYPE_CHECKING:
    from ._backend import AstraSimBackend as AstraSimBackend
    from ._backend import AstraSimProgram as AstraSimProgram
    from ._backend import astra_sim_backend as astra_sim_backend
    from ._backend import experiment_archive as experiment_archive
    from ._backend import find_astra_sim as find_astra_sim
    from ._backend import nearest_program as nearest_program
    from ._inputs import NETWORK_FORMATS as NETWORK_FORMATS
    from ._inputs import OUTPUTS as OUTPUTS
    from ._inputs import lasting_fabric as lasting_fabric
    from ._inputs import link_texts as link_texts
    from ._inputs import refuse_unsupported as refuse_unsupported
    from ._inputs import setting_texts as setting_texts
    from ._inputs import write_inputs as write_inputs
    from ._inputs import write_network as write_network
    from ._log import AstraSimLog as AstraSimLog
    from ._log import read_trace as read_trace
    from ._outcome import SHOWN_LINES as SHOWN_LINES
    from ._outcome import conclude as conclude
    from ._outcome import count_nodes as count_nodes
    from ._outcome import refuse_endless as refuse_endless
    from ._outcome import with_packets as with_packets
else:
    __getattr__ = exports_of(__name__, __file__)
