"""``chakrascope run``: simulate a study's workload, or any Chakra workload with ASTRA-sim's option names."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import ChakrascopeError, UsageError
from ..runner import about_backend, backends_that
from ..support import count_text, duration_text
from ._each_step import print_each_step
from ._options import Choice, joined
from ._output import (
    clock,
    console,
    error_console,
    format_option,
    print_frame,
    print_json,
    print_next,
    print_remarks,
    print_rows,
    stage,
)
from ._target import Target, target_options

if TYPE_CHECKING:
    from ..runner import Experiment, Result, Study

# Distinct programs from which the command explains why the simulation takes long.
_MANY_PROGRAMS = 256


@contextmanager
def new_study(folder: Path) -> Iterator[Study]:
    """Open the study at *folder*, creating it if missing, for the block.

    If the block raises a `ChakrascopeError`, a new study without runs, sweeps and jobs, which holds
    only copies of workloads, is removed, so that a misspelt preset leaves nothing behind.
    """
    from ..runner import Study

    known, existed = Study.is_study(folder), folder.exists()
    study = Study.create(folder)
    try:
        yield study
    except ChakrascopeError:
        if not known and not any((study.runs(), study.sweeps_dir.exists(), study.jobs_dir.exists())):
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if not existed:
                folder.rmdir()
        raise


astra_sim_options = joined(
    click.option(
        "--comm-group-configuration", "groups", help="JSON file of the communicator groups of PREFIX."
    ),
    click.option(
        "--algorithm",
        "algorithms",
        multiple=True,
        metavar="COLLECTIVE=NAME",
        help="Program (MSCCL XML or MSCCL++ plan) or built-in algorithm for a collective, such as "
        "all-reduce=plan.json. Repeatable: the first program that fits the size of the collective is used.",
    ),
    click.option(
        "--num-queues-per-dim",
        default=1,
        show_default=True,
        help="Number of logical queues per network dimension.",
    ),
    click.option(
        "--rendezvous-protocol",
        is_flag=True,
        flag_value=True,
        help="Use the rendezvous protocol: exchange a handshake before every message.",
    ),
)
machine_option = click.option(
    "--machine",
    metavar="NAME",
    help="GPU that --backend gpu simulates: a built-in machine (a100, generic, h100, mi300x) or a "
    "YAML file. [default: h100]",
)


def algorithm_choices(texts: Sequence[str]) -> dict[str, list[str]]:
    """Parse --algorithm to values by collective; raises `UsageError` for one without ``=``."""
    chosen: dict[str, list[str]] = {}
    for text in texts:
        collective, sign, name = text.partition("=")
        if not sign or not name:
            raise UsageError(f"--algorithm {text}: the collective is missing. Next: write all-reduce=FILE.")
        chosen.setdefault(collective, []).append(name)
    return chosen


def on_machine(machine: str | None, backends: tuple[str, ...]) -> tuple[str, ...]:
    """Return *backends* with the machine's name, if given, added to ``gpu``.

    A machine file's name becomes absolute, because runs may start in another folder. Raises
    `UsageError` if *backends* lacks ``gpu``.
    """
    if machine is not None and Path(machine).is_file():
        machine = str(Path(machine).resolve())
    return _varied("machine", machine, backends)


def _varied(what: str, value: str | None, backends: tuple[str, ...]) -> tuple[str, ...]:
    """Return *backends* with the variant *value*, if given, added to the backend of the option *what*.

    Raises `UsageError` if the backend of the run is not among the given backends.
    """
    if value is None:
        return backends
    plain = {name for name in backends if about_backend(name).variant == what and ":" not in name}
    if not plain:
        name = backends_that("variant", value=what).strip("'")
        raise UsageError(f"--{what} applies only to --backend {name}. Next: add --backend {name}.")
    return tuple(f"{name}:{value}" if name in plain else name for name in backends)


def simulate(experiments: Iterable[Experiment]) -> Iterator[tuple[Experiment, Result]]:
    """Simulate *experiments*; yield each with its result."""
    from ..runner import get_backend

    for experiment in experiments:
        _print_why_long(experiment)
        ranks = count_text(experiment.workload.num_ranks, "rank")
        with stage(f"{experiment.backend}: {ranks} on {experiment.network.title}") as status:
            backend = get_backend(experiment.backend)
            word = "measured" if getattr(backend, "measures", False) else "simulated"
            result = backend.run(experiment, clock(status, experiment.workload.num_ranks, word))
        yield experiment, result


def _print_why_long(experiment: Experiment) -> None:
    """Print the number of distinct ranks if so many are simulated that the run takes long."""
    source = experiment.workload
    if len(source.programs) < _MANY_PROGRAMS or source.prefix is None:
        return
    error_console.print_text(
        f"{len(source.programs):,} of {source.num_ranks:,} ranks run different programs, so each of "
        "these ranks is simulated separately.",
        "dim",
    )


def simulate_study(
    study: Study, target: Target, workload: Path | None = None, label: str = ""
) -> list[tuple[str, Result]]:
    """Simulate *workload* (default: the newest) on each backend; return run ids and results."""
    prefix = workload or study.workload_prefix()
    _refuse_impossible(target, prefix)
    return [
        (study.add_run(experiment, result, label=label, workload=prefix.parent.name), result)
        for experiment, result in simulate(target.experiments(prefix))
    ]


def submit_study(study: Study, target: Target, prefix: Path) -> None:
    """Queue the simulations as jobs of *study*; print the command that lists them."""
    from ..runner import JobStore

    store = JobStore(study)
    _refuse_impossible(target, prefix)
    for experiment in target.experiments(prefix):
        job = store.submit(experiment, workload=prefix.parent.name)
        console.print_text(f"Job {job.id}: {experiment.backend} on {experiment.network.title}")
    print_next("runs", study.path, "--jobs")


def _refuse_impossible(target: Target, prefix: Path) -> None:
    """Raise the errors of all experiments on several backends before the first one is simulated."""
    if len(target.backends) > 1:
        for _ in target.experiments(prefix):
            pass


def saved_workload(study: Study, workload: str | None, groups: str | None, target: Target) -> Path:
    """Return the PREFIX in *study* of *workload* (default: the newest).

    A name that the study does not have is the PREFIX of graph files, which are imported. If the study has
    other workloads, an imported workload that *target* cannot simulate is removed again.
    """
    if workload is None or (workload in study.workloads() and groups is None):
        return study.workload_prefix(workload)
    if study.workloads() and Path(f"{workload}.0.et").exists():
        next(target.experiments(workload, groups))
    with stage(f"stored {workload} in {study.path}"):
        return study.import_workload(workload, groups)


def print_runs(
    runs: list[tuple[str, Result]], *, remarks: bool = True, title: str = "Simulated step"
) -> None:
    """Print a line per run and, with *remarks*, the runs' assumptions."""
    rows = [
        {
            "run": run_id,
            "backend": result.backend,
            "ranks": len(result.columns("ranks")["rank"]),
            "makespan_ns": result.makespan_ns,
            "exposed_comm_ns": int(result.columns("ranks")["exposed_comm_ns"].max()),
        }
        for run_id, result in runs
    ]
    print_rows(rows, title=title)
    if remarks:
        _print_remarks([result for _, result in runs])


def print_foreign_compute(study: Study, runs: Iterable[str]) -> None:
    """Warn if compute times in *runs* are from another chip than the machine's."""
    from ..runner.analysis import foreign_compute
    from ..runner.prediction import foreign_text

    notes = []
    for run in runs:
        info = study.run_info(run)
        workload = study.workload(info.workload or None)
        notes.append(foreign_compute(study.result(run), workload))
        if about_backend(info.backend).network:
            network, _ = study.run_configs(run)
            network = replace(network, name=info.network)  # stored without a name
            notes.append(foreign_text(workload, network))
    for text in dict.fromkeys(filter(None, notes)):
        error_console.print_text(f"Warning: {text}", "yellow")


def print_subject(study: Study, target: Target, run_id: str) -> None:
    """Print the first line: workload, machine, and where compute times come from."""
    from ..runner.prediction import Origin

    info = study.run_info(run_id)
    ranks = count_text(info.num_ranks, "rank")
    where = info.network
    if target.machine is not None:
        where = target.machine.text(Origin.of(study.workload(info.workload)))
    console.print_text(f"{info.workload}, {ranks}, on {where}", "dim")


def _simulated(study: Study, runs: list[tuple[str, Result]]) -> str:
    """Return the title for the table of *runs*, with the number of training steps in a run."""
    steps = max((study.run_info(run_id).steps for run_id, _ in runs), default=1)
    return "Simulated step" if steps == 1 else f"{count_text(steps, 'step')} in sequence, simulated"


def _print_remarks(results: list[Result]) -> None:
    """Print the distinct warnings and assumptions of all *results*."""
    for word, key in (("Warning", "warnings"), ("Assumed", "assumptions")):
        print_remarks(word, (text for result in results for text in result.provenance.get(key, [])))


@click.command("run")
@click.argument("study_folder", metavar="[STUDY]", required=False, type=click.Path(path_type=Path))
@target_options
@click.option(
    "--workload",
    "--workload-configuration",
    "workload",
    metavar="PREFIX",
    help="Graphs PREFIX.{rank}.et (imported into STUDY), or the name of a workload in STUDY.",
)
@astra_sim_options
@click.option(
    "--injection-scale",
    default=1.0,
    show_default=True,
    help="Factor by which to scale the system's endpoint delay.",
)
@click.option(
    "--semantics",
    type=Choice(["astra-sim", "trace"]),
    help="Order in which ranks execute nodes: astra-sim (as ASTRA-sim does) or trace (one node at a time on "
    "each lane of the trace). [default: trace for captures, astra-sim otherwise]",
)
@click.option(
    "--error", "error", metavar="SHARE", help="Largest error allowed for --backend auto. [default: 2%]"
)
@machine_option
@click.option(
    "--steps",
    type=Choice(["all"]),
    help="Simulate each step of STUDY's newest capture, and print the distribution of step times. No run is "
    "stored.",
)
@click.option(
    "--queue",
    is_flag=True,
    help="Run the simulation in the background; `chakrascope runs STUDY --jobs` lists it.",
)
@click.option(
    "--check",
    "only_check",
    is_flag=True,
    help="Check whether the simulation can run, without running it.",
)
@format_option
def run_command(
    *,
    study_folder: Path | None,
    machine_name: str | None,
    system: str,
    network: str | None,
    logical: str | None,
    memory: str | None,
    backends: tuple[str, ...],
    workload: str | None,
    groups: str | None,
    num_queues_per_dim: int,
    injection_scale: float,
    rendezvous_protocol: bool,
    semantics: str | None,
    algorithms: tuple[str, ...],
    error: str | None,
    machine: str | None,
    steps: str | None,
    queue: bool,
    only_check: bool,
    link_default: tuple[str, ...],
    failed: tuple[str, ...],
    output_format: str,
) -> int:
    """Simulate STUDY's newest workload, or a Chakra workload given with ASTRA-sim's option names.

    With both a STUDY and a workload, the workload and the run are stored in STUDY, which is created if
    needed.
    """
    from ..runner import Study

    target = Target.of_options(
        machine_name,
        system=system,
        network=network,
        memory=memory,
        logical=logical,
        link_default=link_default,
        failed=failed,
        backends=tuple(dict.fromkeys(backends)),
        num_queues_per_dim=num_queues_per_dim,
        injection_scale=injection_scale,
        rendezvous=rendezvous_protocol,
        semantics=semantics,
        algorithms=algorithm_choices(algorithms),
    )
    target = replace(target, backends=on_machine(machine, _varied("error", error, target.backends)))
    _check(target, study_folder, workload, groups, queue=queue)
    if steps is not None:
        if study_folder is None or workload is not None or queue or only_check:
            raise UsageError(
                "--steps all needs a STUDY, and cannot be combined with --workload, --queue or --check."
            )
        print_each_step(
            Study.open(study_folder),
            lambda one: simulate(target.experiments(one)),
            output_format,
        )
        return 0
    if only_check:
        return _only_check(study_folder, workload, target, output_format)
    if study_folder is None:
        experiments = target.experiments(str(workload), groups)
        results = [result for _, result in simulate(experiments)]
        print_results(results, output_format, ranks=True)
        return 0
    target.check()
    kept = new_study(study_folder) if workload is not None else nullcontext(Study.open(study_folder))
    with kept as study:
        prefix = saved_workload(study, workload, groups, target)
        if queue:
            submit_study(study, target, prefix)
            return 0
        runs = simulate_study(study, target, prefix)
    if output_format == "table":
        print_subject(study, target, runs[-1][0])
        if target.machine is None:
            print_foreign_compute(study, [run_id for run_id, _ in runs])
        print_runs(runs, title=_simulated(study, runs))
        print_next("summary", study.path, "--run", runs[-1][0])
    print_results([result for _, result in runs], output_format, ranks=False)
    return 0


def _only_check(study_folder: Path | None, workload: str | None, target: Target, output_format: str) -> int:
    """Print findings about the planned runs without simulating; return 1 for errors, else 0.

    Raises `UsageError` if the workload is not in a study, and the errors of a run that cannot
    start.
    """
    from ..runner import Study
    from ._doctor import print_check

    study = Study.open(study_folder) if study_folder is not None else None
    if study is None or (workload is not None and workload not in study.workloads()):
        raise UsageError(
            "--check needs a STUDY that contains the workload. Next: add the workload with `chakrascope "
            "import`, or leave out --check."
        )
    prefix = study.workload_prefix(workload)
    return print_check(prefix, [*target.experiments(prefix)], output_format)


def _check(
    target: Target, study_folder: Path | None, workload: str | None, groups: str | None, *, queue: bool
) -> None:
    """Raise `UsageError` if options contradict each other."""
    if target.network is None and any(about_backend(name).needs_network for name in target.backends):
        raise UsageError(
            "No cluster is named. Next: add --on 64xh100, or --network PRESET_OR_FILE; `chakrascope network` "
            "lists the presets."
        )
    if study_folder is None and workload is None:
        raise UsageError(
            "There is nothing to simulate: give a STUDY folder, --workload-configuration=PREFIX, or both to "
            "store the run."
        )
    if study_folder is None and queue:
        raise UsageError("--queue needs a STUDY in which the job and its run are stored.")
    if groups is not None and workload is None:
        raise UsageError("--comm-group-configuration needs --workload-configuration=PREFIX.")


def print_results(results: list[Result], output_format: str, *, ranks: bool) -> None:
    """Print *results* as JSON or CSV; with *ranks*, the figures of each rank."""
    if output_format == "json":
        print_json(results[0].to_json() if len(results) == 1 else [result.to_json() for result in results])
        return
    if output_format == "csv":
        import pandas as pd

        print_frame(pd.concat([result.ranks.assign(backend=result.backend) for result in results]), "csv")
        return
    for result in results:
        if ranks:
            console.print_text(f"{result.backend}: makespan {duration_text(result.makespan_ns)}")
            print_frame(result.ranks, "table", limit=32)
            _print_remarks([result])
