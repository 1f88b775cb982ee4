"""Collective programs: read them, prove them correct, and convert them to messages."""

from typing import TYPE_CHECKING

from ...support import exports_of

if TYPE_CHECKING:
    from ._builtin import ALL_PAIRS as ALL_PAIRS
    from ._builtin import BUILTIN_PROGRAMS as BUILTIN_PROGRAMS
    from ._builtin import all_pairs_program as all_pairs_program
    from ._builtin import builtin_program as builtin_program
    from ._choice import PROGRAM_NAMES as PROGRAM_NAMES
    from ._choice import Choice as Choice
    from ._choice import Demand as Demand
    from ._choice import check_program_size as check_program_size
    from ._choice import choose_programs as choose_programs
    from ._choice import is_program_name as is_program_name
    from ._choice import misfit as misfit
    from ._choice import named_program as named_program
    from ._choice import nccl_choice as nccl_choice
    from ._expand import demands_of as demands_of
    from ._expand import expand_workload as expand_workload
    from ._expand import graphs_of as graphs_of
    from ._expand import workload_of as workload_of
    from ._expand import write_msccl as write_msccl
    from ._inspection import Inspection as Inspection
    from ._inspection import Traffic as Traffic
    from ._inspection import inspect_program as inspect_program
    from ._inspection import inspection_facts as inspection_facts
    from ._lower import Lowered as Lowered
    from ._lower import lower as lower
    from ._model import MESSAGE_OPS as MESSAGE_OPS
    from ._model import PROTOCOLS as PROTOCOLS
    from ._model import SIGNALS as SIGNALS
    from ._model import SUMS as SUMS
    from ._model import WAITS as WAITS
    from ._model import AlikeRanks as AlikeRanks
    from ._model import Buffer as Buffer
    from ._model import Channel as Channel
    from ._model import ChannelType as ChannelType
    from ._model import Op as Op
    from ._model import Program as Program
    from ._model import RankProgram as RankProgram
    from ._model import Region as Region
    from ._model import ThreadBlock as ThreadBlock
    from ._nccl import NCCL_ALGORITHMS as NCCL_ALGORITHMS
    from ._nccl import nccl_program as nccl_program
    from ._proof import Proof as Proof
    from ._proof import prove as prove
    from ._sizes import SLOT_BYTES as SLOT_BYTES
    from ._sizes import Rounds as Rounds
    from ._sizes import Sizes as Sizes
    from ._sizes import program_bytes as program_bytes
    from ._sizes import program_ops as program_ops
    from .readers import parse_program as parse_program
    from .readers import read_program as read_program
else:
    __getattr__ = exports_of(__name__, __file__)
