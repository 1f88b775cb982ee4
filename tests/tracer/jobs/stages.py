"""Train blocks between an embedding and a head, cut into one stage per rank, on gloo.

``--stages 1`` trains without a pipeline; ranks that are left replicate the stages.
"""

import argparse
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
for name, value in {"stages": 2, "layers": 4, "micro-batches": 4, "width": 16}.items():
    parser.add_argument(f"--{name}", type=int, default=value)
parser.add_argument("--schedule", choices=("1f1b", "gpipe"), default="1f1b")
parser.add_argument("--numbered-anew", action="store_true")
args = parser.parse_args()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(args.width), nn.Linear(args.width, 4 * args.width)
        self.down = nn.Linear(4 * args.width, args.width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, stage):
        super().__init__()
        mine = range(stage * args.layers // args.stages, (stage + 1) * args.layers // args.stages)
        self.embedding = nn.Embedding(64, args.width) if stage == 0 else None
        first = mine.start if args.numbered_anew else 0
        self.layers = nn.ModuleDict({str(number - first): Block() for number in mine})
        self.head = nn.Linear(args.width, 64) if stage == args.stages - 1 else None

    def forward(self, x):
        if self.embedding is not None:
            x = self.embedding(x)
        for layer in self.layers.values():
            x = layer(x)
        return x if self.head is None else self.head(x)


def loss_of(prediction, labels):
    return nn.functional.cross_entropy(prediction.flatten(0, 1), labels.flatten())


dist.init_process_group("gloo")
replicas = dist.get_world_size() // args.stages
mesh = init_device_mesh("cpu", (replicas, args.stages), mesh_dim_names=("data", "pipe"))
number = mesh["pipe"].get_local_rank()
model = Model(number)
if replicas > 1:
    model = DistributedDataParallel(model, process_group=mesh.get_group("data"))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=False)
if args.stages > 1:
    stage = PipelineStage(model, number, args.stages, torch.device("cpu"), group=mesh.get_group("pipe"))
    kind = Schedule1F1B if args.schedule == "1f1b" else ScheduleGPipe
    schedule = kind(stage, n_microbatches=args.micro_batches, loss_fn=loss_of)
samples = 2 * (args.micro_batches if args.stages > 1 else 1)
for _ in range(5):
    tokens = torch.randint(64, (samples, 8))
    optimizer.zero_grad()
    if args.stages > 1:
        inputs = (tokens,) if number == 0 else ()
        schedule.step(*inputs, **({"target": tokens} if number == args.stages - 1 else {}))
    else:
        for count in range(args.micro_batches):
            is_last = count == args.micro_batches - 1
            with contextlib.nullcontext() if is_last or replicas == 1 else model.no_sync():
                (loss_of(model(tokens), tokens) / args.micro_batches).backward()
    optimizer.step()
dist.destroy_process_group()
