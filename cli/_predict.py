"""``chakrascope predict``: predict time and memory of a training step that was never run."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from ..runner import DEFAULT_BACKEND
from ..runner.prediction.models import AXES, RECOMPUTATIONS, SCHEDULES
from ..support import bytes_text, count_text, duration_text, parse_number
from ._options import Choice, Command, CommandWithMore, joined, network_changes, on_option, quantity
from ._output import (
    clock,
    console,
    error_console,
    format_of,
    print_json,
    print_next,
    print_remarks,
    print_rows,
    stage,
)
from ._plan_file import EXPLICIT, command_line_options, plan_file_options, save_plan
from ._predict_script import predict_script, print_figures, print_step
from ._predict_search import search_command
from ._target import chip_and_network, choose_network, with_failures

if TYPE_CHECKING:
    from ..runner import NetworkConfig
    from ..runner.chips import Chip
    from ..runner.prediction import Prediction, Variation
    from ..runner.prediction.models import Plan, Transformer


def _whole(text: str) -> int:
    number = parse_number(text)
    if number.denominator != 1 or number < 1:
        raise ValueError(f"'{text}' is not a whole number of 1 or more.")
    return int(number)


def _degree(name: str, help_text: str, default: int | None = 1) -> Callable[[Command], Command]:
    return click.option(
        f"--{name}",
        metavar="N",
        callback=quantity(_whole),
        default=default,
        show_default=default is not None,
        help=help_text,
    )


plan_options = joined(
    _degree("tp", "Tensor-parallel size."),
    _degree("pp", "Number of pipeline stages."),
    _degree("dp", "Data-parallel size. [default: the remaining ranks]", None),
    _degree("cp", "Context-parallel size."),
    _degree("ep", "Expert-parallel size, across data- and context-parallel ranks."),
    _degree("expert-tp", "Number of ranks that share an expert; if less than --tp, --ep also spans "
            "tensor-parallel ranks. [default: --tp]", None),
    _degree("micro-batch", "Sequences per micro-batch on each data-parallel rank."),
    _degree("global-batch", "Sequences per step. [default: 1 micro-batch; with --pp, 4 per stage]", None),
    _degree("sequence", "Tokens per sequence. [default: the model's]", None),
    click.option("--fsdp", is_flag=True, hidden=True),
    click.option("--zero", type=click.IntRange(0, 3),
                 help="ZeRO stage; 3 is FSDP. [default: set by --software]"),
    click.option("--recompute", metavar="MODE|N", default="none", show_default=True,
                 help=f"Recompute activations: {', '.join(RECOMPUTATIONS)}, N (first N layers of each "
                 "stage) or uniform:N; or move activations to host memory: offload, offload:N."),
    click.option("--keep", "saved", metavar="A,B", default="",
                 help=(
                     "Matmuls that --recompute full does not recompute: any of qkv, projection, up, down."
                 )),
    click.option("--offload-optimizer", is_flag=True, default=None,
                 help="Store the optimizer state in host memory, and run the optimizer on the host."),
    click.option("--schedule", type=Choice(SCHEDULES), help="Pipeline schedule. [default: 1f1b]"),
    _degree("interleave", "Model chunks per pipeline stage (interleaved schedule)."),
    click.option("--precision", help="Compute precision. [default: the chip's]"),
    click.option("--gradient-bytes", type=Choice(["2", "4"]),
                 help="Bytes per gradient element in gradient reductions. [default: set by --software]"),
    _degree("document", "Tokens per document, if several documents are packed into one sequence.", None),
    click.option(
        "--sequence-parallel/--no-sequence-parallel",
        "sequence_parallel",
        default=None,
        help="Split norms and dropout over tensor-parallel ranks. [default: set by --software]",
    ),
    click.option(
        "--fused-attention/--no-fused-attention",
        "fused_attention",
        default=None,
        help="Use fused attention kernels (FlashAttention). [default: set by --software]",
    ),
    click.option("--overlap/--no-overlap", "overlap", default=None,
                 help="Overlap gradient communication with computation."),
    click.option("--tensor-overlap/--no-tensor-overlap", "tensor_overlap", default=None,
                 help="Overlap tensor-parallel collectives with matmuls."),
    _degree("lora", "Train only LoRA adapters with this rank, on queries, keys and values.", None),
    click.option("--deduplicate/--no-deduplicate", "deduplicate", default=None,
                 help=(
                     "Send a token only once to each node, even if several of the token's experts are on "
                     "the node. [default: on]"
                 )),
    click.option("--expert-overlap", is_flag=True, default=None,
                 help=(
                     "Overlap the exchange of tokens between experts with the computation of another "
                     "micro-batch."
                 )),
    click.option("--cuda-graphs", is_flag=True, default=None,
                 help="Assume that CUDA graphs launch all kernels, without host time."),
    click.option("--placement", default="-".join(AXES), show_default=True,
                 help="Order of parallel axes on the network dimensions, innermost first."),
)  # fmt: skip
"""The options of a training plan, which `plan_of` reads."""


def _zero_of(given: dict[str, Any]) -> int:
    """Return the ZeRO stage from ``--zero``, or from its old name ``--fsdp`` with a warning."""
    zero: int | None = given["zero"]
    if not given["fsdp"]:
        return zero or 0
    if zero not in (None, 3):
        raise UsageError(
            f"--fsdp shards weights, but --zero {zero} does not. Next: leave out one of the two options."
        )
    error_console.print_text(
        "Warning: '--fsdp' is now '--zero 3'; the old name will be removed in 0.5.", "yellow"
    )
    return 3


def plan_of(given: dict[str, Any], chip: Chip, ranks: int, software: str | None) -> tuple[Plan, str]:
    """Return the training plan in *given* on *ranks* chips, and its software."""
    from ..runner.prediction import software_of, with_habits
    from ..runner.prediction.models import Plan

    placement = tuple(str(given["placement"]).split("-"))
    if sorted(placement) != sorted(AXES):
        raise UsageError(f"--placement must name {', '.join(AXES)} once each, such as {'-'.join(AXES)}.")
    _refuse_without_effect(given)
    chip.peak(given["precision"] or chip.precision)
    zero = _zero_of(given)
    model_ranks = given["tp"] * given["pp"] * given["cp"]
    dp = given["dp"] if given["dp"] is not None else max(1, ranks // max(model_ranks, 1))
    per_step = dp * given["micro_batch"]
    batch = given["global_batch"] or per_step * (4 * given["pp"] if given["pp"] > 1 else 1)
    schedule = given["schedule"] or ("interleaved" if given["interleave"] > 1 else "1f1b")
    if (schedule == "interleaved") != (given["interleave"] > 1):
        raise UsageError(
            "The interleaved schedule needs --interleave 2 or more, and no other schedule accepts "
            "--interleave."
        )
    plan = Plan(
        **{key: given[key] for key in ("tp", "pp", "cp", "ep", "micro_batch", "recompute")},
        expert_tp=given["expert_tp"] or 0, dp=dp, global_batch=batch,
        sequence=given["sequence"] or 0, chunks=given["interleave"], zero=zero,
        saved=tuple(name for name in given["saved"].split(",") if name), document=given["document"] or 0,
        schedule=schedule, frozen=given["lora"] is not None, lora=given["lora"] or 0,
        precision=given["precision"] or chip.precision, placement=placement,
    )  # fmt: skip
    chosen = software or software_of(chip, plan)
    costs = chip.costs_of(chosen)
    if given["zero"] is None and costs.sharded_optimizer and plan.zero == 0:
        plan = replace(plan, zero=1)
    return with_habits(plan, costs, given), chosen


def _refuse_without_effect(given: dict[str, Any]) -> None:
    """Raise `UsageError` for options without effect for lack of tensor, expert or pipeline parallelism."""
    needs = {
        "sequence_parallel": ("--sequence-parallel", "tp"),
        "tensor_overlap": ("--tensor-overlap", "tp"),
        "expert_tp": ("--expert-tp", "tp"),
    }
    needs |= {
        key: (option, "ep")
        for key, option in (("deduplicate", "--deduplicate"), ("expert_overlap", "--expert-overlap"))
    }
    if given["schedule"] == "zero-bubble":
        needs["schedule"] = ("--schedule zero-bubble", "pp")
    for key, (option, degree) in needs.items():
        if given[key] and given[degree] == 1:
            raise UsageError(
                f"{option} has no effect without --{degree} 2 or more. Next: leave out {option}."
            )
    if given["tensor_overlap"] and given["sequence_parallel"] is False:
        raise UsageError(
            "--tensor-overlap overlaps the collectives of sequence parallelism, which --no-sequence-parallel "
            "disables. Next: leave out one of the two options."
        )


_OF_SCRIPTS = ("world", "mesh", "arguments")
_OF_BOTH = {
    "model", "script", "machine_name", "chip_name", "network", "software", "precision", "backend",
    "every_rank", "study_folder", "link_default", "failed", "output_format", "plan_file",
}  # fmt: skip


def _refuse_other_options(ctx: click.Context, *, is_script: bool) -> None:
    """Raise `UsageError` for an option of models with a script, or of scripts with a model."""
    chosen = [
        param
        for param in ctx.command.params
        if ctx.get_parameter_source(str(param.name)) in EXPLICIT
        and param.name not in _OF_BOTH
        and (param.name in _OF_SCRIPTS) != is_script
    ]
    if not chosen:
        return
    names = ", ".join(param.opts[0] if isinstance(param, click.Option) else "`--`" for param in chosen)
    if is_script:
        raise UsageError(
            f"{names}: with --script, the script determines this. Next: leave out the option, and pass the "
            "script's own options after `--`; --mesh describes its ranks."
        )
    raise UsageError(f"{names}: this option needs --script. Next: with --model, use --tp, --pp and --dp.")


def _list_models(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    """Print the built-in models and their sizes, and exit, if --list-models is given."""
    from ..runner.prediction.models import find_model, list_models

    if not value or ctx.resilient_parsing:
        return
    print_rows([_sizes(find_model(name)) for name in list_models()], title="Models")
    ctx.exit()


def _sizes(model: Transformer) -> dict[str, Any]:
    names = ("layers", "hidden", "heads", "experts", "sequence")
    of_blocks = {name: getattr(model, name) or "" for name in names}
    sizes = dict.fromkeys(names, "") if model.convolutions else of_blocks
    return {"model": model.name, "parameters": f"{model.params() / 1e9:,.2f} B", **sizes}


@click.group("predict", cls=CommandWithMore)
@plan_file_options
@click.option(
    "--model", metavar="NAME|FILE", help="Model: a built-in name, a YAML file, or a Hugging Face config.json."
)
@click.option(
    "--script",
    type=click.Path(path_type=Path),
    help="Your own training script; its arguments follow after `--`.",
)
@click.option(
    "--world",
    type=click.IntRange(1),
    help="Number of ranks on which the script runs. [default: the number of ranks of the network]",
)
@click.option(
    "--mesh", default="", metavar="DIMS", help="Device mesh of the script, such as dp=32,tp=8,pp=2."
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--list-models",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_models,
    help="List the built-in models.",
)
@on_option
@click.option("--chip", "chip_name", metavar="NAME|FILE", help="Built-in chip, or a chip file (YAML).")
@click.option(
    "--network", metavar="NAME|FILE", help="Network preset or file, such as hgx-h100-64x8 for 64 nodes."
)
@plan_options
@click.option(
    "--software",
    metavar="NAME",
    help="Software stack that runs the model. [default: the best fit for the plan]",
)
@click.option(
    "--backend",
    default=DEFAULT_BACKEND,
    show_default=True,
    help="Backend that simulates the step; all backends except the default need --all-ranks.",
)
@click.option(
    "--all-ranks",
    "every_rank",
    is_flag=True,
    help="Generate a graph for every rank, instead of one graph for each set of identical ranks.",
)
@click.option(
    "-o",
    "--output",
    "study_folder",
    metavar="STUDY",
    type=click.Path(path_type=Path),
    help="Study in which the prediction is stored.",
)
@click.option("--spread", metavar="kernels=5%,ranks=2%",
              help=(
                  "Vary times randomly, such as kernels=5%,ranks=2%, and print quantiles of the step time."
              ))  # fmt: skip
@click.option(
    "--replays", type=click.IntRange(1, 10_000), help="Number of simulations for --spread. [default: 32]"
)
@click.option("--seed", type=click.IntRange(0), help="Random seed for --spread. [default: 0]")
@network_changes
@format_of("table", "json")
@click.pass_context
def predict_command(
    ctx: click.Context,
    /,
    *,
    model: str | None,
    script: Path | None,
    world: int | None,
    mesh: str,
    arguments: tuple[str, ...],
    machine_name: str | None,
    chip_name: str | None,
    network: str | None,
    software: str | None,
    backend: str,
    every_rank: bool,
    study_folder: Path | None,
    link_default: tuple[str, ...],
    failed: tuple[str, ...],
    spread: str | None,
    replays: int | None,
    seed: int | None,
    plan_file: Path | None,
    output_format: str,
    **given: Any,
) -> None:
    """Predict the time, the memory and the bottleneck of a training step from model sizes.

    With --script, your own training script runs unmodified on tensors without values. `predict` downloads
    nothing. docs/validation/predictions.md compares predictions with public measurements. `chakrascope
    predict search` finds the best parallelism for a given number of GPUs.
    """
    from ..runner import Study
    from ..runner.prediction import Setting, keep_prediction, predict
    from ..runner.prediction.models import find_model

    if (model is None) == (script is None):
        is_model = arguments and not model
        meant = f" Next: chakrascope predict {_with_model(ctx, arguments)}" if is_model else ""
        raise UsageError(
            f"Give --model NAME, or --script FILE with the script's own arguments after `--`.{meant}"
        )
    chip, cluster = _cluster(machine_name, chip_name, network, link_default, failed)
    _refuse_other_options(ctx, is_script=script is not None)
    if script is not None:
        predict_script(
            [str(script), *arguments],
            chip,
            cluster,
            world=world,
            mesh=mesh,
            every_rank=every_rank,
            software=software,
            precision=given["precision"],
            backend=backend,
            study_folder=study_folder,
            output_format=output_format,
        )
        if plan_file is not None:
            save_plan(command_line_options(ctx), plan_file)
        return
    variation = _variation(spread, replays=replays, seed=seed)
    plan, named = plan_of(given, chip, cluster.num_ranks, software)
    setting = Setting(find_model(str(model)), plan, chip, cluster, named)
    if study_folder is not None:
        Study.check_place(study_folder)
    with stage(f"{setting.model.name}: {count_text(plan.world, 'rank')} on {cluster.name}") as status:
        prediction = predict(
            setting,
            backend=backend,
            every_rank=every_rank,
            variation=variation,
            progress=clock(status, plan.world),
        )
    run_id = None if study_folder is None else keep_prediction(prediction, Study.create(study_folder))
    if output_format == "json":
        print_json(prediction.to_json())
    else:
        _print(prediction)
        if study_folder is not None and run_id is not None:
            print_next("summary", study_folder, "--run", run_id)
    if plan_file is not None:
        save_plan(command_line_options(ctx), plan_file)


predict_command.add_command(search_command)


def _with_model(ctx: click.Context, arguments: Sequence[str]) -> str:
    """Return the options of the command line with the first of *arguments* as their --model.

    Without an option that describes the cluster, --on is added as an example.
    """
    name, *words = arguments  # with the options that follow the name, which are not parsed
    for option, value in command_line_options(ctx).items():
        for one in value if isinstance(value, list) else [value]:
            words += [f"--{'no-' * (one is False)}{option}", *[str(one)] * (not isinstance(one, bool))]
    options = {word.partition("=")[0] for word in words}
    example = [] if options & {"--on", "--chip", "--network"} else ["--on", "64xh100"]
    return shlex.join(["--model", name, *words, *example])


def _cluster(
    machine_name: str | None,
    chip_name: str | None,
    network: str | None,
    link_default: Sequence[str],
    failed: Sequence[str],
) -> tuple[Chip, NetworkConfig]:
    """Return the chip and the network in the options; raises `UsageError` if one is missing."""
    from ..runner import NetworkConfig
    from ..runner.chips import find_chip

    if machine_name is not None:
        if chip_name is not None or network is not None:
            raise UsageError("--on describes both chips and network. Next: leave out --chip and --network.")
        chip, cluster = chip_and_network(machine_name)
        return chip, with_failures(cluster, failed) if failed else cluster
    if chip_name is None:
        if network is not None:
            raise UsageError("No chip is given. Next: add --chip NAME.")
        raise UsageError("No cluster is given. Next: add --on 64xh100, or both --chip and --network.")
    chip = find_chip(chip_name)
    if network is None:
        raise UsageError("No network is given. Next: add --network PRESET_OR_FILE.")
    chosen = choose_network(network, None, link_default, failed)
    cluster = chosen if isinstance(chosen, NetworkConfig) else NetworkConfig.find(str(chosen))
    return chip, cluster


def _variation(text: str | None, **draws: int | None) -> Variation | None:
    """Parse --spread, such as ``kernels=5%,ranks=2%``; *draws* has --replays and --seed."""
    from ..runner.prediction import Variation

    given = {key: number for key, number in draws.items() if number is not None}
    if text is None:
        if given:
            raise UsageError("--replays and --seed need --spread, such as --spread kernels=5%,ranks=2%.")
        return None
    shares: dict[str, Any] = {}
    for part in text.split(","):
        key, _, share = part.partition("=")
        try:
            number = float(parse_number(share.strip().removesuffix("%")))
        except ValueError:
            number = -1.0
        if key.strip() not in ("kernels", "ranks") or number < 0:
            raise UsageError(f"'{part}' is not a spread. Next: write --spread kernels=5%,ranks=2%.")
        shares[key.strip()] = number / 100 if share.strip().endswith("%") else number
    return Variation(**shares, **given)


def _print(prediction: Prediction) -> None:
    setting = prediction.setting
    machine = f"{setting.plan.world:,} x {setting.chip.name} on {setting.network.title}"
    print_figures(
        ("job", f"{setting.model.name} on {machine}, with the kernel times of {setting.software}"),
        ("plan", _plan_text(setting.plan)),
    )
    speed = ("tokens/s", f"{prediction.tokens_per_s:,.0f}")
    print_step(prediction, setting.plan.precision, *_spread_rows(prediction), speed)
    fullest = max(prediction.memory, key=lambda memory: memory.total)
    parts = {key: value for key, value in vars(fullest).items() if key != "stage"}
    print_rows([{"stage": fullest.stage, **{key: bytes_text(value) for key, value in parts.items()}}],
               title="Memory of the fullest rank")  # fmt: skip
    if not prediction.fits:
        console.print_text(_remedy_text(prediction))
    print_remarks("Assumed", prediction.assumptions)


def _spread_rows(prediction: Prediction) -> list[tuple[str, str]]:
    found = prediction.distribution
    if found is None:
        return []
    low, middle, high = (duration_text(found.quantile_ns(share)) for share in (0.05, 0.5, 0.95))
    text = f"{low} to {high} in 90 % of {len(found.steps_ns)} simulations, median {middle}"
    return [("spread", text)]


def _plan_text(plan: Plan) -> str:
    """Return a plan's choices as text; degrees of 1 are left out."""
    degrees = [f"{name} {size}" for name in ("tp", "pp", "cp", "ep") if (size := getattr(plan, name)) > 1]
    degrees += [f"expert tp {plan.expert_split}"] * bool(plan.expert_tp)
    batches = [
        f"ZeRO {plan.zero}",
        f"global batch {plan.global_batch:,}",
        f"micro-batch {plan.micro_batch:,}",
    ]
    return ", ".join([f"dp {plan.dp}", *degrees, *batches])


def _remedy_text(prediction: Prediction) -> str:
    """Name changes with which a plan would fit into memory, and what step time they cost."""
    if not prediction.remedies:
        return (
            "No change of one or two options makes the plan fit. Next: use more ranks, or `chakrascope "
            "predict search`."
        )
    choices = (
        f"{each.options} ({bytes_text(each.memory_bytes)}, {each.times_as_long:.2f} times as long)"
        for each in prediction.remedies
    )
    return f"It fits with {', or '.join(choices)}; `chakrascope predict search` finds the fastest plan."
