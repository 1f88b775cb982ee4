"""``chakrascope run``: simulate a study's workload, or any Chakra workload with ASTRA-sim's own options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import pandas as pd

from ..errors import UsageError
from ..runner import JobStore, Result, Study, get_backend, prepare, simulate
from ._output import console, format_duration, format_option, print_frame, print_json, stage

__all__ = ["DEFAULT_BACKENDS", "Target", "run_command", "simulate_study", "target_options"]

Command = TypeVar("Command", bound=Callable[..., Any])

DEFAULT_BACKENDS = ("analytical-unaware",)


@dataclass(frozen=True, kw_only=True)
class Target:
    """The cluster to simulate: a file or preset name each, and the backends to ask."""

    system: str
    network: str | None
    memory: str | None
    backends: tuple[str, ...]


def target_options(command: Command) -> Command:
    """Add the options that name the cluster and the backends."""
    for decorate in (
        click.option(
            "--backend", "backends", multiple=True, help="May be repeated. [default: analytical-unaware]"
        ),
        click.option(
            "--memory", "--remote-memory-configuration", "memory", help="Memory JSON file or preset."
        ),
        click.option(
            "--system",
            "--system-configuration",
            "system",
            default="default",
            show_default=True,
            help="System JSON file or preset.",
        ),
        click.option("--network", "--network-configuration", "network", help="Network YAML file or preset."),
    ):
        command = decorate(command)
    return command


def simulate_study(study: Study, target: Target) -> list[tuple[str, Result]]:
    """Simulate the newest workload of *study* once a backend; return run ids with results."""
    prefix = study.workload_prefix()
    runs = []
    for backend in target.backends:
        experiment = prepare(prefix, target.system, target.network, target.memory, backend=backend)
        with stage(f"{backend}: {experiment.workload.num_ranks} ranks on {experiment.network.name}"):
            result = get_backend(backend).run(experiment)
            runs.append((study.add_run(experiment, result), result))
    return runs


def submit_study(study: Study, target: Target) -> None:
    """Leave the simulations to jobs of *study*, and say where to look."""
    store = JobStore(study)
    for backend in target.backends:
        experiment = prepare(
            study.workload_prefix(), target.system, target.network, target.memory, backend=backend
        )
        console.print(f"Job {store.submit(experiment).id}: {backend} on {experiment.network.name}")
    console.print(f"Next: chakrascope jobs {study.path}")


def print_runs(runs: list[tuple[str, Result]]) -> None:
    """Print one line a run."""
    rows = [
        {
            "run": run_id,
            "backend": result.backend,
            "ranks": len(result.ranks),
            "makespan_ns": result.makespan_ns,
            "exposed_comm_ns": int(result.ranks["exposed_comm_ns"].max()),
        }
        for run_id, result in runs
    ]
    print_frame(pd.DataFrame(rows), "table", title="Simulated step")


@click.command("run")
@click.argument("study_folder", metavar="[STUDY]", required=False, type=click.Path(path_type=Path))
@target_options
@click.option(
    "--workload-configuration",
    "workload",
    metavar="PREFIX",
    help="Simulate PREFIX.{rank}.et instead of a study.",
)
@click.option("--comm-group-configuration", "groups", help="Communicator groups JSON for PREFIX.")
@click.option(
    "--num-queues-per-dim", default=1, show_default=True, help="Logical queues a network dimension."
)
@click.option("--injection-scale", default=1.0, show_default=True, help="Scales the system's endpoint delay.")
@click.option("--rendezvous-protocol", is_flag=True, flag_value=True, help="Hand-shake before every message.")
@click.option("--queue", is_flag=True, help="Do not wait: run in the background, see `chakrascope jobs`.")
@format_option
def run_command(
    *,
    study_folder: Path | None,
    system: str,
    network: str | None,
    memory: str | None,
    backends: tuple[str, ...],
    workload: str | None,
    groups: str | None,
    num_queues_per_dim: int,
    injection_scale: float,
    rendezvous_protocol: bool,
    queue: bool,
    output_format: str,
) -> None:
    """Simulate STUDY's newest workload, or a Chakra workload given with ASTRA-sim's option names."""
    chosen = backends or DEFAULT_BACKENDS
    if network is None and set(chosen) != {"replay"}:
        raise UsageError(
            "no network given. Next: add --network PRESET_OR_FILE; `chakrascope presets` lists the presets."
        )
    if study_folder is not None and workload is None:
        target = Target(system=system, network=network, memory=memory, backends=chosen)
        if queue:
            submit_study(Study.open(study_folder), target)
            return
        runs = simulate_study(Study.open(study_folder), target)
        results = [result for _, result in runs]
        if output_format == "table":
            print_runs(runs)
    elif queue:
        raise UsageError("--queue needs a STUDY, where the job and its run are kept.")
    elif workload is not None and study_folder is None:
        results = [
            simulate(
                workload,
                system,
                network,
                memory,
                groups,
                backend,
                num_queues_per_dim=num_queues_per_dim,
                injection_scale=injection_scale,
                rendezvous=rendezvous_protocol,
            )
            for backend in chosen
        ]
    else:
        raise UsageError("give either a STUDY folder or --workload-configuration=PREFIX, one of the two.")
    print_results(results, output_format, ranks=workload is not None)


def print_results(results: list[Result], output_format: str, *, ranks: bool) -> None:
    """Print results whole as JSON, or their per-rank tables."""
    if output_format == "json":
        print_json(results[0].to_json() if len(results) == 1 else [result.to_json() for result in results])
        return
    for result in results:
        if output_format == "csv":
            print_frame(result.ranks.assign(backend=result.backend), "csv")
        elif ranks:
            console.print(f"{result.backend}: makespan {format_duration(result.makespan_ns)}")
            print_frame(result.ranks, "table", limit=32)
