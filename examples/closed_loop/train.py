"""Training jobs of two ranks on gloo for `benchmarks/closed_loop.py`; each prints its step times.

torchrun --nproc-per-node 2 examples/closed_loop/train.py ddp
"""

import argparse
import itertools
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

MICRO_BATCHES = 8
BUCKET_MB = 4


def perceptron(width, layers):
    return nn.Sequential(*(module for _ in range(layers) for module in (nn.Linear(width, width), nn.ReLU())))


def plain_step(model, parameters, batch):
    optimizer = torch.optim.SGD(parameters, lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    return step


def ddp(options, batch):
    """Train with gradients in buckets that are reduced during the backward pass."""
    model = DistributedDataParallel(perceptron(options.width, options.layers), bucket_cap_mb=BUCKET_MB)
    return plain_step(model, model.parameters(), batch)


def fsdp(options, batch):
    """Train with sharded parameters that are gathered when needed, and scattered gradients."""
    model = perceptron(options.width, options.layers)
    for module in model:
        if isinstance(module, nn.Linear):
            fully_shard(module)
    fully_shard(model)
    return plain_step(model, model.parameters(), batch)


def tensor(options, batch):
    """Train pairs of layers that are split by columns and rows, with an all-reduce for each pair."""
    model = perceptron(options.width, options.layers)
    plan = {str(2 * i): ColwiseParallel() if i % 2 == 0 else RowwiseParallel() for i in range(options.layers)}
    parallelize_module(model, init_device_mesh("cpu", (dist.get_world_size(),)), plan)
    return plain_step(model, model.parameters(), batch)


def pipeline(options, batch):
    """Train half of the layers on each rank, with alternating forward and backward passes."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = perceptron(options.width, options.layers // ranks)
    stage = PipelineStage(model, rank, ranks, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=F.mse_loss)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(batch)
        else:
            schedule.step(target=batch)
        optimizer.step()

    return step


class Exchange(torch.autograd.Function):
    """Send the tokens of every rank to the experts of all ranks, and return their gradients."""

    @staticmethod
    def forward(ctx, tokens):
        out = torch.empty_like(tokens)
        dist.all_to_all_single(out, tokens.contiguous())
        return out

    @staticmethod
    def backward(ctx, gradient):
        out = torch.empty_like(gradient)
        dist.all_to_all_single(out, gradient.contiguous())
        return out


class ExpertLayer(nn.Module):
    """A dense layer, and one expert on each rank."""

    def __init__(self, width):
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.expert = nn.Linear(width, width)

    def forward(self, x):
        x = F.relu(self.dense(x))
        return x + Exchange.apply(F.relu(self.expert(Exchange.apply(x))))


def experts(options, batch):
    """Send tokens to the experts' ranks and back, and reduce dense gradients at the end."""
    model = nn.Sequential(*(ExpertLayer(options.width) for _ in range(options.layers // 2)))
    dense = [parameter for name, parameter in model.named_parameters() if "dense" in name]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        for parameter in dense:
            dist.all_reduce(parameter.grad)
        optimizer.step()

    return step


JOBS = {"ddp": ddp, "fsdp": fsdp, "tensor": tensor, "pipeline": pipeline, "experts": experts}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=512)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    step = JOBS[options.job](options, torch.randn(options.batch, options.width))
    dist.barrier()
    ends = [time.perf_counter_ns()]
    for _ in range(options.steps):
        step()
        ends.append(time.perf_counter_ns())
    steps = [after - before for before, after in itertools.pairwise(ends)]
    print(json.dumps({"rank": dist.get_rank(), "pid": os.getpid(), "steps_ns": steps}), flush=True)
    dist.barrier()
    del step  # before the group, because PyTorch 2.13 may hang if the model outlives the group
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
