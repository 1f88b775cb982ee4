"""Steps that Megatron Bridge publishes (docs/performance-summary); no cost was fitted to them.

The launches and copies of experts were counted with knowledge of all releases. Only the number of launches in
a low precision was chosen by its errors. Three rows of 25.11 have the plans of its recipes, because the page
repeats plans of older releases for them: GPT-OSS on B200 and H100, and Qwen3 30B on H100. In 26.02, these
recipes reach the same time per layer.
"""

from __future__ import annotations

from collections.abc import Iterator

from measured_steps import Step

from chakrascope.runner.prediction.models import Plan, Transformer, find_model

_MOE = {"vocab": 151936, "sequence": 4096, "gated": True, "kv_heads": 4, "head_size": 128, "experts": 128}
_MODELS = {
    "qwen3-30b-a3b": Transformer(
        name="qwen3-30b-a3b", layers=48, hidden=2048, heads=32, ffn=6144, top_k=8, expert_ffn=768, **_MOE
    ),
    "qwen3-235b-a22b": Transformer(
        name="qwen3-235b-a22b", layers=94, hidden=4096, heads=64, ffn=12288, top_k=8, expert_ffn=1536, **_MOE
    ),
    "gpt-oss-120b": Transformer(
        name="gpt-oss-120b", layers=36, hidden=2880, heads=64, kv_heads=8, head_size=64, ffn=2880,
        vocab=201088, sequence=8192, gated=True, experts=128, top_k=4, expert_ffn=2880,
        expert_bias=True, clamped=True, window=128, full_every=2,
    ),
}  # fmt: skip
# The rows up to release 26.04 that overlap the exchange of experts, and the rows that dispatch by all-to-all
# instead of DeepEP or HybridEP, according to the recipes (scripts/performance of v0.2.0, v0.3.0, v0.4.2 and
# v0.5.0, perf_recipes of v0.6.0). Since 26.06, recipes in MXFP8 replay whole steps as CUDA graphs and overlap
# the exchange, except two recipes on B300.
_OVERLAPPED = {
    ("25.11", "b200", "qwen3-235b-a22b"), ("25.11", "h100", "qwen3-30b-a3b"),
    ("26.02", "b300", "qwen3-235b-a22b"), ("26.02", "h100", "qwen3-30b-a3b"),
    ("26.04", "gb200", "gpt-oss-120b"), ("26.04", "b200", "deepseek-v3"),
}  # fmt: skip
_NO_GRAPHS = {("b300", "gpt-oss-120b"), ("b300", "deepseek-v3")}
# According to the same recipes: rows with tensor parallelism without overlap (in addition to all recipes in
# NVFP4), and the layers of Llama 3 70B with sharded weights that are offloaded to the host.
_NO_TENSOR_OVERLAP = {("h100", "qwen3-235b-a22b")}
_OFFLOADED = {"gb200": 40, "gb300": 20}
_PLAIN = {("b200", "qwen3-235b-a22b"), ("h100", "qwen3-235b-a22b")}
_PLAIN_IN_26_02 = {("b300", "qwen3-235b-a22b"), ("b200", "qwen3-30b-a3b")}
# Release, chip, model, GPUs, precision, sequences of a step and a micro-batch, tokens of a sequence, whether
# weights are sharded, tp, pp, cp, chunks, ep, tokens per second and GPU.
_TABLE = """
25.11 gb300 llama3-8b         8 fp8    128 2 8192 -    1  1 1  1  1 37556
25.11 gb300 llama3-8b         8 mxfp8  128 2 8192 -    1  1 1  1  1 36108
25.11 gb300 llama3-70b       64 fp8    256 2 8192 fsdp 1  1 1  1  1  4520
25.11 gb300 llama3-405b     256 fp8   1536 1 8192 -    2  8 2  4  1   999
25.11 gb300 deepseek-v3     256 bf16  4096 1 4096 -    1  2 1  4 32  3848
25.11 gb300 deepseek-v3     256 mxfp8 4096 1 4096 -    1  2 1  4 32  4357
25.11 gb300 gpt-oss-120b     64 bf16  1280 2 8192 -    1  1 1  1 64 18347
25.11 gb300 qwen3-30b-a3b     8 mxfp8  512 4 4096 -    1  1 1  1  8 28934
25.11 gb300 qwen3-235b-a22b 256 bf16  8192 2 4096 -    1  4 1 12 16  6131
25.11 gb200 llama3-8b         8 fp8    128 2 8192 -    1  1 1  1  1 31508
25.11 gb200 llama3-8b         8 mxfp8  128 2 8192 -    1  1 1  1  1 29789
25.11 gb200 llama3-70b       64 fp8    256 2 8192 fsdp 1  1 1  1  1  4312
25.11 gb200 llama3-405b     256 fp8   1536 1 8192 -    4 16 1  4  1   813
25.11 gb200 deepseek-v3     256 bf16  4096 1 4096 -    1  4 1  4 64  3139
25.11 gb200 deepseek-v3     256 mxfp8 4096 1 4096 -    1  8 1  4 32  4018
25.11 gb200 gpt-oss-120b     64 bf16  1280 1 8192 -    1  1 1  1 64 15876
25.11 gb200 qwen3-30b-a3b     8 mxfp8  512 4 4096 -    1  1 1  1  8 23766
25.11 gb200 qwen3-235b-a22b 256 bf16  8192 1 4096 -    1  8 1  3 32  4916
25.11 b200  llama3-8b         8 fp8    128 2 8192 -    1  1 1  1  1 30624
25.11 b200  llama3-8b         8 mxfp8  128 2 8192 -    1  1 1  1  1 29521
25.11 b200  llama3-405b     128 fp8     64 1 8192 -    4  8 2  8  1   661
25.11 b200  llama3-405b     128 mxfp8   64 1 8192 -    4  8 2  8  1   624
25.11 b200  gpt-oss-120b     64 bf16   512 4 4096 -    1  1 1  1 64  8213
25.11 b200  qwen3-30b-a3b     8 mxfp8  512 1 4096 -    1  1 1  1  8  9299
25.11 b200  qwen3-235b-a22b  64 mxfp8 1024 1 4096 -    1  8 1  2  8  3269
25.11 h100  llama3-8b         8 fp8    128 1 8192 fsdp 1  1 1  1  1 14451
25.11 h100  llama3-70b       64 fp8    128 1 8192 -    4  8 1  5  1  1602
25.11 h100  llama3-405b    1024 fp8    512 1 8192 -    8  8 2  8  1   292
25.11 h100  gpt-oss-120b     64 bf16   512 1 4096 -    1  4 1  1  8  5630
25.11 h100  qwen3-30b-a3b    16 fp8    512 1 4096 -    1  2 1 12  8  5275
25.11 h100  qwen3-235b-a22b 256 fp8   2048 1 4096 -    2  8 1  4 32  1575
26.02 gb300 llama3-70b        64 nvfp4  256 1 8192 -    1  4 1  5  1  6798
26.02 gb200 llama3-70b        64 nvfp4  256 1 8192 -    2  4 1  5  1  4458
26.02 gb300 llama3-70b        64 mxfp8  256 1 8192 -    1  4 1  5  1  4596
26.02 gb200 llama3-70b        64 mxfp8  256 1 8192 -    2  4 1  5  1  3613
26.02 gb300 llama3-70b        64 fp8    256 2 8192 fsdp 1  1 1  1  1  5003
26.02 gb200 llama3-70b        64 fp8    256 2 8192 fsdp 1  1 1  1  1  4040
26.02 h100  llama3-70b        64 fp8    256 1 8192 -    4  8 1  5  1  1621
26.02 gb300 llama3-405b      256 nvfp4 1536 1 8192 -    4  8 1  4  1  1333
26.02 gb200 llama3-405b      256 nvfp4 1536 1 8192 -    4 16 1  8  1  1076
26.02 gb300 llama3-405b      256 mxfp8 1536 1 8192 -    2  8 2  4  1   931
26.02 gb200 llama3-405b      256 mxfp8 1536 1 8192 -    4 16 1  8  1   786
26.02 gb300 llama3-405b      256 fp8   1536 1 8192 -    4  8 1  4  1   988
26.02 gb200 llama3-405b      256 fp8   1536 1 8192 -    4 16 1  4  1   793
26.02 h100  llama3-405b     1024 fp8   1536 1 8192 -    8  8 2  8  1   311
26.02 gb300 deepseek-v3      256 mxfp8 4096 2 4096 -    1  2 1  8 32  4612
26.02 gb200 deepseek-v3      256 mxfp8 4096 1 4096 -    1  4 1  4 64  3955
26.02 b300  deepseek-v3      256 mxfp8 4096 1 4096 -    1 16 1  1  8  2983
26.02 b200  deepseek-v3      256 mxfp8 4096 1 4096 -    1 16 1  1  8  2689
26.02 gb300 gpt-oss-120b      64 bf16  1280 4 4096 -    1  1 1  1 64 19412
26.02 gb200 gpt-oss-120b      64 bf16  1280 4 4096 -    1  1 1  1 64 15784
26.02 b300  gpt-oss-120b      64 bf16  1280 4 4096 -    1  1 1  1 64  8359
26.02 b200  gpt-oss-120b      64 bf16  1280 4 4096 -    1  1 1  1 64  8047
26.02 h100  gpt-oss-120b      64 bf16  1280 1 4096 -    1  4 1  1  8  5993
26.02 gb300 qwen3-30b-a3b      8 mxfp8  512 8 4096 -    1  1 1  1  8 30376
26.02 gb200 qwen3-30b-a3b      8 mxfp8  512 4 4096 -    1  1 1  1  8 26084
26.02 b300  qwen3-30b-a3b      8 mxfp8  512 8 4096 -    1  1 1  1  8 29521
26.02 b200  qwen3-30b-a3b      8 mxfp8  512 1 4096 -    1  1 1  1  8  9691
26.02 h100  qwen3-30b-a3b     16 fp8   1024 1 4096 -    1  2 1 12  8  5113
26.02 gb300 qwen3-235b-a22b  256 mxfp8 8192 2 4096 -    1  4 1  1 32  6583
26.02 gb200 qwen3-235b-a22b  256 mxfp8 8192 1 4096 -    1  8 1  1 32  5448
26.02 b300  qwen3-235b-a22b  256 mxfp8 8192 1 4096 -    1  8 1  4  8  2691
26.02 b200  qwen3-235b-a22b  256 mxfp8 8192 1 4096 -    1  8 1  1  8  3805
26.02 h100  qwen3-235b-a22b  256 fp8   8192 1 4096 -    2  8 1  4 32  1633
26.04 gb300 llama3-70b       64 fp8    256 2 8192 fsdp 1  1 1  1  1  5248
26.04 gb300 llama3-70b       64 mxfp8  256 1 8192 -    1  4 1  5  1  4864
26.04 gb300 llama3-70b       64 nvfp4  256 1 8192 -    1  4 1  5  1  7296
26.04 gb200 llama3-70b       64 fp8    256 2 8192 fsdp 1  1 1  1  1  4224
26.04 gb200 llama3-70b       64 mxfp8  256 1 8192 -    2  4 1  5  1  3712
26.04 gb200 llama3-70b       64 nvfp4  256 1 8192 -    2  4 1  5  1  4864
26.04 h100  llama3-70b       64 fp8    256 1 8192 -    4  8 1  5  1  1664
26.04 gb300 llama3-405b     256 fp8   1536 1 8192 -    4  8 1  4  1  1024
26.04 gb300 llama3-405b     256 mxfp8 1536 1 8192 -    2  8 2  4  1   960
26.04 gb300 llama3-405b     256 nvfp4 1536 1 8192 -    4  8 1  4  1  1440
26.04 gb200 llama3-405b     256 fp8   1536 1 8192 -    4 16 1  4  1   864
26.04 gb200 llama3-405b     256 mxfp8 1536 1 8192 -    4 16 1  8  1   800
26.04 gb200 llama3-405b     256 nvfp4 1536 1 8192 -    4 16 1  8  1  1184
26.04 h100  llama3-405b    1024 fp8   1536 1 8192 -    8  8 2  8  1   328
26.04 gb300 deepseek-v3     256 mxfp8 4096 2 4096 -    1  2 1  8 32  4992
26.04 gb200 deepseek-v3     256 mxfp8 4096 1 4096 -    1  4 1  4 64  4256
26.04 b300  deepseek-v3     256 mxfp8 4096 2 4096 -    1  8 1  1  8  3456
26.04 b200  deepseek-v3     256 mxfp8 4096 1 4096 -    1  8 1  2 32  3328
26.04 gb300 gpt-oss-120b     64 bf16  1280 4 4096 -    1  1 1  1 64 19200
26.04 gb200 gpt-oss-120b     64 bf16  1280 4 4096 -    1  1 1  1 64 16640
26.04 b300  gpt-oss-120b     64 bf16  1280 4 4096 -    1  1 1  1  8 15232
26.04 b200  gpt-oss-120b     64 bf16  1280 4 4096 -    1  1 1  1  8 13568
26.04 h100  gpt-oss-120b     64 bf16  1280 1 4096 -    1  4 1  1  8  5824
26.04 gb300 qwen3-30b-a3b     8 mxfp8  512 8 4096 -    1  1 1  1  8 31744
26.04 gb200 qwen3-30b-a3b     8 mxfp8  512 4 4096 -    1  1 1  1  8 26112
26.04 b300  qwen3-30b-a3b     8 mxfp8  512 8 4096 -    1  1 1  1  8 30720
26.04 b200  qwen3-30b-a3b     8 mxfp8  512 4 4096 -    1  1 1  1  8 27136
26.04 h100  qwen3-30b-a3b    16 fp8   1024 1 4096 -    1  1 1  1 16  8960
26.04 gb300 qwen3-235b-a22b 256 mxfp8 8192 2 4096 -    1  4 1 12 32  6944
26.04 gb200 qwen3-235b-a22b 256 mxfp8 8192 1 4096 -    1  8 1  3 32  5680
26.04 b300  qwen3-235b-a22b 256 mxfp8 8192 2 4096 -    1  8 1  1  8  5936
26.04 b200  qwen3-235b-a22b 256 mxfp8 8192 1 4096 -    1  8 1  1  8  3776
26.04 h100  qwen3-235b-a22b 256 fp8   8192 1 4096 -    2  8 1  4 32  1712
26.06 gb300 llama3-405b     256 fp8   1536 1 8192 -    4  8 1  4  1  1048
26.06 gb200 llama3-405b     256 fp8   1536 1 8192 -    4 16 1  4  1   843
26.06 h100  llama3-405b    1024 fp8   1536 1 8192 -    8  8 2  8  1   326
26.06 gb300 deepseek-v3     256 mxfp8 4096 1 4096 -    1  2 1  8 32  6338
26.06 gb200 deepseek-v3     256 mxfp8 4096 1 4096 -    1  4 1  4 64  4969
26.06 b300  deepseek-v3     256 mxfp8 4096 2 4096 -    1  8 1  1  8  3541
26.06 gb300 gpt-oss-120b     64 mxfp8 1280 4 4096 -    1  1 1  1 16 33166
26.06 gb200 gpt-oss-120b     64 mxfp8 1280 4 4096 -    1  1 1  1 64 28947
26.06 b300  gpt-oss-120b     64 mxfp8 1280 4 4096 -    1  1 1  1  8 18534
26.06 gb300 qwen3-30b-a3b     8 mxfp8  512 8 4096 -    1  1 1  1  8 45275
26.06 gb200 qwen3-30b-a3b     8 mxfp8  512 4 4096 -    1  1 1  1  8 40706
26.06 b300  qwen3-30b-a3b     8 mxfp8  512 8 4096 -    1  1 1  1  8 40769
26.06 h100  qwen3-30b-a3b    16 fp8   1024 1 4096 -    1  1 1  1 16  8826
26.06 gb300 qwen3-235b-a22b 256 mxfp8 8192 2 4096 -    1  4 1 12 32  9015
26.06 gb200 qwen3-235b-a22b 256 mxfp8 8192 1 4096 -    1  8 1  3 32  7376
26.08 gb300 deepseek-v3      256 mxfp8 4096 1 4096 -    1  2 1  8 32  6288
26.08 gb200 deepseek-v3      256 mxfp8 4096 1 4096 -    1  4 1  4 64  4912
26.08 gb300 gpt-oss-120b      64 mxfp8 1280 4 4096 -    1  1 1  1 16 33024
26.08 gb200 gpt-oss-120b      64 mxfp8 1280 4 4096 -    1  1 1  1 64 28672
26.08 gb300 qwen3-30b-a3b      8 mxfp8  512 8 4096 -    1  1 1  1  8 44544
26.08 gb200 qwen3-30b-a3b      8 mxfp8  512 4 4096 -    1  1 1  1  8 39936
26.08 gb300 qwen3-235b-a22b  256 mxfp8 8192 2 4096 -    1  4 1 12 32  8816
26.08 gb200 qwen3-235b-a22b  256 mxfp8 8192 1 4096 -    1  8 1  3 32  7280
"""


# Qwen3 30B on 16 H100 in BF16, which Megatron Bridge 067f987 compares with and without overlap in
# skills/nemo-mbridge-perf-expert-parallel-overlap/SKILL.md: HybridEP or all-to-all, overlap, seconds. The
# overlap of transfers within and between nodes was modelled with knowledge of these steps.
_COMPARED = ((True, False, 24.7138), (True, True, 20.992), (False, False, 41.25), (False, True, 31.31))


def compared_steps() -> Iterator[Step]:
    """Yield the published steps that differ only in the dispatcher and the overlap of experts."""
    model = _MODELS["qwen3-30b-a3b"]
    for deduplicates, overlaps, seconds in _COMPARED:
        plan = Plan(dp=16, ep=16, global_batch=1024, zero=1, grad_bytes=2, sequence=4096,
                    deduplicate=deduplicates, expert_overlap=overlaps)  # fmt: skip
        label = f"h100 {model.name} {'HybridEP' if deduplicates else 'all-to-all'}{', overlap' * overlaps}"
        yield Step("Megatron Bridge, compared", label, "experts", "h100", "megatron", "h100", model, plan,
                   seconds * 1e9)  # fmt: skip


def bridge_steps() -> Iterator[Step]:
    """Yield the published steps, with dense models and experts as separate data sets."""
    yield from compared_steps()
    for line in _TABLE.split("\n")[1:-1]:
        release, chip, name, *cells = line.split()
        ranks, precision, batch, micro_batch, sequence, sharding, *numbers = cells
        tp, pp, cp, chunks, ep, speed = map(int, numbers)
        model = _MODELS[name] if name in _MODELS else find_model(name)
        plan = Plan(
            tp=tp,
            pp=pp,
            cp=cp,
            dp=int(ranks) // (tp * pp * cp),
            ep=ep,
            expert_tp=1 if ep > 1 and tp > 1 else 0,
            micro_batch=int(micro_batch),
            global_batch=int(batch),
            sequence=int(sequence),
            chunks=chunks,
            schedule="interleaved" if chunks > 1 else "1f1b",
            zero=3 if sharding == "fsdp" else 1,
            precision=precision,
            grad_bytes=2,
            sequence_parallel=tp > 1,
            tensor_overlap=tp > 1 and precision != "nvfp4" and (chip, name) not in _NO_TENSOR_OVERLAP,
            recompute=_recomputed(chip, name, sharding),
            **_options(release, chip, name, precision),
        )
        tokens = int(batch) * int(sequence) / int(ranks)
        kind = "experts" if model.experts else "dense"
        label = f"{chip} {name} {precision} on {ranks}"
        fabric = "gb200" if chip.startswith("gb") else "b200" if chip.startswith("b") else "h100"
        yield Step(f"Megatron Bridge {release}", label, kind, chip, "megatron", fabric, model, plan,
                   tokens / speed * 1e9)  # fmt: skip


def _recomputed(chip: str, name: str, sharding: str) -> str:
    """Return the `Plan.recompute` of a recipe; Llama 3 8B on H100 recomputes five layers."""
    if sharding != "fsdp":
        return "none"
    return f"offload:{_OFFLOADED[chip]}" if name == "llama3-70b" else "5"


def _options(release: str, chip: str, name: str, precision: str) -> dict[str, bool]:
    """Return the token dispatcher of a recipe, and whether its steps are CUDA graphs."""
    if name.startswith("llama"):
        return {"cuda_graphs": name == "llama3-8b" and chip != "h100"}
    graphs = release > "26.05" and precision == "mxfp8" and (chip, name) not in _NO_GRAPHS
    plain = _PLAIN | (_PLAIN_IN_26_02 if release == "26.02" else set())
    if name == "gpt-oss-120b":
        flexible = graphs or (chip == "b300" and release > "26.03")
    else:
        flexible = (release > "26" or chip.startswith("gb")) and (chip, name) not in plain
    overlapped = graphs or (release, chip, name) in _OVERLAPPED or (chip, name) == ("h100", "qwen3-235b-a22b")
    return {"deduplicate": flexible, "expert_overlap": overlapped, "cuda_graphs": graphs}
