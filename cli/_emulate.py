"""``chakrascope emulate``: run a workload's messages over a real network and save the measurements."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import BackendUnavailable, UsageError
from ..support import count_text, duration_text, parse_duration, share_text
from ._output import console, error_console, format_option, print_frame, print_json, print_next
from ._run import (
    algorithm_choices,
    astra_sim_options,
    new_study,
    print_runs,
    saved_workload,
    simulate,
    simulate_study,
)
from ._target import Target, choose_network

if TYPE_CHECKING:
    from ..runner import Result


@click.command("emulate")
@click.argument("study_folder", metavar="[STUDY]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--workload", metavar="PREFIX", help="Graphs PREFIX.{rank}.et, or the name of a workload in STUDY."
)
@click.option(
    "-o", "--output", "output", metavar="STUDY", help="Study in which the workload and the run are stored."
)
@click.option(
    "--hosts",
    "hosts",
    metavar="FILE",
    help="YAML file of the hosts, each of which runs `chakrascope emulate-agent`.",
)
@click.option(
    "--namespaces",
    metavar="N",
    type=click.IntRange(min=1),
    help="Emulate N hosts as network namespaces of this machine; needs root.",
)
@click.option("--link", metavar="RATE", help="Link rate of each namespace, such as 400Mbit.")
@click.option(
    "--slow",
    multiple=True,
    metavar="HOST=RATE",
    help="Link rate of one namespace, if it differs from --link. Repeatable.",
)
@click.option("--nics", type=click.IntRange(min=1), help="Number of network interfaces of each namespace.")
@click.option(
    "--transport", help="Transport of the messages: tcp, gloo or the name of a plug-in. [default: tcp]"
)
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    help="Number of repetitions; the result is the repetition with the median makespan. [default: 1]",
)
@click.option("--label", default="", help="Label for the run in STUDY.")
@click.option("--limit", metavar="TIME", help="Time limit of the emulation. [default: an hour]")
@click.option("--system", default="default", show_default=True, help="System JSON file or preset.")
@click.option(
    "--network",
    help="Network YAML file or preset that defines the network dimensions. [default: one switch]",
)
@astra_sim_options
@format_option
def emulate_command(
    *,
    study_folder: Path | None,
    workload: str | None,
    output: str | None,
    hosts: str | None,
    namespaces: int | None,
    link: str | None,
    slow: tuple[str, ...],
    nics: int | None,
    transport: str | None,
    repeat: int | None,
    label: str,
    limit: str | None,
    system: str,
    network: str | None,
    groups: str | None,
    algorithms: tuple[str, ...],
    num_queues_per_dim: int,
    rendezvous_protocol: bool,
    output_format: str,
) -> None:
    """Send the messages of STUDY's newest workload, or of --workload, over a real network without GPUs.

    Instead of computing, ranks sleep. They send the messages that a simulation of the collectives would
    send. Ranks run on --hosts, in --namespaces of this machine, or by default on its loopback interface.
    """
    from ..runner import EMULATION, Study

    common = {"transport": transport, "repeat": repeat, "limit": limit}
    shaped = {"link": link, "nics": nics}
    place = _place(hosts, namespaces, shaped, slow, common)
    folder = _folder(study_folder, output, workload)
    target = Target(
        system=system,
        network=choose_network(network, None),
        memory=None,
        backends=(f"{EMULATION}{place}",),
        options={
            "num_queues_per_dim": num_queues_per_dim,
            "rendezvous": rendezvous_protocol,
            "algorithms": algorithm_choices(algorithms),
        },
    )
    if folder is None:
        results = [result for _, result in simulate(target.experiments(str(workload), groups))]
        _print(results, [], output_format)
        return
    target.check()
    with new_study(folder) if workload is not None else nullcontext(Study.open(folder)) as study:
        runs = simulate_study(study, target, saved_workload(study, workload, groups, target), label)
    _print([result for _, result in runs], runs, output_format)
    if output_format == "table":
        print_next("summary", study.path, "--run", runs[-1][0])


def _folder(study: Path | None, output: str | None, workload: str | None) -> Path | None:
    if study is not None and output is not None:
        raise UsageError("STUDY and --output both name a study. Next: leave one of them out.")
    if study is None and workload is None:
        raise UsageError(
            "There is nothing to emulate: give a STUDY folder, --workload PREFIX, or both to store the run."
        )
    return study if output is None else Path(output)


def _place(
    hosts: str | None,
    namespaces: int | None,
    shaped: dict[str, str | int | None],
    slow: Sequence[str],
    common: dict[str, str | int | None],
) -> str:
    """Return the place in the options as a backend name writes it.

    Raises `UsageError` for options that contradict each other.
    """
    from ..runner.emulation import missing_requirements

    options = [f"{key}={value}" for key, value in common.items() if value is not None]
    if hosts is not None:
        if namespaces is not None or slow or any(value is not None for value in shaped.values()):
            raise UsageError(
                "--hosts uses a real network; leave out --namespaces, --link, --slow and --nics."
            )
        return ",".join([hosts, *options])
    options += [f"{key}={value}" for key, value in shaped.items() if value is not None]
    for text in slow:
        host, equals, rate = text.partition("=")
        if not equals:
            raise UsageError(f"--slow must be HOST=RATE, such as 2=100Mbit, not '{text}'.")
        options.append(f"slow.{host}={rate}")
    if namespaces is not None:
        return ",".join([f"namespaces={namespaces}", *options])
    if slow or any(value is not None for value in shaped.values()):
        raise UsageError("--link, --slow and --nics need --namespaces N.")
    lacking = missing_requirements()
    hint = f"which need {' and '.join(lacking)}" if lacking else "such as --namespaces 4 --link 400Mbit"
    error_console.print_text(
        "The messages use this machine's loopback interface. To use a separate network, add --namespaces "
        f"({hint}) or --hosts.",
        "dim",
    )
    return ",".join(["loopback", *options])


def _print(results: list[Result], runs: list[tuple[str, Result]], output_format: str) -> None:
    if output_format == "json":
        print_json(results[0].to_json())
        return
    if output_format == "csv":
        print_frame(results[0].ranks, "csv")
        return
    print_runs(runs or [("", result) for result in results], title="Measured step")
    for result in results:
        _print_measured(result)


def _print_measured(result: Result) -> None:
    """Print the hosts with their clock errors, and how much the repetitions vary."""
    import pandas as pd

    facts = result.provenance["emulation"]
    hosts = facts["hosts"]
    rows = [
        {
            "host": host["host"],
            "ranks": ", ".join(map(str, host["ranks"])),
            "clock_offset_ns": host["clock_offset_ns"],
            "clock_error_ns": host["clock_error_ns"],
        }
        for host in hosts
    ]
    print_frame(pd.DataFrame(rows), "table", title=f"Hosts ({facts['transport']})", limit=32)
    repetitions = facts["repetitions"]
    count = len(repetitions["makespans_ns"])
    if count > 1:
        console.print_text(
            f"{count_text(count, 'repetition')}: median {duration_text(round(repetitions['median_ns']))}, "
            f"{share_text(repetitions['spread'])} between the fastest and the slowest."
        )


@click.command("emulate-agent")
@click.option(
    "--join",
    "address",
    metavar="HOST:PORT",
    required=True,
    help="Address on which `chakrascope emulate` listens.",
)
@click.option(
    "--name", help="Name of this host in the hosts file of `chakrascope emulate`. [default: the host name]"
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with the shared token. [default: $CHAKRASCOPE_EMULATION_TOKEN]",
)
@click.option(
    "--wait", default="60s", show_default=True, help="Time to wait for `chakrascope emulate` to listen."
)
@click.option("--limit", default="3600s", show_default=True, help="Time limit for the ranks on this host.")
@click.option(
    "--keep",
    is_flag=True,
    help="Join further emulations, until none starts within --wait.",
)
def emulate_agent_command(
    *, address: str, name: str | None, token_file: Path | None, wait: str, limit: str, keep: bool
) -> None:
    """Run the ranks of this host for `chakrascope emulate --hosts`.

    Start one agent on each host, for example by ssh, srun or pdsh.

    The agent accepts commands only with the token, and runs only the workload that it receives.
    """
    from ..runner.emulation import join, parse_address, read_token

    place = parse_address(address, "--join")
    token = read_token(token_file)
    host = name or socket.gethostname()
    wait_s, limit_s = (float(parse_duration(text, bare="s")) / 1e9 for text in (wait, limit))
    served = 0
    while join(place, token, {host: None}, wait_s=wait_s, limit_s=limit_s):
        served += 1
        console.print_text(f"{host} served the emulation at {address}.")
        if not keep:
            return
    if not served:
        raise BackendUnavailable(
            f"No coordinator listened at {address} for {wait}. Next: start `chakrascope emulate --hosts "
            "FILE` with this address as 'listen' in FILE, and check that this host can reach it."
        )
