"""``chakrascope convert``: convert a captured trace set to Chakra graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from ..support import count_text
from ._output import (
    cluster_option,
    console,
    conversion_cache,
    counter,
    print_next,
    print_remarks,
    print_rows,
    stage,
)
from ._studies import are_logs, holds_traces

if TYPE_CHECKING:
    from ..converter import Workload
    from ..runner import Study


Step = int | str
_SIDES = ("host", "device", "linked", "capture")


def parse_step(_context: click.Context, _parameter: click.Parameter, text: str) -> Step:
    """Parse --step: a number, ``median``, ``all``, or the name of an annotation."""
    from ..converter.building import step_choice

    return step_choice(text)


capture_option = click.option(
    "--capture-trace",
    metavar="FILE|FOLDER",
    help="Traces recorded while the job captured its CUDA or HIP graphs. [default: the folder capture_traces "
    "next to the traces]",
)
step_option = click.option(
    "--step",
    default="median",
    show_default=True,
    callback=parse_step,
    help="Captured step to convert: median, all, a step number, or an annotation: NAME, NAME#3 (the "
    "fourth occurrence of NAME), or a glob.",
)


@dataclass(frozen=True)
class Where:
    """The place where a conversion runs: a Dask *cluster*, or a number of processes (*workers*).

    With *workers* None, the size of the files decides.
    """

    cluster: str | None = None
    workers: int | None = None


_HERE = Where()


def convert_latest(
    study: Study, step: Step, *, rescale_host: bool = False, where: Where = _HERE
) -> tuple[Workload, Path]:
    """Convert the newest trace set of *study*; return the workload and its PREFIX."""
    from ..converter import Workload, convert

    trace_dir = study.latest_trace_set()
    title = f"converted {trace_dir.name} to Chakra graphs"
    with conversion_cache(study.path) as finished, stage(title) as status:
        workload = convert(
            trace_dir,
            step=step,
            rescale_host=rescale_host,
            progress=counter(status, "ranks"),
            jobs=where.workers,
            cluster=where.cluster,
            finished=finished,
        )
        saved = study.keep_converted(workload, trace_dir.name)
        if finished.is_used:
            workload = Workload.load(saved)
    return workload, saved


def convert_foreign(
    study_folder: Path | None, files: dict[str, str | None], prefix: str | None, step: Step, where: Where
) -> tuple[Workload, Path]:
    """Convert *files* of other tools to *prefix*, or into a study, which is created if missing.

    *files* maps kinds of traces (host, device, linked, capture) to patterns of file names. Returns
    the workload and its PREFIX.
    """
    from ..converter import Workload, convert_files

    target = study_folder or Path(str(prefix))
    with conversion_cache(target) as finished, stage("converted to Chakra graphs") as status:
        workload = convert_files(
            files["host"],
            files["device"],
            prefix,
            linked_trace=files["linked"],
            capture_trace=files["capture"],
            step=step,
            progress=counter(status, "ranks"),
            jobs=where.workers,
            cluster=where.cluster,
            finished=finished,
        )
        saved = _save(workload, study_folder, prefix)
        if finished.is_used:
            workload = Workload.load(saved)
    return workload, saved


def convert_production_logs(
    study_folder: Path | None, logs: Sequence[str], prefix: str | None, options: dict[str, bool]
) -> tuple[Workload, Path]:
    """Convert production *logs* to *prefix* or into a study; returns what `convert_foreign` returns."""
    from ..converter import convert_logs

    with stage("converted the logs to Chakra graphs"):
        workload = convert_logs(logs, prefix, **options)
    return workload, _save(workload, study_folder, prefix)


def _save(workload: Workload, study_folder: Path | None, prefix: str | None) -> Path:
    """Save *workload* in the study, if there is one, or at *prefix*; return its PREFIX."""
    if study_folder is None:
        return Path(str(prefix))
    from ..runner import Study

    study = Study.create(study_folder)
    return study.keep_converted(workload, str(workload.metadata["trace_set"]))


def print_accounting(workload: Workload) -> None:
    """Print how much of each rank's measured step the graph explains, and the profiler's overhead."""
    from ..converter.building import profiler_overhead

    accounting = workload.metadata.get("accounting", {})
    if accounting:
        # Some ranks lack a figure. Rows that are 0 on all ranks are left out.
        names = list(dict.fromkeys(name for figures in accounting.values() for name in figures))
        names = [name for name in names if any(figures.get(name) for figures in accounting.values())]
        rows = [
            {"rank": int(rank), **{name: figures.get(name, 0) for name in names}}
            for rank, figures in accounting.items()
        ]
        print_rows(rows, title="Parts of the measured step in the graph")
    overhead = profiler_overhead(workload.metadata)
    if overhead is not None and not any(overhead.text in note for note in _assumptions(workload)):
        console.print_text(f"{overhead.text[0].upper()}{overhead.text[1:]}.")


def _assumptions(workload: Workload) -> list[str]:
    return [str(note) for note in workload.metadata.get("assumptions", [])]


def _study_and_logs(targets: Sequence[str], prefix: str | None) -> tuple[Path | None, Sequence[str]]:
    """Return the study and the logs among *targets*.

    With a PREFIX, all targets are logs. Otherwise, the first target is the study.
    """
    from ..runner import Study

    if prefix is not None:
        if targets and Study.is_study(targets[0]):
            raise UsageError("Give a STUDY to keep the graphs in, or -o PREFIX for separate files.")
        _refuse_traces(targets)
        return None, targets
    if not targets:
        raise UsageError("Give a STUDY to keep the graphs in, or -o PREFIX for separate files.")
    logs = Path(targets[0]).is_file() or are_logs(targets)
    if logs and not Study.is_study(targets[0]):
        raise UsageError(
            f"{targets[0]} is not a study. Next: `chakrascope summary {targets[0]}` prints "
            "what bounds the step; to keep the graphs, name a STUDY first, or add -o PREFIX."
        )
    _refuse_traces(targets[1:])
    return Path(targets[0]), targets[1:]


def _refuse_traces(logs: Sequence[str]) -> None:
    """Raise `UsageError` if one of the *logs* is a folder with traces."""
    for target in logs:
        if Path(target).is_dir() and not are_logs([target]) and holds_traces(Path(target)):
            raise UsageError(
                f"{target} contains traces, but LOGS are production logs. Next: chakrascope import STUDY "
                f"{target}"
            )


def _refuse_with_logs(options: dict[str, Any], step: Step) -> None:
    """Raise `UsageError` for an option that means nothing for production logs."""
    given = [f"{name}-trace" if name in _SIDES else name for name, value in options.items() if value]
    if step != "median":
        given.append("step")
    if given:
        raise UsageError(
            f"--{given[0]} does not apply to production logs. Next: leave out the option or the logs."
        )


@click.command("convert")
@click.argument("targets", metavar="[STUDY] [LOGS]...", nargs=-1)
@click.option(
    "--device-trace",
    metavar="PATTERN",
    help="Kineto traces, such as rank{rank}.pt.trace.json.gz, or a folder or archive of Kineto traces.",
)
@click.option(
    "--host-trace",
    metavar="PATTERN",
    help="PyTorch execution traces (host traces) of the same steps as the Kineto traces, such as "
    "et_{rank}.json.gz.",
)
@click.option(
    "--linked-trace",
    metavar="PATTERN",
    help="Traces written by mlc-chakra's trace linker, instead of device and host traces.",
)
@capture_option
@click.option(
    "-o",
    "--output",
    "prefix",
    metavar="PREFIX",
    help="Prefix of the graph files to write, if no STUDY is given.",
)
@step_option
@click.option(
    "--rescale-host",
    is_flag=True,
    help="Remove the profiler's overhead: scale host times by the ratio of the step time without the "
    "profiler to the step time with it.",
)
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="Number of worker processes, or of jobs on a batch system (--cluster). [default: one "
    "process per CPU for large files; 1 job]",
)
@cluster_option
@click.option(
    "--back-to-back",
    is_flag=True,
    help="Convert only the collectives of LOGS, without the time between collectives.",
)
@click.option(
    "--cut-unfinished",
    is_flag=True,
    help="Leave out incomplete collectives, which logs of a running job contain.",
)
def convert_command(
    *,
    targets: tuple[str, ...],
    device_trace: str | None,
    host_trace: str | None,
    linked_trace: str | None,
    capture_trace: str | None,
    prefix: str | None,
    step: Step,
    rescale_host: bool,
    workers: int | None,
    cluster: str | None,
    **of_logs: bool,
) -> None:
    """Convert the newest trace set of STUDY to one Chakra graph per rank (.et files for ASTRA-sim).

    The options --device-trace, --host-trace and --linked-trace convert traces from other tools; {rank} in a
    file name stands for the rank. Kineto traces are sufficient; host traces add costs and data dependencies.
    The graphs are stored in STUDY, which is created if needed, or in the files PREFIX.{rank}.et (-o).

    LOGS are production logs recorded without a profiler, such as dumps of PyTorch's flight recorder: files,
    folders or archives. `convert` converts the collectives in LOGS and, if LOGS have timestamps, the time
    between collectives.
    """
    from ..runner import Study

    study_folder, logs = _study_and_logs(targets, prefix)
    where = Where(cluster, workers)
    files = {"host": host_trace, "device": device_trace, "linked": linked_trace, "capture": capture_trace}
    if study_folder is not None and (logs or any(files.values())):
        Study.check_place(study_folder)
    if logs:
        _refuse_with_logs(
            {**files, "rescale-host": rescale_host, "workers": workers, "cluster": cluster}, step
        )
        workload, saved = convert_production_logs(study_folder, logs, prefix, of_logs)
    elif any(of_logs.values()):
        raise UsageError(
            "--back-to-back and --cut-unfinished apply only to production logs. Next: name the logs, or "
            "leave these options out."
        )
    elif any(files.values()):
        if not any(files[side] for side in ("host", "device", "linked")):
            raise UsageError(
                "--capture-trace needs the trace in which the graphs were launched. Next: add it with "
                "--device-trace."
            )
        if rescale_host:
            raise UsageError(
                "--rescale-host needs steps that were timed without a profiler, which traces from other "
                "tools do not have. Next: capture with 'chakrascope trace', or leave out --rescale-host."
            )
        workload, saved = convert_foreign(study_folder, files, prefix, step, where)
    elif study_folder is None:
        raise UsageError("-o PREFIX needs trace files. Next: name them with --device-trace.")
    else:
        study = Study.open(study_folder)
        workload, saved = convert_latest(study, step, rescale_host=rescale_host, where=where)
    print_accounting(workload)
    print_remarks("Assumed", _assumptions(workload))
    nodes = sum(graph.num_nodes for graph in workload.graphs)
    console.print_text(f"{count_text(workload.num_ranks, 'rank')}, {count_text(nodes, 'node')}.")
    own = ["--workload-configuration", str(saved)]
    target = own if study_folder is None else [str(study_folder), "--workload", saved.parent.name]
    print_next("run", *target, then="--network PRESET")
