"""Write all of ASTRA-sim's inputs for an experiment into one zip file."""

from __future__ import annotations

import shlex
import tempfile
import zipfile
from io import BytesIO
from pathlib import Path

from ...support import bytes_text
from .._experiment import Experiment
from .._traits import about_backend
from ..backends import write_inputs
from ..backends.astra_sim import nearest_program

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
