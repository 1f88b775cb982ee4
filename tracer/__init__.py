"""Capture training steps of unmodified PyTorch jobs.

:func:`trace` runs an unchanged training command and writes a :class:`TraceSet`. :func:`capture` writes a
:class:`TraceSet` from inside a script, for steps that do not end with a torch optimizer. :func:`collect`
merges the trace sets of a job's hosts. :func:`record_script` records the work of a script without devices,
peers or data.
"""

from typing import TYPE_CHECKING

from ..support import exports_of

if TYPE_CHECKING:
    from ._capture import Capture as Capture
    from ._capture import capture as capture
    from ._evidence import Evidence as Evidence
    from ._evidence import Frame as Frame
    from ._evidence import StepTimes as StepTimes
    from ._evidence import read_evidence as read_evidence
    from ._evidence import read_step_times as read_step_times
    from ._launcher import trace as trace
    from ._merge import collect as collect
    from ._recordings import RecordedEntry as RecordedEntry
    from ._recordings import Recording as Recording
    from ._scripts import record_script as record_script
    from ._trace_set import MANIFEST_NAME as MANIFEST_NAME
    from ._trace_set import MAX_RANKS as MAX_RANKS
    from ._trace_set import Manifest as Manifest
    from ._trace_set import ProcessGroup as ProcessGroup
    from ._trace_set import RankEntry as RankEntry
    from ._trace_set import StepRange as StepRange
    from ._trace_set import TraceSet as TraceSet
else:
    __getattr__ = exports_of(__name__, __file__)
