"""Production logs of a job, read per rank by the plug-ins in `LOG_READERS`."""

from __future__ import annotations

from ._find import read_logs as read_logs
from ._find import which_logs as which_logs
from ._model import MOST_BYTES as MOST_BYTES
from ._model import UNKNOWN as UNKNOWN
from ._model import Comm as Comm
from ._model import LoggedOp as LoggedOp
from ._model import LogReader as LogReader
from ._model import Logs as Logs
from ._model import RankLog as RankLog
from ._model import Reader as Reader
from ._model import bounded as bounded
from ._model import collective_op as collective_op
from ._model import counted as counted
from ._model import damaged as damaged
from ._model import ranks_by_name as ranks_by_name
from ._model import ranks_text as ranks_text
