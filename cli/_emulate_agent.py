"""``chakrascope emulate-agent``: one host's part in an emulation."""

from __future__ import annotations

import socket
from pathlib import Path

import click

from ..errors import BackendUnavailable
from ..support import parse_duration
from ._output import console

__all__ = ["emulate_agent_command"]


@click.command("emulate-agent")
@click.option(
    "--join", "address", metavar="HOST:PORT", required=True, help="Address on which `emulate` listens."
)
@click.option("--name", help="Name of this host in the hosts file. [default: its host name]")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The secret of `emulate`. [default: the environment's CHAKRASCOPE_EMULATION_TOKEN]",
)
@click.option("--wait", default="60s", show_default=True, help="How long to wait for `emulate`.")
@click.option("--limit", default="3600s", show_default=True, help="End ranks that run for longer.")
@click.option("--keep", is_flag=True, help="Join further emulations, until none starts within --wait.")
def emulate_agent_command(
    *, address: str, name: str | None, token_file: Path | None, wait: str, limit: str, keep: bool
) -> None:
    """Run this host's ranks of `chakrascope emulate --hosts`; started there as jobs are (ssh, srun, pdsh).

    It accepts commands only with the token, and runs only the workload it receives.
    """
    from ..runner.emulation import join, parse_address, read_token

    place = parse_address(address, "--join")
    token = read_token(token_file)
    host = name or socket.gethostname()
    wait_s, limit_s = (float(parse_duration(text, bare="s")) / 1e9 for text in (wait, limit))
    served = 0
    while join(place, token, {host: None}, wait_s=wait_s, limit_s=limit_s):
        served += 1
        console.print(f"{host} served the emulation at {address}.")
        if not keep:
            return
    if not served:
        raise BackendUnavailable(
            f"Nobody listens at {address} within {wait}. Next: start `chakrascope emulate --hosts FILE`, "
            "whose 'listen' is this address, and check that this host can reach it."
        )
