"""The measured training steps in ../shared/reference/training, with the arguments of `predict` for each."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from chakrascope.runner import NetworkConfig
from chakrascope.runner.prediction.models import Plan, Transformer, find_model

TRAINING = Path(__file__).resolve().parent.parent.parent / "shared" / "reference" / "training"
GIB = 1 << 30
# Bandwidths of a GPU (bytes per second and direction) within its node and between nodes, according to the
# sources of the rows.
FABRICS = {
    "a100-800": (300e9, 12.5e9, 8),
    "a100-1600": (300e9, 25e9, 8),
    "h100": (450e9, 50e9, 8),
    "gb200": (900e9, 50e9, 64),
    "b200": (900e9, 50e9, 8),
    "dgx-a100": (300e9, 25e9, 8),
}


@dataclass(frozen=True)
class Step:
    """A measured step: the job, the cluster, and the step time. Checks leave out a whole *family*.

    *memory_gib* is the peak of the fullest rank, if it is published.
    """

    data: str
    row: str
    family: str
    chip: str
    software: str
    fabric: str
    model: Transformer
    plan: Plan
    measured_ns: float
    memory_gib: float | None = None

    @property
    def network(self) -> NetworkConfig:
        """The network on which the step ran."""
        within, across, size = FABRICS[self.fabric]
        nodes = self.plan.world // size
        if nodes <= 1:
            return NetworkConfig(("Switch",), (self.plan.world,), (within / GIB,), (500.0,), name=self.fabric)
        return NetworkConfig(
            ("Switch", "Switch"),
            (size, nodes),
            (within / GIB, across / GIB),
            (500.0, 1500.0),
            name=self.fabric,
        )


def megatron_steps(folder: Path = TRAINING) -> Iterator[Step]:
    """Yield the steps of GPT on A100 with Megatron-DeepSpeed: half precision, full recomputation, 1F1B."""
    for row in _rows(folder / "gpt_a100_megatron_deepspeed.csv"):
        hidden = int(row["hidden"])
        model = Transformer(
            name=f"gpt3-{row['params']}b",
            layers=int(row["layers"]),
            hidden=hidden,
            heads=int(row["heads"]),
            ffn=4 * hidden,
            vocab=50257,
            sequence=int(row["seq"]),
            learned_positions=True,
            tied=True,
        )
        plan = Plan(
            tp=int(row["tp"]),
            dp=int(row["dp"]),
            pp=int(row["pp"]),
            micro_batch=int(row["mbs"]),
            global_batch=int(row["gbs"]),
            recompute="full",
            precision="fp16",
            overlap=False,
            fused_attention=False,
        )
        name = f"{row['row']}: {row['params']}B tp{row['tp']} pp{row['pp']} dp{row['dp']} mb{row['mbs']}"
        yield Step(
            "A100 Megatron-DeepSpeed", name, row["params"], "a100-80", "megatron", "a100-800", model, plan,
            float(row["ms"]) * 1e6,
        )  # fmt: skip


_MPT_CHIPS = {
    "a100_40gb": ("a100-40", "a100-1600"),
    "a100_80gb": ("a100-80", "a100-1600"),
    "h100_80gb": ("h100", "h100"),
}


def mpt_steps(folder: Path = TRAINING) -> Iterator[Step]:
    """Yield the steps of MPT with FSDP (llm-foundry) on A100 and H100."""
    for row in _rows(folder / "mpt_fsdp_llm_foundry.csv"):
        chip, fabric = _MPT_CHIPS[row["GPU"]]
        hidden, sequence = int(row["hidden"]), int(row["SeqLen (T)"])
        model = Transformer(
            name=f"mpt-{row['Model']}",
            layers=int(row["layers"]),
            hidden=hidden,
            heads=int(row["heads"]),
            ffn=4 * hidden,
            vocab=50368,
            sequence=sequence,
            learned_positions=True,
            tied=True,
            loss_bytes=4,
        )
        plan = Plan(
            dp=int(row["# GPUs"]),
            micro_batch=int(row["MicroBatchSize"]),
            global_batch=int(row["GlobalBatchSize"]),
            recompute="full" if row["Activation Checkpointing"] == "True" else "none",
            zero=2 if row["Sharding Strategy"] == "SHARD_GRAD_OP" else 3,
            precision="fp8" if row["fp8"] == "True" else "bf16",
            grad_bytes=2 if row["MP Mode"] == "PURE" else 4,
            eager=True,
        )
        name = f"{row['Model']} {sequence} on {row['# GPUs']} mb{row['MicroBatchSize']} {plan.precision}"
        yield Step(
            f"MPT FSDP {chip}", name, row["Model"], chip, "fsdp", fabric, model, plan,
            float(row["seconds"]) * 1e9,
        )  # fmt: skip


_DEGREES = re.compile(r"TP=(\d+), PP=(\d+), CP=(\d+), VP=(\w+)")
# Settings that the rows of NVIDIA's recipes do not state come from the jobs that these recipes start
# (NVIDIA/dgxc-benchmarking: ft_llama3/llama3_finetune_utils.py, maxtext/configure.sh, paxml/configure.sh and
# paxml_mod_configs.py) and from NeMo's recipes in performance mode
# (nemo/collections/llm/recipes/llama3_70b.py and llama3_8b.py):
# * Fine-tuning packs SQuAD into 4,096 tokens, in documents of some 200 (an estimate); micro-batches of one.
# * Full fine-tuning of 70B uses tp_comm_overlap; adapters (rank 8; queries, keys and values) do not.
# * Gradients are reduced in half precision, and the optimizer is sharded (that of adapters is small).
# * MaxText keeps queries, keys and values (save_qkv_proj) of two sequences of 8,192 tokens; for Llama 2,
#   sequences of 4,096 tokens are assumed.
# * Paxml keeps matmul results (5B: SAVE_DOT_ONLY) or those of attention (175B: SAVE_QKV_OUT_PROJ). XLA
#   removes a last matmul whose result is not used.
_DOCUMENT = 200
_RECIPES: dict[str, dict[str, object]] = {
    "Llama3 70b Finetuning SFT": {
        "model": "llama3-70b", "sequence": 4096, "tp": 4, "pp": 4, "chunks": 5, "grad_bytes": 2,
        "tensor_overlap": True, "document": _DOCUMENT,
    },
    "Llama3 70b Finetuning LORA": {
        "model": "llama3-70b", "sequence": 4096, "tp": 2, "pp": 4, "chunks": 20, "frozen": True, "lora": 8,
        "document": _DOCUMENT,
    },
    "Llama3 8b Finetuning SFT": {
        "model": "llama3-8b", "sequence": 4096, "grad_bytes": 2, "document": _DOCUMENT,
    },
    "Llama3 8b Finetuning LORA": {
        "model": "llama3-8b", "sequence": 4096, "frozen": True, "lora": 8, "document": _DOCUMENT,
    },
    "Maxtext Llama3 70b": {
        "model": "llama3-70b", "sequence": 8192, "micro_batch": 2, "zero": 3, "recompute": "full",
        "saved": ("qkv", "down"),
    },
    "Maxtext LLama2 70b": {
        "model": "llama2-70b", "sequence": 4096, "micro_batch": 2, "zero": 3, "recompute": "full",
        "saved": ("qkv", "down"),
    },
    "Paxml GPT175B": {
        "model": "gpt3-175b", "sequence": 2048, "micro_batch": 2, "zero": 3, "recompute": "full",
        "saved": ("qkv", "projection", "down"),
    },
    "Paxml GPT5B": {
        "model": "gpt-5b", "sequence": 2048, "micro_batch": 4, "zero": 3, "recompute": "full",
        "saved": ("qkv", "projection", "up", "down"),
    },
}  # fmt: skip
_GPT5B = Transformer(
    name="gpt-5b", layers=24, hidden=4096, heads=32, ffn=16384, vocab=51200, sequence=2048,
    learned_positions=True, tied=True,
)  # fmt: skip


def recipe_steps(folder: Path = TRAINING) -> Iterator[Step]:
    """Yield the steps of NVIDIA's recipes with a known model and parallelism.

    If a later release repeats the figure of an earlier release, both rows are the same measurement.
    """
    seen = set()
    for row in _rows(folder / "dgxc_benchmarking.csv"):
        key = next((key for key in _RECIPES if row["model"].startswith(key)), None)
        if key is None:
            continue
        ranks, precision = int(row["gpus"]), "fp8" if "FP8" in row["model"] else "bf16"
        identity = (key, precision, ranks, row["step_s"])
        if identity in seen:
            continue
        seen.add(identity)
        recipe = dict(_RECIPES[key])
        name, sharded = str(recipe.pop("model")), "zero" in recipe
        model = _GPT5B if name == "gpt-5b" else find_model(name)
        degrees = {axis: int(str(recipe.get(axis, 1))) for axis in ("tp", "pp")}
        dp = ranks // (degrees["tp"] * degrees["pp"])
        plan = Plan(
            dp=dp,
            global_batch=int(row["gbs"] or 2 * ranks),
            precision=precision,
            sequence_parallel=degrees["tp"] > 1,
            **({} if sharded else {"zero": 1}),
            schedule="interleaved" if "chunks" in recipe else "1f1b",
            **recipe,  # type: ignore[arg-type]
        )
        software = "paxml" if key.startswith("Paxml") else "xla" if sharded else "megatron"
        label = f"{row['model'].split('(')[0].strip()} on {ranks}"
        yield Step(f"NVIDIA recipes {software}", label, key, "h100", software, "h100", model, plan,
                   float(row["step_s"]) * 1e9)  # fmt: skip


# Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models (2022), table 5, as
# calculon-ai/calculon has it (calculon/llm/validation.py, validation/seqsel/tab5): a step in
# seconds with everything recomputed, and with sequence parallelism and selective recomputation.
_MEGATRON_LM = (
    ("gpt3-22b", 8, 1, 1, 4, 4, 1.42, 1.10),
    ("gpt3-175b", 64, 8, 3, 64, 1, 18.13, 13.75),
    ("gpt3-530b", 280, 35, 3, 280, 1, 49.05, 37.83),
    ("gpt3-1t", 512, 64, 1, 512, 1, 94.42, 71.49),
)


def unfitted_steps(folder: Path = TRAINING) -> Iterator[Step]:
    """Yield the steps of other labs, to which no cost was fitted."""
    for name, ranks, pp, chunks, batch, micro, full, selective in _MEGATRON_LM:
        for recompute, seconds in (("full", full), ("selective", selective)):
            plan = Plan(
                tp=8,
                pp=pp,
                dp=ranks // (8 * pp),
                chunks=chunks,
                schedule="interleaved" if chunks > 1 else "1f1b",
                global_batch=batch,
                micro_batch=micro,
                recompute=recompute,
                sequence_parallel=recompute == "selective",
                precision="fp16",
                overlap=False,
                fused_attention=False,
            )
            label = f"{name} tp8 pp{pp} on {ranks}, {recompute} recomputation"
            yield Step(
                "A100 Megatron-LM", label, name, "a100-80", "megatron", "dgx-a100", find_model(name), plan,
                seconds * 1e9,
            )  # fmt: skip
    yield from _torchtitan_steps()
    # Steps with experts, which the fit for this chip did not include.
    yield from (step for step in other_recipe_steps(folder) if step.chip != "gb200")


# pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, tables 1 to 6: degrees, sequence, sequences
# of a data-parallel rank and step, precision, tokens per second and GPU, and the peak of the memory in GiB
# that PyTorch has reserved. These GPUs have slower memory and 500 W at most.
_TORCHTITAN: tuple[tuple[str, str, dict[str, int], int, int, str, int, float], ...] = (
    ("llama3-8b", "eager", {"dp": 8}, 8192, 2, "bf16", 5762, 82.4),
    ("llama3-8b", "compiled", {"dp": 8}, 8192, 2, "bf16", 6667, 77.0),
    ("llama3-8b", "compiled", {"dp": 8}, 8192, 2, "fp8", 8532, 76.8),
    ("llama3-8b", "eager", {"dp": 128}, 8192, 2, "bf16", 5605, 67.0),
    ("llama3-8b", "compiled", {"dp": 128}, 8192, 2, "bf16", 6514, 62.0),
    ("llama3-8b", "compiled", {"dp": 128}, 8192, 2, "fp8", 8380, 61.8),
    ("llama3-8b", "compiled", {"dp": 8}, 32768, 1, "fp8", 3890, 83.9),
    ("llama3-8b", "compiled", {"dp": 4, "cp": 2}, 65536, 1, "fp8", 2540, 84.2),
    ("llama3-8b", "compiled", {"dp": 2, "cp": 4}, 131072, 1, "fp8", 1071, 84.0),
    ("llama3-8b", "compiled", {"dp": 1, "cp": 8}, 262144, 1, "fp8", 548, 84.5),
    ("llama3-70b", "compiled", {"dp": 32, "tp": 8}, 8192, 16, "fp8", 829, 71.9),
    ("llama3-70b", "async TP", {"dp": 32, "tp": 8}, 8192, 16, "fp8", 876, 67.6),
    ("llama3-405b", "async TP", {"dp": 8, "tp": 8, "pp": 8}, 8192, 32, "fp8", 100, 82.5),
    ("llama3-405b", "async TP", {"dp": 8, "tp": 8, "pp": 8, "chunks": 2}, 8192, 32, "fp8", 128, 72.7),
    ("llama3-405b", "async TP", {"dp": 8, "tp": 8, "pp": 8}, 32768, 8, "fp8", 76, 75.3),
    ("llama3-405b", "async TP", {"dp": 4, "cp": 2, "tp": 8, "pp": 8}, 65536, 8, "fp8", 47, 75.9),
    ("llama3-405b", "async TP", {"dp": 2, "cp": 4, "tp": 8, "pp": 8}, 131072, 8, "fp8", 31, 77.1),
    ("llama3-405b", "async TP", {"dp": 1, "cp": 8, "tp": 8, "pp": 8}, 262144, 8, "fp8", 16, 84.9),
)  # fmt: skip


# Without pipeline stages: chip, model, recomputation and so on as above, and whether tensor parallelism is
# asynchronous; the peak if it is published. docs/performance.md of 2024-08 (3faaa1a; the network of the A100
# is not stated), asyncTP_llama3_h100_2025-06_torchtitan.md, and llama3-8b_h200_202506_trainy-whitefiber.md,
# whose loss is compiled.
_Published = tuple[str, str, str, dict[str, int], int, int, str, bool, float, float | None]
_TORCHTITAN_OTHERS: tuple[_Published, ...] = (
    ("a100-80", "llama3-8b", "selective", {"dp": 64}, 8192, 1, "bf16", False, 2973, None),
    ("a100-80", "llama3-70b", "full", {"dp": 64}, 8192, 1, "bf16", False, 331, None),
    ("a100-80", "llama2-13b", "none", {"dp": 64}, 4096, 2, "bf16", False, 2162, None),
    ("a100-80", "llama2-13b", "selective", {"dp": 64}, 4096, 2, "bf16", False, 1904, None),
    ("a100-80", "llama2-70b", "selective", {"dp": 64}, 4096, 1, "bf16", False, 355, None),
    ("a100-80", "llama2-70b", "full", {"dp": 64}, 4096, 2, "bf16", False, 353, None),
    ("h100-96", "llama3-405b", "full", {"dp": 16, "tp": 8}, 8192, 2, "bf16", False, 109, None),
    ("h100-96", "llama3-405b", "full", {"dp": 16, "tp": 8}, 8192, 2, "fp8", False, 177, None),
    ("h100-96", "llama3-405b", "full", {"dp": 16, "tp": 8}, 8192, 2, "fp8", True, 185, None),
    ("h100-96", "llama3-70b", "full", {"dp": 32, "tp": 8}, 8192, 16, "bf16", False, 597.3, None),
    ("h100-96", "llama3-70b", "full", {"dp": 32, "tp": 8}, 8192, 16, "bf16", True, 652.4, None),
    ("h100-96", "llama3-70b", "full", {"dp": 32, "tp": 8}, 8192, 16, "fp8", False, 809.8, None),
    ("h100-96", "llama3-70b", "full", {"dp": 32, "tp": 8}, 8192, 16, "fp8", True, 942.4, None),
    ("h100-96", "llama3-8b", "selective", {"dp": 8, "tp": 8}, 8192, 12, "bf16", False, 4378, None),
    ("h100-96", "llama3-8b", "selective", {"dp": 8, "tp": 8}, 8192, 12, "bf16", True, 4809.4, None),
    ("h100-96", "llama3-8b", "selective", {"dp": 8, "tp": 8}, 8192, 12, "fp8", False, 5078.1, None),
    ("h100-96", "llama3-8b", "selective", {"dp": 8, "tp": 8}, 8192, 12, "fp8", True, 5570.1, None),
    ("h200", "llama3-8b", "selective", {"dp": 32}, 8192, 2, "fp8", False, 10938, 47.96),
    ("h200", "llama3-8b", "selective", {"dp": 64}, 8192, 2, "fp8", False, 10753, 46.97),
)  # fmt: skip


def _torchtitan_steps() -> Iterator[Step]:
    for name, how, degrees, sequence, batch, precision, speed, memory in _TORCHTITAN:
        recompute = "selective" if sequence == 8192 and name == "llama3-8b" else "full"
        plan = _torchtitan_plan(degrees, sequence, batch, precision, recompute)
        plan = replace(plan, tensor_overlap=how == "async TP")
        yield _torchtitan_step("H100 torchtitan", "h100-96", find_model(name), plan, how, speed, memory)
    for (
        chip,
        name,
        recompute,
        degrees,
        sequence,
        batch,
        precision,
        is_async,
        speed,
        memory,
    ) in _TORCHTITAN_OTHERS:
        plan = _torchtitan_plan(degrees, sequence, batch, precision, recompute)
        plan = replace(plan, tensor_overlap=is_async)
        model = replace(find_model(name), loss_bytes=4 if chip == "h200" else 0)
        how = f"recomputation {recompute}{', async TP' * is_async}"
        data = f"{chip.split('-')[0].upper()} torchtitan, others"
        yield _torchtitan_step(data, chip, model, plan, how, speed, memory)


def _torchtitan_plan(
    degrees: Mapping[str, int], sequence: int, batch: int, precision: str, recompute: str
) -> Plan:
    stages = degrees.get("pp", 1)
    return Plan(
        **degrees,  # type: ignore[arg-type]
        # A batch is divided into as many micro-batches as there are stages.
        micro_batch=batch // stages,
        global_batch=batch * degrees["dp"],
        sequence=sequence,
        schedule="interleaved" if "chunks" in degrees else "1f1b",
        sequence_parallel="tp" in degrees,
        zero=3,
        eager=True,
        recompute=recompute,
        precision=precision,
    )


def _torchtitan_step(  # noqa: PLR0917 - in the order of the tables
    data: str, chip: str, model: Transformer, plan: Plan, how: str, speed: float, memory: float | None
) -> Step:
    degrees = {"tp": plan.tp, "pp": plan.pp, "cp": plan.cp, "chunks": plan.chunks}
    sizes = "".join(f" {key}{size}" for key, size in degrees.items() if size > 1)
    label = f"{model.name} FSDP{sizes} on {plan.world}, {plan.sequence} tokens, {how}, {plan.precision}"
    tokens = plan.global_batch * plan.sequence / plan.world
    fabric = "dgx-a100" if chip == "a100-80" else "h100"
    return Step(data, label, model.name, chip, "fsdp", fabric, model, plan, tokens / speed * 1e9, memory)


# The jobs that the launch scripts start (nemotron/launch.sh of 25.07, grok1/launch.sh of 25.10), with NeMo's
# defaults as above.
_OTHER_RECIPES: dict[tuple[str, str], dict[str, object]] = {
    ("Nemotron 340b", "GB200"): {
        "model": "nemotron4-340b", "sequence": 4096, "tp": 8, "pp": 4, "chunks": 12,
        "schedule": "interleaved", "tensor_overlap": True,
    },
    ("Grok1 314b", "GB200"): {
        "model": "grok1", "sequence": 8192, "tp": 4, "ep": 8, "tensor_overlap": True,
    },
    ("Grok1 314b", "H100"): {
        "model": "grok1", "sequence": 8192, "tp": 4, "pp": 8, "cp": 2, "ep": 8, "chunks": 8,
        "schedule": "interleaved", "tensor_overlap": True, "expert_tp": 1,
    },
}  # fmt: skip


def other_recipe_steps(folder: Path = TRAINING) -> Iterator[Step]:
    """Yield the steps of NVIDIA's recipes on GB200, and of models other than Llama and GPT."""
    for row in _rows(folder / "dgxc_benchmarking.csv"):
        key = next(
            (key for key in _OTHER_RECIPES if row["model"].startswith(key[0]) and row["hw"] == key[1]), None
        )
        if key is None:
            continue
        recipe, ranks, chip = dict(_OTHER_RECIPES[key]), int(row["gpus"]), row["hw"].lower()
        model = find_model(str(recipe.pop("model")))
        model_ranks = math.prod(int(str(recipe.get(axis, 1))) for axis in ("tp", "pp", "cp"))
        plan = Plan(
            dp=ranks // model_ranks,
            global_batch=int(row["gbs"] or 2 * ranks),
            precision="fp8" if "FP8" in row["model"] else "bf16",
            sequence_parallel=True,
            zero=1,
            grad_bytes=2,
            **recipe,  # type: ignore[arg-type]
        )
        yield Step(f"{row['hw']} NeMo", f"{row['model']} on {ranks}, batch {plan.global_batch}", key[0], chip,
                   "megatron", chip, model, plan, float(row["step_s"]) * 1e9)  # fmt: skip


def left_out(folder: Path = TRAINING) -> dict[str, int]:
    """Return the recipes that are not predicted, with their number of rows."""
    counts: dict[str, int] = {}
    for row in _rows(folder / "dgxc_benchmarking.csv"):
        if not row["model"].startswith((*_RECIPES, *(name for name, _ in _OTHER_RECIPES))):
            name = " ".join(row["model"].split()[:2])
            counts[name] = counts.get(name, 0) + 1
    return counts


def every_step(folder: Path = TRAINING) -> list[Step]:
    """Return all measured steps to which costs are fitted."""
    fitted = [step for step in other_recipe_steps(folder) if step.chip == "gb200"]
    return [*megatron_steps(folder), *mpt_steps(folder), *recipe_steps(folder), *fitted]


def _rows(path: Path) -> Iterator[Mapping[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)
