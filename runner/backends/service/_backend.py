"""The backend for an ASTRA-sim Service, and the plug-in that lists the user's services."""

from __future__ import annotations

import re
import time
import uuid
from pathlib import Path
from typing import Any

from ....errors import BackendError, BackendTimeout, Cancelled, ConfigError
from ..._experiment import Detail, Experiment
from ..._result import Result
from ..._traits import BackendPlugin, Traits
from .._base import Progress
from .._process import backend_timeout_s, scratch_folder
from ..astra_sim import (
    OUTPUTS,
    SHOWN_LINES,
    AstraSimLog,
    conclude,
    count_nodes,
    lasting_fabric,
    read_trace,
    refuse_endless,
    with_packets,
)
from ._client import LOG_FILE, ServiceAddress, ServiceClient, configured_services, parse_address, plain, turn
from ._request import configuration, write_archive

# ASTRA-sim Service hangs for good once a simulation has written more lines than this.
_MAX_LINES = 65_536
_LINES_A_RANK = 8
_LINES_OF_ROOFLINE = 4
_POLL_S = 0.1
_LONGEST_PAUSE_S = 1.0
_LOOK_S = 2.0
# Spend at most this fraction of the time on polling.
_SHARE = 0.05
_STOP_S = 0.7
_TICK = re.compile(rb"tick=(\d{1,18}),")
_FINISHED = re.compile(rb"sys\[(\d{1,9})\] finished,")
_EXITING = re.compile(r"\bExiting\s*$")
_TAIL_BYTES = 4096
_PACKET_FILES = (OUTPUTS["FCT_OUTPUT_FILE"], OUTPUTS["PFC_OUTPUT_FILE"])


def service_backend(name: str) -> ServiceBackend:
    """Return the backend ``service://HOST:PORT[/KIND]``."""
    return ServiceBackend(parse_address(name))


class ServiceBackend:
    """Simulates at the ASTRA-sim Service at *address*, one simulation at a time.

    A run ends after *timeout_s* seconds (default: ``CHAKRASCOPE_BACKEND_TIMEOUT``, or an hour), not
    counting the wait for other clients on this machine. A single call may take *call_s* seconds.
    """

    def __init__(
        self, address: ServiceAddress, timeout_s: float | None = None, call_s: float | None = None
    ) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self.call_s = call_s

    def run(self, experiment: Experiment, progress: Progress | None = None) -> Result:
        """Upload *experiment*, run it at the service, and return the result.

        Raises `ConfigError` for an experiment that the service does not support,
        `BackendUnavailable` if no service answers, `BackendError` with the service's message if the
        simulation fails, `SimulationStalled`, `BackendTimeout` and `Cancelled`.
        """
        fits = _trace_fits(experiment, self.address.place)
        return self._run(experiment, progress, trace=fits and experiment.detail is Detail.EVERYTHING)

    def _run(self, experiment: Experiment, progress: Progress | None, *, trace: bool) -> Result:
        if self.address.kind == "ns3":
            refuse_endless(experiment, progress)
        timeout_s = self.timeout_s if self.timeout_s is not None else backend_timeout_s()
        watch = _Watch(self.address.place, progress, timeout_s)
        # A unique name, because clients of a service share its folders.
        folder = f"chakrascope-{uuid.uuid4().hex}"
        request, warnings = configuration(experiment, self.address.kind, folder, trace=trace)
        try:
            with scratch_folder() as scratch:
                version, log, lines = self._serve(experiment, request, folder, scratch, watch)
                result = conclude(
                    experiment,
                    log,
                    read_trace(lines) if trace else None,
                    [plain(line) for line in lines[-SHOWN_LINES:]],
                    who=f"The ASTRA-sim Service at {self.address.place}",
                    versions={"astra-sim-service": version},
                    warnings=[*warnings, *_complaints(lines)],
                )
                if self.address.kind != "ns3":
                    return result
                return with_packets(result, lasting_fabric(experiment.network), log, scratch)
        except OSError as error:
            raise BackendError(
                f"The upload for the ASTRA-sim Service cannot be written ({error}); free some disk space or "
                "set TMPDIR to another folder."
            ) from error

    def _serve(
        self, experiment: Experiment, request: Any, folder: str, scratch: Path, watch: _Watch
    ) -> tuple[str, AstraSimLog, list[str]]:
        """Run the simulation at the service; return the service's version, the parsed log and its lines.

        The service's other result files are stored in *scratch*.
        """
        options = {} if self.call_s is None else {"call_s": self.call_s}
        with ServiceClient(self.address, watch.raise_if_stopped, **options) as client:
            version = client.version()
            archive = scratch / "workload.zip"
            write_archive(experiment, folder, archive, watch.raise_if_stopped)
            with turn(self.address.place, watch.raise_if_stopped) as held:
                watch.start()
                _wait_until_free(client, watch, held.left_behind)
                client.upload(archive)
                client.configure(request)
                with held.running(folder):
                    log, lines = self._simulate(client, watch, experiment.workload.num_ranks)
                for name in _PACKET_FILES if self.address.kind == "ns3" else ():
                    (scratch / name).write_bytes(client.file(name))
        return version, log, lines

    def _simulate(
        self, client: ServiceClient, watch: _Watch, num_ranks: int
    ) -> tuple[AstraSimLog, list[str]]:
        """Run the configured simulation and return its log and lines; stops it at the service if it fails."""
        try:
            client.start(self.address.kind)
            status = watch.follow(client)
            lines = client.file(LOG_FILE).decode("utf-8", "replace").split("\n")
            lines = [line for line in lines if line.strip()]
        except BaseException as error:
            if not client.stop(_STOP_S) and isinstance(error, Cancelled):
                raise Cancelled(
                    f"{error.message} It did not confirm within {_STOP_S:g} s that the simulation has ended."
                ) from error
            raise
        log = AstraSimLog(num_ranks)
        for line in lines:
            log.feed(line)
        if status == "failed" and len(log.ranks) == num_ranks:
            # The service reports a failure for any line on ASTRA-sim's standard error.
            return log, lines
        # The service reports a crash as a normal end; only ASTRA-sim's last line of output distinguishes
        # them.
        if status == "completed" and len(log.ranks) < num_ranks and not any(map(_EXITING.search, lines)):
            status = "crashed"
        if status != "completed":
            raise self._failure(status, log, lines)
        return log, lines

    def _failure(self, status: str, log: AstraSimLog, lines: list[str]) -> BackendError:
        if status == "terminated":
            return BackendError(
                f"Another client stopped the simulation at the ASTRA-sim Service at {self.address.place}; "
                "run it again."
            )
        reasons = [plain(line) for line in log.failures or lines[-SHOWN_LINES:]]
        quote = f" Its last output: {' | '.join(reasons)}." if reasons else " It printed nothing."
        return BackendError(
            f"The simulation failed at the ASTRA-sim Service at {self.address.place} ({status}).{quote} "
            f"Check that it has a program for '{self.address.kind}', and what it names, or run the same "
            "experiment with our 'analytical-unaware' backend, whose errors name the cause."
        )


def _complaints(lines: list[str]) -> list[str]:
    """Return ASTRA-sim's standard error, which follows the last line of the log, as a warning."""
    ends = [number for number, line in enumerate(lines) if _EXITING.search(line)]
    complaints = [plain(line) for line in lines[ends[-1] + 1 :][:SHOWN_LINES]] if ends else []
    return [f"ASTRA-sim printed errors at its end: {' | '.join(complaints)}."] if complaints else []


def _wait_until_free(client: ServiceClient, watch: _Watch, left_behind: str) -> None:
    """Wait until the service is idle; first stop a simulation that a killed process left running."""
    if left_behind and client.status() == "running" and client.holds(left_behind):
        client.stop(_STOP_S)
    # An upload deletes the files of a simulation that another client is running.
    began = time.monotonic()
    while client.status() == "running":
        watch.pause(began)


class _Watch:
    """The progress of a run at the service; *progress* receives reports and may end the run."""

    def __init__(self, place: str, progress: Progress | None, timeout_s: float) -> None:
        self._place = place
        self._progress = progress
        self._now_ns = 0
        self._ranks_done = 0
        self._timeout_s = timeout_s
        self._deadline = float("inf")

    def start(self) -> None:
        """Start counting the time limit."""
        self._deadline = time.monotonic() + self._timeout_s

    def raise_if_stopped(self) -> None:
        """Raise `Cancelled` or `BackendTimeout` if the run must stop."""
        if self._progress is not None and not self._progress(self._now_ns, self._ranks_done):
            raise Cancelled(f"The run at the ASTRA-sim Service at {self._place} was cancelled.")
        if time.monotonic() > self._deadline:
            raise BackendTimeout(
                f"The ASTRA-sim Service at {self._place} did not finish within {self._timeout_s:g} s; it "
                f"may be occupied by another simulation, or hang. Allow more time, simulate less, or "
                "restart it."
            )

    def pause(self, since: float) -> None:
        """Sleep between two polls, longer the more time has passed since *since*."""
        now = time.monotonic()
        end = now + min(max(_POLL_S, _SHARE * (now - since)), _LONGEST_PAUSE_S)
        while now < end:
            self.raise_if_stopped()
            time.sleep(min(_POLL_S, end - now))
            now = time.monotonic()

    def follow(self, client: ServiceClient) -> str:
        """Wait for the simulation to end, reading the log now and then, and return its final status."""
        began = time.monotonic()
        look = began + _LOOK_S
        while (status := client.status()) == "running":
            if time.monotonic() >= look:
                asked = time.monotonic()
                self._take(client.file(LOG_FILE))
                answered = time.monotonic()
                # The service reads and sends its whole log at each request.
                look = answered + max(_LOOK_S, (answered - asked) / _SHARE)
            self.pause(began)
        return status

    def _take(self, content: bytes) -> None:
        if content.count(b"\n") > _MAX_LINES:
            last = plain(content[-_TAIL_BYTES:].decode("utf-8", "replace").rstrip().rpartition("\n")[2])
            raise BackendError(
                f"The ASTRA-sim Service at {self._place} hangs: ASTRA-sim wrote more than {_MAX_LINES} "
                f"lines, the last of which is '{last}'. Restart the service, and use the backends "
                "'astra-sim:...' or Chakrascope's for this experiment."
            )
        self._ranks_done = len(set(_FINISHED.findall(content)))
        self._now_ns = max(self._now_ns, *map(int, _TICK.findall(content[-_TAIL_BYTES:])), 0)


def _trace_fits(experiment: Experiment, place: str) -> bool:
    """Return whether node times fit into the service's log; raises `ConfigError` if not even totals fit."""
    members = sum(len(ranks) for ranks in experiment.groups.values())
    a_rank = _LINES_A_RANK + (_LINES_OF_ROOFLINE if experiment.system.roofline_enabled else 0)
    lines = a_rank * experiment.workload.num_ranks + experiment.network.dimensions * (members + 4)
    if lines >= _MAX_LINES:
        raise ConfigError(
            f"{experiment.workload.num_ranks} ranks are too many for the ASTRA-sim Service at {place}: it "
            f"hangs when a simulation writes more than {_MAX_LINES} lines, and this simulation would write "
            f"about {lines}. Use the backends 'astra-sim:...' or Chakrascope's."
        )
    return lines + 2 * count_nodes(experiment) + 2 * experiment.workload.num_ranks < _MAX_LINES


_WHAT = "an ASTRA-sim Service"
_CALL_S = 2.0


def _names() -> list[str]:
    return [address.name for address in configured_services()]


def _report() -> list[dict[str, str]]:
    """Report for each of the user's services whether it answers."""
    addresses = configured_services()
    answers = {place: _ask(address) for place, address in {one.place: one for one in addresses}.items()}
    return [{"backend": address.name, "what": _WHAT} | answers[address.place] for address in addresses]


def _ask(address: ServiceAddress) -> dict[str, str]:
    try:
        with ServiceClient(address, call_s=_CALL_S) as client:
            return {"usable": "yes", "found": f"version {client.version()}, {client.status()}"}
    except BackendError as error:
        return {"usable": "no", "found": error.message}


PLUGIN = BackendPlugin(
    Traits(_WHAT, variant="address", efficiency="none"), service_backend, names=_names, report=_report
)
