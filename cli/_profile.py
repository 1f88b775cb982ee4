"""``chakrascope profile``: capture, convert and simulate a training command, and print its critical path."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import UsageError
from ._convert import convert_latest, print_accounting
from ._critical_path import print_critical_path
from ._output import console, print_next
from ._run import print_runs, print_subject, simulate_study
from ._target import Target, target_options
from ._trace import capture_into, capture_options, study_option


@click.command("profile", context_settings={"ignore_unknown_options": True})
@study_option
@target_options
@capture_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def profile_command(
    *,
    study_folder: Path,
    machine_name: str | None,
    system: str,
    network: str | None,
    logical: str | None,
    memory: str | None,
    backends: tuple[str, ...],
    link_default: tuple[str, ...],
    failed: tuple[str, ...],
    warmup: int,
    steps: int,
    stacks: bool,
    fake_world: int,
    command: tuple[str, ...],
) -> int:
    """Capture COMMAND, convert and simulate the captured step, and print what bounds the step.

    Without --on and --network, the captured step is replayed with its measured times.
    """
    from ..runner import REPLAY, Study, about_backend
    from ..runner.analysis import analyse_run

    if steps == 0:
        raise UsageError(
            "--steps 0 records only step times, which cannot be simulated. Next: `chakrascope trace --steps "
            "0`, then `chakrascope diagnose`."
        )
    simulated = network is not None or machine_name is not None
    if not simulated and any(about_backend(name).needs_network for name in backends):
        raise UsageError("--backend needs a cluster. Next: add --on 64xh100, or --network PRESET_OR_FILE.")
    target = Target.of_options(
        machine_name,
        system=system,
        network=network,
        memory=memory,
        logical=logical,
        link_default=link_default,
        failed=failed,
        backends=backends or (() if simulated else (REPLAY,)),
    )
    target.check()
    study = Study.create(study_folder)
    window = {"warmup": warmup, "steps": steps, "fake_world": fake_world}
    trace_set = capture_into(study, command, **window, stacks=stacks)
    workload, _ = convert_latest(study, "median")
    print_accounting(workload)
    runs = simulate_study(study, target)
    if simulated:
        print_subject(study, target, runs[-1][0])
    print_runs(runs, remarks=False)
    run_id, _ = runs[-1]
    print_critical_path(analyse_run(study, run_id).summary)
    console.print()
    print_next("view", study_folder, "--run", run_id)
    return trace_set.exit_code
