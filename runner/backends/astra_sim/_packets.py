"""Read the files of ASTRA-sim's ns-3 on messages, pauses and queues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from ....errors import BackendError
from ..._experiment import Experiment
from ..._result import COLUMNS, Result, empty_table
from ..._traits import DEFAULT_BACKEND
from ...config import Fabric
from .._base import Progress
from .._engine import EngineBackend
from .._flows import completion_times
from ._log import AstraSimLog
from ._network_files import OUTPUTS, parallel_warning

__all__ = ["packet_facts", "read_flows", "read_pauses", "refuse_endless", "with_packets"]

_PAUSE = "1"


def refuse_endless(experiment: Experiment, progress: Progress | None = None) -> None:
    """Raise `SimulationStalled` for a workload that cannot end, as ASTRA-sim's ns-3 would run for ever."""
    plain = replace(experiment, backend=DEFAULT_BACKEND)
    EngineBackend().simulate(plain, lambda now, done: progress is None or progress(0, 0))


def with_packets(result: Result, fabric: Fabric, log: AstraSimLog, folder: Path) -> Result:
    """Return *result* with the messages and pauses from ns-3's files in *folder*."""
    flows = read_flows(folder, len(fabric.hosts))
    facts = packet_facts(folder, flows) | {"drops": log.drops}
    lost = [f"{log.drops} packets were lost in full switches."] if log.drops else []
    warnings = [*result.provenance["warnings"], *fabric.warnings(), *parallel_warning(fabric), *lost]
    provenance = result.provenance | {"packets": facts, "warnings": warnings}
    return replace(result, flows=flows, provenance=provenance)


def read_flows(folder: Path, hosts: int) -> pd.DataFrame:
    """Return the table ``flows`` of the messages between *hosts* that ``fct.txt`` lists.

    A line is: source and destination address (hexadecimal), their ports, bytes, start and duration in ns,
    and the duration without other traffic. Raises `BackendError` for an invalid line.
    """
    rows = []
    for place, words in _lines(folder / OUTPUTS["FCT_OUTPUT_FILE"]):
        try:
            source, destination = (_host(word, hosts) for word in words[:2])
            size, start, duration = (_count(word) for word in words[4:7])
        except ValueError as error:
            raise BackendError(
                f"{place} is not a message of this network: '{' '.join(words)[:100]}'."
            ) from error
        rows.append((source, destination, size, start, start + duration))
    if not rows:
        return empty_table("flows")
    table: pd.DataFrame = pd.DataFrame(rows, columns=list(COLUMNS["flows"])).astype(COLUMNS["flows"])
    return table


def read_pauses(folder: Path) -> tuple[int, int]:
    """Return the number of pause frames in ``pfc.txt``, and the total pause time of ports in ns.

    A line is: time in ns, node, kind of node, port, and 1 for a pause or 0 for its end.
    """
    frames = paused_ns = 0
    since: dict[tuple[str, str], int] = {}
    for place, words in _lines(folder / OUTPUTS["PFC_OUTPUT_FILE"]):
        try:
            time, port, kind = _count(words[0]), (words[1], words[3]), words[4]
        except (IndexError, ValueError) as error:
            raise BackendError(f"{place} is not a pause frame: '{' '.join(words)[:100]}'.") from error
        if kind == _PAUSE:
            frames += 1
            since.setdefault(port, time)
        elif port in since:
            paused_ns += time - since.pop(port)
    return frames, paused_ns


def packet_facts(folder: Path, flows: pd.DataFrame) -> dict[str, Any]:
    """Return the figures that only a packet-level simulation has, for the provenance."""
    frames, paused_ns = read_pauses(folder)
    facts: dict[str, Any] = {"pause_frames": frames, "paused_ns": paused_ns}
    times = completion_times(flows)
    return facts | ({"flow_completion_ns": times} if times else {})


def _lines(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the place and the words of every complete line of *path*; nothing without a file."""
    if not path.is_file():
        return
    try:
        with path.open(encoding="ascii", errors="replace") as file:
            for number, line in enumerate(file, 1):
                if line.strip() and line.endswith("\n"):
                    yield f"Line {number} of ASTRA-sim's {path.name}", line[:1000].split()
    except OSError as error:
        raise BackendError(f"ASTRA-sim's {path.name} cannot be read ({error.strerror}).") from error


def _host(address: str, hosts: int) -> int:
    """Return the host with the hexadecimal *address* 11.high.low.1."""
    host = (int(address, 16) >> 8) & 0xFFFF
    if host >= hosts:
        raise ValueError(address)
    return host


def _count(word: str) -> int:
    value = int(word)
    if not 0 <= value < 1 << 62:
        raise ValueError(word)
    return value
