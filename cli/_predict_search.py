"""``chakrascope predict search``: find the best plan for a model on a number of GPUs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError, did_you_mean
from ..support import (
    bytes_text,
    count_text,
    duration_text,
    parse_duration,
    parse_number,
    parse_size,
    share_text,
)
from ._options import Command, joined, on_option
from ._output import (
    cluster_option,
    console,
    format_option,
    print_frame,
    print_json,
    print_next,
    print_remarks,
    print_rows,
    progress_bar,
)
from ._plan_file import plan_file_options, save_plan
from ._run import new_study
from ._target import chip_and_network

if TYPE_CHECKING:
    import pandas as pd

    from ..runner import NetworkConfig, Study
    from ..runner.chips import Chip
    from ..runner.planning import Cluster, Limits, Plans

_SHOWN = 20
_DIGITS = 18
_LIMITS: dict[str, tuple[str, Callable[[str], float]]] = {
    "memory": ("memory_bytes", parse_size),
    "step": ("step_ns", lambda text: int(parse_duration(text, bare="s"))),
    "cost": ("cost", lambda text: float(parse_number(text))),
}


def _only(name: str, key: str, help_text: str) -> Callable[[Command], Command]:
    return click.option(f"--{name}", key, metavar="A,B", callback=_values, help=help_text)


def _values(_ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[Any, ...]:
    """Parse numbers such as ``1,2,4``, or names for schedules and recomputation."""
    items = [item.strip() for item in (value or "").split(",") if item.strip()]
    sizes = [item.isdecimal() and len(item) <= _DIGITS for item in items]
    if param.name in ("schedule", "recompute"):
        return tuple(items)
    if not all(sizes):
        raise click.BadParameter(f"'{value}' is not a list of whole numbers, such as 1,2,4.")
    return tuple(dict.fromkeys(map(int, items)))


_choices = joined(
    _only("tp", "tp", "Tensor-parallel sizes to try. [default: all]"),
    _only("pp", "pp", "Numbers of pipeline stages to try."),
    _only("dp", "dp", "Data-parallel sizes to try."),
    _only("cp", "cp", "Context-parallel sizes to try."),
    _only("ep", "ep", "Expert-parallel sizes to try."),
    _only("expert-tp", "expert_tp", "Ranks per expert to try. [default: --tp; within nodes also 1]"),
    _only("zero", "zero", "ZeRO stages to try; 3 is FSDP."),
    _only("micro-batch", "micro_batch", "Micro-batch sizes to try, in sequences."),
    _only("recompute", "recompute", "Values of --recompute to try: none, selective, full, N, uniform:N."),
    _only("schedule", "schedule", "Pipeline schedules to try: 1f1b, interleaved, zero-bubble."),
    _only("interleave", "chunks", "Numbers of model chunks per stage to try."),
)  # fmt: skip
"""The options that restrict the plans to try."""


@click.command("search", short_help="Find the best parallelism for a number of GPUs.")
@plan_file_options
@click.option(
    "--model",
    required=True,
    metavar="NAME|FILE",
    help="Model: a built-in name, a YAML file, or a Hugging Face config.json.",
)
@on_option
@click.option(
    "--gpus",
    callback=_values,
    metavar="N[,N]",
    help="Number of GPUs. [default: the number of GPUs of the network]",
)
@click.option("--chip", "chips", multiple=True, metavar="NAME|FILE",
              help="Chip to compare. Repeatable. [default: h100]")  # fmt: skip
@click.option(
    "--network", metavar="NAME|FILE", help="Network preset or file. [default: the chip's default network]"
)
@click.option("--global-batch", type=click.IntRange(1), help="Sequences per step. [default: one per GPU]")
@click.option("--sequence", type=click.IntRange(1), help="Tokens per sequence. [default: the model's]")
@click.option("--precision", help="Compute precision. [default: the chip's]")
@click.option(
    "--software",
    metavar="NAME",
    help="Software stack that runs the model. [default: the best fit for each plan]",
)
@_choices
@click.option("--limit", "limits", multiple=True, metavar="WHAT=MOST",
              help="Limit on a plan: memory=80GiB (per rank), step=10s or cost=2.5. Repeatable.")  # fmt: skip
@click.option("--price", "prices", multiple=True, metavar="[CHIP=]NUMBER", help="Price per chip-hour.")
@click.option("--simulate", "most", type=click.IntRange(1), default=16, show_default=True,
              help="Maximum number of plans to simulate; the other plans are only estimated.")  # fmt: skip
@click.option(
    "--rows",
    type=click.IntRange(1),
    help="Number of plans to print. [default: 20; in CSV and JSON, the best 10,000 and the Pareto front]",
)
@click.option(
    "--front",
    "only_front",
    is_flag=True,
    help="Print only the Pareto front of step time, memory and cost.",
)
@click.option(
    "--workers",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Number of worker processes; with 0, the search runs in the calling process.",
)
@cluster_option
@click.option("-o", "--output", "study_folder", metavar="STUDY", type=click.Path(path_type=Path),
              help="Study in which the search is stored, so that the same command resumes it.")  # fmt: skip
@click.option("--name", help="Name of the search in the study. [default: derived from the options]")
@click.option(
    "--keep",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Number of best plans to store as runs.",
)
@format_option
def search_command(
    *,
    model: str,
    global_batch: int | None,
    sequence: int | None,
    precision: str | None,
    software: str | None,
    machine_name: str | None,
    gpus: tuple[int, ...],
    chips: tuple[str, ...],
    network: str | None,
    limits: tuple[str, ...],
    prices: tuple[str, ...],
    most: int,
    rows: int | None,
    only_front: bool,
    workers: int | None,
    cluster: str | None,
    study_folder: Path | None,
    name: str | None,
    keep: int,
    plan_file: Path | None,
    output_format: str,
    **only: tuple[Any, ...],
) -> None:
    """Find the best parallelism for a model on a number of GPUs, and list the plans, best first.

    The step time of every plan that fits in memory is estimated, and plans that may be the best are
    simulated. The output also counts the plans that are impossible, do not fit, or were only estimated.
    """
    from ..runner.chips import find_chip
    from ..runner.planning import Request, plan_command, search_plans
    from ..runner.prediction.models import find_model

    if (keep or name) and study_folder is None:
        raise UsageError("--keep and --name need a study. Next: add -o STUDY.")
    clusters = _clusters(machine_name, chips, gpus, network, _prices(prices))
    request = Request(
        model=find_model(model),
        clusters=clusters,
        global_batch=global_batch or max(each.network.num_ranks for each in clusters),
        sequence=sequence or 0,
        precision=precision,
        software=software,
        limits=_limits(limits),
        only={key: values for key, values in only.items() if values},
    )
    words = {"estimate": "Estimating degrees", "simulate": "Simulating plans"}
    kept_in = nullcontext() if study_folder is None else new_study(study_folder)
    with kept_in as study, progress_bar(words["estimate"]) as show:
        found = search_plans(
            request,
            study=study,
            name=name,
            workers=workers,
            cluster=cluster,
            most=most,
            progress=lambda phase, done, total: show(done, total, text=words[phase]),
        )
    given = {find_chip(chip).name: chip for chip in chips}
    command = partial(plan_command, request, model=model, machine=machine_name, network=network, chips=given)
    best = command(_records(found.table.head(1))[0])
    kept = (
        [] if study is None else [_keep(found, place, study) for place in range(min(keep, found.simulated))]
    )
    table = found.table[found.table["front"]] if only_front else found.table
    rows = rows or (_SHOWN if output_format == "table" else len(table))
    try:
        _print(found, table.head(rows), output_format, command)
        if output_format == "table":
            _print_outcome(found, best, kept, study_folder)
    finally:
        if plan_file is not None:
            _save(best, plan_file)


def _save(command: str, file: Path) -> None:
    """Write the options of the command line *command* to the plan file *file*."""
    words = shlex.split(command)[2:]
    pairs = zip(words[::2], words[1::2], strict=True)
    save_plan({name[2:]: int(text) if text.isdecimal() else text for name, text in pairs}, file)


def _clusters(
    machine_name: str | None,
    chips: Sequence[str],
    gpus: Sequence[int],
    network: str | None,
    prices: dict[str, float],
) -> tuple[Cluster, ...]:
    """Return the cluster of --on, or every combination of chip and network in the other options."""
    from ..runner.chips import find_chip
    from ..runner.planning import Cluster

    if machine_name is not None:
        if chips or gpus or network is not None:
            raise UsageError(
                "--on describes both chips and network. Next: leave out --chip, --gpus and --network."
            )
        found = [chip_and_network(machine_name)]
    else:
        known = [find_chip(name) for name in dict.fromkeys(chips or ("h100",))]
        if not gpus and network is None:
            remedy = "--gpus 512, or --network" if chips else "--on 512xh100, or --gpus 512"
            raise UsageError(f"The number of GPUs is missing. Next: add {remedy}.")
        found = [(chip, each) for chip in known for each in _networks(chip, gpus, network)]
    clusters = []
    for chip, each in found:
        price = prices.get(chip.name, prices.get(""))
        if prices and price is None:
            raise UsageError(f"There is no price for '{chip.name}'. Next: add --price {chip.name}=NUMBER.")
        clusters.append(Cluster(chip, each, price))
    return tuple(clusters)


def _networks(chip: Chip, gpus: Sequence[int], network: str | None) -> Iterator[NetworkConfig]:
    from ..runner import NetworkConfig
    from ..runner.prediction import usual_network

    if network is None:
        yield from (usual_network(chip, count) for count in gpus)
        return
    found = NetworkConfig.find(network)
    if gpus and gpus != (found.num_ranks,):
        raise UsageError(
            f"The network '{network}' has {found.num_ranks} ranks, but --gpus is "
            f"{', '.join(map(str, gpus))}. Next: leave one of them out."
        )
    yield found


def _prices(texts: Sequence[str]) -> dict[str, float]:
    from ..runner.chips import find_chip

    found = {}
    for text in texts:
        chip, _, number = text.rpartition("=")
        try:
            price = float(parse_number(number))
        except ValueError:
            price = -1.0
        if price < 0:
            raise UsageError(f"'{text}' is not a price. Next: write --price 2.5, or --price h100=2.5.")
        found[chip and find_chip(chip).name] = price
    return found


def _limits(texts: Sequence[str]) -> Limits:
    from ..runner.planning import Limits

    found: dict[str, Any] = {}
    for text in texts:
        key, _, most = text.partition("=")
        try:
            name, read = _LIMITS[key]
            found[name] = read(most)
        except KeyError:
            raise UsageError(f"'{key}' cannot be limited{did_you_mean(key, _LIMITS)}") from None
        except ValueError as error:
            raise UsageError(
                f"--limit {text}: {error} Next: write memory=80GiB, step=10s or cost=2.5."
            ) from error
    return Limits(**found)


def _keep(found: Plans, place: int, study: Study) -> str:
    """Simulate the plan at index *place* in full, and store the prediction as a run."""
    from ..runner.prediction import keep_prediction, predict

    return keep_prediction(predict(found.settings[place]), study, f"plan {place + 1} of {found.name}")


def _print(
    found: Plans, table: pd.DataFrame, output_format: str, command: Callable[[dict[str, Any]], str]
) -> None:
    if output_format == "table":
        shown = [_row(found, row) for row in _records(table)]
        print_rows(shown, title=f"Plans for {found.request.model.name}, best first")
        return
    table = table.assign(command=[command(row) for row in _records(table)])
    if output_format == "csv":
        print_frame(table, "csv")
        return
    print_json({
        "plans": _records(table),
        "combinations": found.combinations,
        "refused_combinations": found.refused_degrees,
        "refused_plans": found.refused,
        "possible_plans": found.possible,
        "simulated": found.simulated,
        "estimate_error": found.error,
        "best_is_certain": found.is_certain,
        "assumptions": found.assumptions,
    })  # fmt: skip


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def _row(found: Plans, row: dict[str, Any]) -> dict[str, Any]:
    """Return *row* for the terminal: without the chip if there is one cluster, or unknown costs."""
    several = len(found.request.clusters) > 1
    priced = any(each.price is not None for each in found.request.clusters)
    return {
        **({"on": f"{row['gpus']} {row['chip']}"} if several else {}),
        "plan": _plan_text(row),
        "recompute": row["recompute"],
        "step": ("" if row["simulated"] else "~") + duration_text(row["step_ns"]),
        "MFU": share_text(row["utilisation"]),
        "memory": bytes_text(row["memory_bytes"]),
        **({"cost": row["cost"]} if priced else {}),
        "front": "*" if row["front"] else "",
    }


def _plan_text(row: dict[str, Any]) -> str:
    """Return the choices of the plan in *row* as short text; degrees of 1 are left out."""
    degrees = [f"{key}{row[key]}" for key in ("tp", "pp", "dp", "cp", "ep") if row[key] > 1]
    degrees += [f"etp{row['expert_tp']}"] * bool(row["expert_tp"])
    schedules = {"interleaved": f"interleaved {row['chunks']}", "zero-bubble": "zero-bubble", "1f1b": "1f1b"}
    schedule = [schedules[row["schedule"]]] if row["pp"] > 1 else []
    zero = [f"zero{row['zero']}"] if row["zero"] else []
    return " ".join([*degrees, *schedule, *zero, f"mb{row['micro_batch']}"])


def _print_outcome(plans: Plans, best: str, kept: Sequence[str], study_folder: Path | None) -> None:
    """Print how many plans were left out and why, the command for the *best*, and the next step."""
    possible, refused = plans.possible, plans.refused
    combinations = count_text(plans.combinations, "combination")
    console.print_text(
        f"{combinations} of degrees{_because(plans.refused_degrees)}, with "
        f"{count_text(possible, 'possible plan')}{_because(refused)}."
    )
    console.print_text(
        f"{plans.simulated} plans were simulated, the others (~) only estimated. The estimate was "
        f"off by at most {share_text(plans.error)}; {plans.certainty}."
    )
    print_remarks("Assumed", plans.assumptions)
    console.print(f"Details of the first plan: {best}", markup=False, soft_wrap=True)
    if kept:
        console.print_text(f"Stored as runs: {', '.join(kept)}.")
    if study_folder is not None:
        print_next("view", study_folder, *(("--run", kept[0]) if kept else ()))


def _because(counts: dict[str, int] | Any) -> str:
    rejected = [
        f"{count:,} not: {reason}" for reason, count in sorted(counts.items(), key=lambda item: -item[1])
    ]
    return f" ({'; '.join(rejected)})" if rejected else ""
