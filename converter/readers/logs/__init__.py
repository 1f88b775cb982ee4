"""Read production logs: flight recorder dumps, NCCL Inspector's JSON."""

from __future__ import annotations

from ._find import read_logs as read_logs
from ._find import which_logs as which_logs
from ._model import UNKNOWN as UNKNOWN
from ._model import LoggedOp as LoggedOp
from ._model import LogKind as LogKind
from ._model import Logs as Logs
from ._model import RankLog as RankLog
from ._model import ranks_text as ranks_text

__all__ = ["UNKNOWN", "LogKind", "LoggedOp", "Logs", "RankLog", "ranks_text", "read_logs", "which_logs"]
