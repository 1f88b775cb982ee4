"""Find the user's ASTRA-sim programs, run them as backends, and write all their inputs into a zip file."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from ....errors import BackendError, BackendTimeout, BackendUnavailable, Cancelled, ConfigError, did_you_mean
from ....support import bytes_text
from ..._experiment import Experiment
from ..._result import Result
from ..._traits import about_backend
from ...config import Fabric, read_keys, string
from .._base import Progress
from .._process import (
    ASTRA_SIM,
    backend_timeout_s,
    describe_exit,
    read_user_file,
    require_space,
    run_guarded,
    scratch_folder,
)
from ._inputs import TRACE_LIMIT_NODES, lasting_fabric, write_inputs
from ._log import AstraSimLog, log_lines, read_trace
from ._outcome import SHOWN_LINES, conclude, count_nodes, refuse_endless, with_packets

_NAMES = {
    "analytical-aware": ("AstraSim_Analytical_Congestion_Aware",),
    "analytical-unaware": ("AstraSim_Analytical_Congestion_Unaware",),
    # Fastest build first: ns-3's "default" and "debug" builds are about ten times slower.
    "ns3": (
        "AstraSimNetwork-optimized",
        "AstraSimNetwork",
        "AstraSimNetwork-default",
        "AstraSimNetwork-debug",
    ),
}
_FOLDERS = {
    "analytical-aware": ("build/astra_analytical/build/bin",),
    "analytical-unaware": ("build/astra_analytical/build/bin",),
    "ns3": ("extern/network_backend/ns-3/build/scratch",),
}
KINDS = tuple(sorted(_NAMES))
_NS3_NAME = re.compile(r"ns3\.[\d.]+-(AstraSimNetwork(?:-[a-z]+)?)")


def nearest_program(*, fabric: bool) -> tuple[str, str]:
    """Return the name and kind of the ASTRA-sim program for a network with or without a *fabric*."""
    return ("AstraSim_NS3", "ns3") if fabric else (_NAMES["analytical-unaware"][0], "analytical-unaware")


@dataclass(frozen=True)
class AstraSimProgram:
    """An ASTRA-sim program on this machine.

    *kind* is one of `KINDS`. *source* is the setting or folder in which it was found. *version* is
    the commit of its checkout, if known.
    """

    kind: str
    path: Path
    source: str
    version: str = "unknown"


def find_astra_sim(environment: Mapping[str, str] = os.environ) -> dict[str, AstraSimProgram]:
    """Return the ASTRA-sim programs on this machine, keyed by kind.

    The programs are searched in this order: the entry of the kind under ``astra-sim`` in ``backends.yml``
    (in ``$XDG_CONFIG_HOME/chakrascope``), the checkouts named by its key ``home`` and by
    ``ASTRA_SIM_HOME``, and ``PATH``. Raises `ConfigError` for an invalid ``backends.yml``.
    """
    settings = _settings(environment)
    programs = {}
    for kind in KINDS:
        for path, source in _candidates(kind, settings, environment):
            if path.is_file() and os.access(path, os.X_OK):
                programs[kind] = AstraSimProgram(kind, path, source, _version(path))
                break
    return programs


def locate(kind: str, environment: Mapping[str, str] = os.environ) -> AstraSimProgram:
    """Return the ASTRA-sim program of *kind*; raises `BackendUnavailable` with the places searched."""
    if kind not in KINDS:
        raise ConfigError(f"There is no ASTRA-sim backend '{kind}'{did_you_mean(kind, KINDS)}")
    programs = find_astra_sim(environment)
    if kind not in programs:
        raise BackendUnavailable(
            f"ASTRA-sim's program for 'astra-sim:{kind}' ({min(_NAMES[kind], key=len)}) "
            f"{_why_not(kind, environment)}, "
            "or use the backend 'analytical-unaware', which needs no other program."
        )
    return programs[kind]


def _why_not(kind: str, variables: Mapping[str, str]) -> str:
    """Explain why no ASTRA-sim program of *kind* can be used, and how to fix it."""
    settings = _settings(variables)
    for path, source in _candidates(kind, settings, variables):
        if path.is_file():
            return f"is {path}, of {source}, and may not be executed; allow it with 'chmod +x {path}'"
    if kind in settings:
        return f"is not at {settings[kind]}, where backends.yml says it is; correct the path there"
    for home, source in _homes(settings, variables):
        if not home.is_dir():
            return f"was not found: there is no folder {home}, which {source} names; correct it there"
        return f"was not found in the checkout {home}, which {source} names, nor on PATH; build it there"
    return (
        "was not found in the checkout named by ASTRA_SIM_HOME nor on PATH; build it and set ASTRA_SIM_HOME "
        "to its folder"
    )


def _settings(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return the ``astra-sim`` part of the user's ``backends.yml``."""
    path, part = read_user_file(ASTRA_SIM, variables)
    keys = dict.fromkeys(("home", *KINDS), string)
    return {} if part is None else read_keys(part, keys, f"{path}: 'astra-sim'")


def _candidates(
    kind: str, settings: Mapping[str, str], variables: Mapping[str, str]
) -> Iterator[tuple[Path, str]]:
    if kind in settings:
        yield Path(settings[kind]).expanduser(), "backends.yml"
    for home, source in _homes(settings, variables):
        for path in _in_checkout(kind, home):
            yield path, source
    for path in _on_path(kind, variables):
        yield path, "PATH"


def _homes(settings: Mapping[str, str], variables: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Yield each configured ASTRA-sim checkout and the setting that names it."""
    homes = ((settings.get("home"), "backends.yml"), (variables.get("ASTRA_SIM_HOME"), "ASTRA_SIM_HOME"))
    for home, source in homes:
        if home:
            yield Path(home).expanduser(), source


def _in_checkout(kind: str, home: Path) -> Iterator[Path]:
    for folder in (*_FOLDERS[kind], "bin", "."):
        yield from _in_folder(kind, home / folder)


def _on_path(kind: str, variables: Mapping[str, str]) -> Iterator[Path]:
    # shutil.which skips files without execute permission, which `_why_not` should mention.
    for folder in variables.get("PATH", os.defpath).split(os.pathsep):
        yield from _in_folder(kind, Path(folder or "."))


def _in_folder(kind: str, folder: Path) -> Iterator[Path]:
    """Yield possible paths of the *kind* program in *folder*; ns-3's file name contains its version."""
    if kind != "ns3":
        yield from (folder / name for name in _NAMES[kind])
        return
    named = {}
    try:
        for path in sorted(folder.glob("ns3.*-AstraSimNetwork*")):
            match = _NS3_NAME.fullmatch(path.name)
            if match:
                named[match[1]] = path
    except OSError:
        return
    yield from (named[name] for name in _NAMES[kind] if name in named)


def _version(path: Path) -> str:
    """Return the commit of the git checkout that contains *path*, without running git."""
    for folder in path.resolve().parents:
        head = folder / ".git" / "HEAD"
        if (folder / "astra-sim").is_dir() and head.is_file():
            try:
                return _commit(head)[:12] or "unknown"
            except (OSError, UnicodeDecodeError):
                break
    return "unknown"


def _commit(head: Path) -> str:
    content = head.read_text(encoding="utf-8").strip()
    if not content.startswith("ref: "):
        return content
    reference = head.parent / content[5:]
    if reference.is_file():
        return reference.read_text(encoding="utf-8").strip()
    packed = head.parent / "packed-refs"
    lines = packed.read_text(encoding="utf-8").splitlines() if packed.is_file() else []
    return next((line.split(" ")[0] for line in lines if line.endswith(" " + content[5:])), "")


_LINES_BETWEEN_QUESTIONS = 10_000


def astra_sim_backend(name: str) -> AstraSimBackend:
    """Return the backend ``astra-sim:KIND``."""
    return AstraSimBackend(name.partition(":")[2])


class AstraSimBackend:
    """Runs the ASTRA-sim program of *kind* (``analytical-unaware``, ``analytical-aware`` or ``ns3``).

    Without *program*, `locate` searches it when a simulation starts. The run is stopped after
    *timeout_s* seconds (default: ``CHAKRASCOPE_BACKEND_TIMEOUT``, or an hour).
    """

    def __init__(
        self, kind: str, program: AstraSimProgram | None = None, timeout_s: float | None = None
    ) -> None:
        self.kind = kind
        self.program = program
        self.timeout_s = timeout_s

    def run(self, experiment: Experiment, progress: Progress | None = None) -> Result:
        """Run ASTRA-sim on *experiment* in a scratch folder and return its result.

        Raises `BackendUnavailable` if the program is missing, `BackendError` with the end of its
        log if it fails, `SimulationStalled` if ranks never finish, `BackendTimeout` and
        `Cancelled`.
        """
        fabric = lasting_fabric(experiment.network) if self.kind == "ns3" else None
        if fabric is not None:
            refuse_endless(experiment, progress)
        try:
            return self._run(experiment, fabric, progress)
        except BackendTimeout as error:
            if fabric is None or not fabric.lossy:
                raise
            raise BackendTimeout(
                f"{error} This network loses packets, and ASTRA-sim's ns-3 never completes a "
                "message that lost its last packet or acknowledgement; the backend 'packet' sends the packet "
                "again."
            ) from error

    def _run(self, experiment: Experiment, fabric: Fabric | None, progress: Progress | None) -> Result:
        program = self.program or locate(self.kind)
        timeout_s = self.timeout_s if self.timeout_s is not None else backend_timeout_s()
        trace = count_nodes(experiment) <= TRACE_LIMIT_NODES
        log = AstraSimLog(experiment.workload.num_ranks)

        def may_continue() -> bool:
            return progress is None or progress(log.now_ns, len(log.ranks))

        try:
            with scratch_folder() as folder:
                options = write_inputs(experiment, self.kind, folder, trace=trace)
                status, tail = run_guarded(
                    [str(program.path.resolve()), *options],
                    folder,
                    name=f"ASTRA-sim ({program.path.name})",
                    timeout_s=timeout_s,
                    on_line=log.feed,
                    may_continue=may_continue,
                )
                require_space(folder)
                if status != 0:
                    raise _failure(program, log, status, tail)
                lines = _until_stopped(log_lines(folder / "log"), may_continue) if trace else None
                result = conclude(
                    experiment,
                    log,
                    None if lines is None else read_trace(lines),
                    tail,
                    who=f"The program {program.path}",
                    versions={"astra-sim": program.version, "program": program.path.name},
                    warnings=[],
                )
                return result if fabric is None else with_packets(result, fabric, log, folder)
        except OSError as error:
            raise BackendError(
                f"ASTRA-sim's scratch folder cannot be used ({error}); free some disk space or set TMPDIR to "
                "another folder."
            ) from error


def _until_stopped(lines: Iterable[str], may_continue: Callable[[], bool]) -> Iterator[str]:
    """Yield *lines*, calling *may_continue* now and then because a long log takes seconds to read."""
    for number, line in enumerate(lines):
        if number % _LINES_BETWEEN_QUESTIONS == 0 and not may_continue():
            raise Cancelled("ASTRA-sim had ended when the run was cancelled; its results are discarded.")
        yield line


def _failure(program: AstraSimProgram, log: AstraSimLog, status: int, tail: list[str]) -> BackendError:
    reasons = log.failures or tail[-SHOWN_LINES:]
    reported = f" Its last output: {' | '.join(reasons)}." if reasons else " It printed nothing."
    return BackendError(
        f"ASTRA-sim failed: {describe_exit(status)} ({program.path}).{reported} Check what it names, "
        "or run the same experiment with our 'analytical-unaware' backend, whose errors name the cause."
    )


_MAX_WORKLOAD_BYTES = 128 << 20
_TIME = (1980, 1, 1, 0, 0, 0)  # fixed time, so that equal experiments give equal bytes
_README = """\
The inputs of one simulation, as ASTRA-sim 2 reads them; start it in this folder:

    {program} {options}

{workload}
The same with Chakrascope:

    {command}
"""
_WITH_WORKLOAD = "workload/ holds one Chakra graph per rank.\n"
_WITHOUT_WORKLOAD = (
    "The graphs of the {ranks} ranks are not here, as they have {size}; put them into workload/ as "
    "workload.RANK.et.\n"
)


def experiment_archive(experiment: Experiment, command: str) -> bytes:
    """Return a zip with the files of *experiment* and a README with the command that starts ASTRA-sim.

    *command* is the equivalent Chakrascope command. Graphs of more than 128 MiB in total are left
    out. Raises `ConfigError` if a file of the experiment is missing.
    """
    size = _workload_bytes(experiment)
    fits = size <= _MAX_WORKLOAD_BYTES
    program, kind = nearest_program(fabric=about_backend(experiment.backend).fabric)
    buffer = BytesIO()
    with tempfile.TemporaryDirectory(prefix="chakrascope-") as name:
        folder = Path(name)
        options = write_inputs(experiment, kind, folder, trace=False)
        workload = _WITH_WORKLOAD if fits else _WITHOUT_WORKLOAD
        readme = _README.format(
            program=program,
            options=shlex.join(options),
            workload=workload.format(ranks=experiment.workload.num_ranks, size=bytes_text(size)),
            command=command,
        )
        (folder / "README.txt").write_text(readme, encoding="utf-8")
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(folder.rglob("*")):
                inner = file.relative_to(folder)
                wanted = inner.parts[0] != "workload" or (fits and not inner.name.startswith("program"))
                if file.is_file() and wanted:
                    entry = zipfile.ZipInfo(inner.as_posix(), _TIME)
                    entry.compress_type = zipfile.ZIP_DEFLATED
                    archive.writestr(entry, file.read_bytes())
    return buffer.getvalue()


def _workload_bytes(experiment: Experiment) -> int:
    source = experiment.workload
    sizes = [
        len(program) if isinstance(program, bytes) else Path(program).stat().st_size
        for program in source.programs
    ]
    return sum(sizes[index] for index in source.program_of_rank)
