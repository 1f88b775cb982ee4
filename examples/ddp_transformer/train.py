"""Train a small language model with DistributedDataParallel and gradient accumulation.

Alone:        python train.py
Two ranks:    torchrun --nproc-per-node 2 train.py --epochs 1
"""

import argparse
import contextlib
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class LanguageModel(nn.Module):
    def __init__(self, vocabulary, width, layers, heads, length):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10, help="optimizer steps per epoch")
    parser.add_argument("--accumulate", type=int, default=2, help="micro-batches per step")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=2048)
    return parser.parse_args()


def train_step(model, optimizer, tokens, accumulate):
    optimizer.zero_grad(set_to_none=True)
    total = 0.0
    for index, micro_batch in enumerate(tokens.chunk(accumulate)):
        last = index == accumulate - 1
        synchronise = last or not isinstance(model, DistributedDataParallel)
        with contextlib.nullcontext() if synchronise else model.no_sync():
            logits = model(micro_batch[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), micro_batch[:, 1:].flatten()) / accumulate
            loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return total


def main():
    args = parse_arguments()
    distributed = "RANK" in os.environ
    cuda = torch.cuda.is_available()
    rank = int(os.environ.get("RANK", "0"))
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if distributed:
        dist.init_process_group("nccl" if cuda else "gloo")
    torch.manual_seed(0)
    model = LanguageModel(args.vocabulary, args.width, args.layers, heads=4, length=args.length).to(device)
    if distributed:
        model = DistributedDataParallel(model, device_ids=[device] if cuda else None, bucket_cap_mb=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * args.steps)
    data = torch.Generator().manual_seed(rank)
    for epoch in range(args.epochs):
        started = time.perf_counter()
        for _ in range(args.steps):
            shape = (args.batch * args.accumulate, args.length + 1)
            tokens = torch.randint(args.vocabulary, shape, generator=data)
            loss = train_step(model, optimizer, tokens.to(device), args.accumulate)
            schedule.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss:.3f}, {time.perf_counter() - started:.1f} s", flush=True)
    if distributed:
        del model  # before the group, because PyTorch 2.13 may hang if the model outlives the group
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
