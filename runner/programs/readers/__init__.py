"""Readers of collective programs: MSCCL XML and MSCCL++ execution plans, optionally gzipped."""

from __future__ import annotations

from ._checks import COLLECTIVES as COLLECTIVES
from ._read import parse_program as parse_program
from ._read import read_bytes as read_bytes
from ._read import read_program as read_program
