"""Train a language model on a mesh of ranks: tensor parallel inside a node, FSDP2 between the nodes.

Alone:        python train.py
Four ranks:   torchrun --nproc-per-node 4 train.py --tensor 2
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Block(nn.Module):
    def __init__(self, width, head_width):
        super().__init__()
        self.head_width = head_width
        self.norm1 = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def heads(self, x):
        return x.unflatten(-1, (-1, self.head_width)).transpose(1, 2)

    def forward(self, x):
        normed = self.norm1(x)
        q, k, v = (self.heads(project(normed)) for project in (self.query, self.key, self.value))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class LanguageModel(nn.Module):
    def __init__(self, vocabulary, width, layers, length):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, head_width=32) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def spread(model, mesh):
    """Split every block's matrices over the mesh's tensor ranks, and shard all parameters over the others."""
    plan = dict.fromkeys(("query", "key", "value", "up"), ColwiseParallel())
    plan.update(dict.fromkeys(("out", "down"), RowwiseParallel()))
    for block in model.blocks:
        if mesh["tensor"].size() > 1:
            parallelize_module(block, mesh["tensor"], plan)
        fully_shard(block, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument(
        "--tensor",
        type=int,
        default=1,
        help="tensor parallelism: number of ranks that share a layer's matrices",
    )
    parser.add_argument("--batch", type=int, default=2, help="sequences per group of tensor-parallel ranks")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--vocabulary", type=int, default=2048)
    return parser.parse_args()


def main():
    args = parse_arguments()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    backend = "nccl" if device == "cuda" else "gloo"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    data_ranks = dist.get_world_size() // args.tensor
    mesh = init_device_mesh(device, (data_ranks, args.tensor), mesh_dim_names=("data", "tensor"))
    torch.manual_seed(0)
    model = LanguageModel(args.vocabulary, args.width, args.layers, args.length).to(device)
    spread(model, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    data = torch.Generator().manual_seed(mesh["data"].get_local_rank())
    started = time.perf_counter()
    for _ in range(args.steps):
        tokens = torch.randint(args.vocabulary, (args.batch, args.length + 1), generator=data).to(device)
        optimizer.zero_grad(set_to_none=True)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(
            f"{args.steps} steps: loss {loss.item():.3f}, {time.perf_counter() - started:.1f} s", flush=True
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
