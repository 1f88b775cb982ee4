"""Train a small Llama as torchtitan does: pipeline stages, tensor parallelism with sequences split, FSDP2."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

parser = argparse.ArgumentParser()
for name, value in {
    "dp": 1, "tp": 1, "pp": 1, "layers": 4, "width": 64, "heads": 8, "hidden": 176, "length": 32, "batch": 4,
    "micro-batches": 4, "vocabulary": 256,
}.items():  # fmt: skip
    parser.add_argument(f"--{name}", type=int, default=value)
parser.add_argument("--recompute", action="store_true")
args = parser.parse_args()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(args.width, args.width, bias=False) for _ in range(4))

    def forward(self, x):
        batch, length, _ = x.shape
        parts = [w(x).view(batch, length, -1, args.width // args.heads) for w in (self.wq, self.wk, self.wv)]
        q, k, v = (part.transpose(1, 2) for part in parts)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w3 = (nn.Linear(args.width, args.hidden, bias=False) for _ in range(2))
        self.w2 = nn.Linear(args.hidden, args.width, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.feed_forward = Attention(), FeedForward()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(args.width), nn.RMSNorm(args.width)

    def forward(self, x):
        h = x + self.attention(self.attention_norm(x))
        return h + self.feed_forward(self.ffn_norm(h))


class Model(nn.Module):
    """One stage of the model; layers of other stages are None."""

    def __init__(self, stage, stages):
        super().__init__()
        mine = range(stage * args.layers // stages, (stage + 1) * args.layers // stages)
        self.tok_embeddings = nn.Embedding(args.vocabulary, args.width) if stage == 0 else None
        self.layers = nn.ModuleDict({str(number): Block() for number in mine})
        last = stage == stages - 1
        self.norm = nn.RMSNorm(args.width) if last else None
        self.output = nn.Linear(args.width, args.vocabulary, bias=False) if last else None

    def forward(self, x):
        h = self.tok_embeddings(x) if self.tok_embeddings is not None else x
        for layer in self.layers.values():
            h = layer(h)
        return self.output(self.norm(h)) if self.output is not None else h


def split(model, mesh):
    top = {
        "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    parallelize_module(
        model, mesh, {name: plan for name, plan in top.items() if getattr(model, name) is not None}
    )
    gathered = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    plan = {
        "attention_norm": SequenceParallel(), "ffn_norm": SequenceParallel(),
        "attention": gathered, "feed_forward": gathered,
        "attention.wq": ColwiseParallel(), "attention.wk": ColwiseParallel(),
        "attention.wv": ColwiseParallel(),
        "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
        "feed_forward.w1": ColwiseParallel(), "feed_forward.w3": ColwiseParallel(),
        "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
    }  # fmt: skip
    for block in model.layers.values():
        parallelize_module(block, mesh, plan)


device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}")
torch.cuda.set_device(device)
dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (args.pp, args.dp, args.tp), mesh_dim_names=("pp", "dp", "tp"))
stage = mesh["pp"].get_local_rank()
with torch.device("meta"):
    model = Model(stage, args.pp)
if args.tp > 1:
    split(model, mesh["tp"])
if args.recompute:
    for number, block in model.layers.items():
        model.layers[number] = checkpoint_wrapper(block, preserve_rng_state=False)
if args.dp > 1:
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.layers.values():
        fully_shard(block, mesh=mesh["dp"], mp_policy=precision, reshard_after_forward=args.pp == 1)
    fully_shard(model, mesh=mesh["dp"], mp_policy=precision, reshard_after_forward=args.pp == 1)
model.to_empty(device=device)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, foreach=True)


def loss_of(prediction, labels):
    return F.cross_entropy(prediction.flatten(0, 1).float(), labels.flatten())


if args.pp > 1:
    parts = PipelineStage(model, stage, args.pp, device, group=mesh["pp"].get_group())
    schedule = Schedule1F1B(parts, n_microbatches=args.micro_batches, loss_fn=loss_of)
for _ in range(4):
    tokens = torch.randint(args.vocabulary, (args.batch, args.length), device=device)
    optimizer.zero_grad()
    if args.pp > 1:
        given = (tokens,) if stage == 0 else ()
        schedule.step(*given, **({"target": tokens} if stage == args.pp - 1 else {}))
    else:
        loss_of(model(tokens), tokens).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
dist.destroy_process_group()
