#!/usr/bin/env python3
"""Small training jobs for ``scripts/gpu_check``: plain PyTorch, as users write it.

``torchrun --nproc-per-node N scripts/gpu_jobs.py JOB`` trains JOB for ``--steps`` steps. With ``--times
FILE``, rank 0 writes the step time in seconds, over the second half of the steps. With ``--profile FILE``,
rank 0 writes the kernel time of a step by torch.profiler.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

Step = Callable[[], None]


@dataclass(frozen=True)
class Size:
    """The sizes of the models, for a job on GPUs or for a job that takes seconds on any machine."""

    width: int
    layers: int
    length: int
    batch: int


LARGE = Size(width=1024, layers=8, length=512, batch=8)
SMALL = Size(width=32, layers=2, length=16, batch=2)


class Transformer(nn.Module):
    """A causal Transformer of plain blocks."""

    def __init__(self, size: Size, words: int = 1000) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, size.width)
        heads = max(1, size.width // 64)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                size.width, heads, 4 * size.width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(size.layers)
        )
        self.head = nn.Linear(size.width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the loss of predicting each token from the previous tokens."""
        hidden = self.embedding(tokens)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        for block in self.blocks:
            hidden = block(hidden, src_mask=mask, is_causal=True)
        logits = self.head(hidden[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class Denoiser(nn.Module):
    """The core of a diffusion model: convolutions down and up, given the noise level, with one attention."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        width = size.width // 4
        self.level = nn.Sequential(nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width))
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList(nn.Conv2d(width, width, 3, 2, 1) for _ in range(2))
        self.middle = nn.MultiheadAttention(width, 1, batch_first=True)
        self.up = nn.ModuleList(nn.ConvTranspose2d(width, width, 4, 2, 1) for _ in range(2))
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, images: torch.Tensor, level: torch.Tensor) -> torch.Tensor:
        """Return the predicted noise of *images* at *level*."""
        hidden = self.first(images) + self.level(level)[:, :, None, None]
        passed = []
        for layer in self.down:
            passed.append(hidden)
            hidden = functional.silu(layer(hidden))
        places = hidden.flatten(2).transpose(1, 2)
        places = places + self.middle(places, places, places, need_weights=False)[0]
        hidden = places.transpose(1, 2).reshape(hidden.shape)
        for layer in self.up:
            hidden = functional.silu(layer(hidden)) + passed.pop()
        predicted: torch.Tensor = self.last(hidden)
        return predicted


def transformer(size: Size, device: torch.device, mode: str | None) -> Step:
    """Return a step of the Transformer with DDP, compiled in *mode* unless that is None."""
    model: nn.Module = Transformer(size).to(device)
    model = nn.parallel.DistributedDataParallel(model)
    run = model if mode is None else torch.compile(model, mode=mode)
    return _language_step(run, model, size, device)


def fsdp(size: Size, device: torch.device, mode: str | None) -> Step:
    """Return a step of the Transformer with FSDP2, which shards each block, then the other parameters."""
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415 - other jobs need none
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    model = Transformer(size).to(device)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return _language_step(model, model, size, device)


def diffusion(size: Size, device: torch.device, mode: str | None) -> Step:
    """Return a step of the denoiser with DDP."""
    model = nn.parallel.DistributedDataParallel(Denoiser(size).to(device))
    optimizer = torch.optim.AdamW(model.parameters())
    side = max(16, size.width // 8)
    images = torch.randn(size.batch, 3, side, side, device=device)

    def step() -> None:
        noise = torch.randn_like(images)
        level = torch.rand(size.batch, 1, device=device)
        noisy = images + level[:, :, None, None] * noise
        optimizer.zero_grad(set_to_none=True)
        functional.mse_loss(model(noisy, level), noise).backward()
        optimizer.step()

    return step


def _language_step(run: Callable[..., Any], model: nn.Module, size: Size, device: torch.device) -> Step:
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.randint(0, 1000, (size.batch, size.length), device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16):
            loss = run(tokens)
        loss.backward()
        optimizer.step()

    return step


def train(step: Step, device: torch.device, steps: int, times: Path | None, profile: Path | None) -> None:
    """Run *steps*; write the step time to *times*, and the time of kernels by torch.profiler to *profile*."""
    early = steps // 2
    for _ in range(early):
        step()
    wait(device)
    if profile is not None:
        write(profile, profiled(step, device, steps - early))
        return
    began = time.perf_counter()
    for _ in range(steps - early):
        step()
    wait(device)
    if times is not None:
        write(times, (time.perf_counter() - began) / (steps - early))


def profiled(step: Step, device: torch.device, steps: int) -> float:
    """Return the seconds of kernels in a step, by torch.profiler."""
    from torch.profiler import ProfilerActivity, profile  # noqa: PLC0415 - it takes a while

    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities) as record:
        for _ in range(steps):
            step()
        wait(device)
    return float(sum(event.self_device_time_total for event in record.key_averages()) / 1e6 / steps)


def hugging_face(size: Size, device: torch.device, steps: int, times: Path | None) -> None:
    """Train a small GPT-2 with Hugging Face's `Trainer`; write the step time to *times*."""
    import transformers  # noqa: PLC0415 - an extra of the project's developers

    config = transformers.GPT2Config(
        vocab_size=1000,
        n_positions=size.length,
        n_embd=size.width,
        n_layer=size.layers,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    tokens = torch.randint(0, 1000, (4 * steps * size.batch, size.length))
    data = [{"input_ids": row, "labels": row} for row in tokens]
    ends: list[float] = []

    class Clock(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ends.append(time.perf_counter())

    arguments = transformers.TrainingArguments(
        output_dir=os.environ.get("TMPDIR", "/tmp"),
        max_steps=steps,
        per_device_train_batch_size=size.batch,
        use_cpu=device.type == "cpu",
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    model = transformers.GPT2LMHeadModel(config)
    transformers.Trainer(model, arguments, train_dataset=data, callbacks=[Clock()]).train()
    wait(device)
    if times is not None:
        later = ends[len(ends) // 2 :]
        write(times, (later[-1] - later[0]) / max(1, len(later) - 1))


def wait(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def write(path: Path, seconds: float) -> None:
    """Write *seconds* to *path* on rank 0."""
    if int(os.environ.get("RANK", "0")) == 0:
        path.write_text(json.dumps({"seconds": seconds}), encoding="utf-8")


JOBS: dict[str, tuple[Callable[[Size, torch.device, str | None], Step], str | None]] = {
    "transformer": (transformer, "default"),
    "graphs": (transformer, "reduce-overhead"),
    "fsdp": (fsdp, None),
    "diffusion": (diffusion, None),
}
TRAINER = "trainer"


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=[*JOBS, TRAINER])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--small", action="store_true", help="small models without torch.compile")
    parser.add_argument("--times", type=Path)
    parser.add_argument("--profile", type=Path)
    given = parser.parse_args()
    size = SMALL if given.small else LARGE
    # If there are more processes than GPUs, processes share GPUs.
    local = int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device(given.device)
    if given.device == "cuda":
        device = torch.device("cuda", local % torch.cuda.device_count())
        torch.cuda.set_device(device)
    if given.job == TRAINER:
        hugging_face(size, device, given.steps, given.times)
        return
    dist.init_process_group("nccl" if given.device == "cuda" else "gloo")
    torch.manual_seed(0)
    make, mode = JOBS[given.job]
    train(make(size, device, None if given.small else mode), device, given.steps, given.times, given.profile)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
