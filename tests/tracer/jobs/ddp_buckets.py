"""Train with DistributedDataParallel in several buckets: parameters left out, a static graph, a hook.

One model has an unused layer that it must detect, one has a static graph with two types and a layer used
twice, and one reduces its gradients in half precision.
"""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel


class Partly(nn.Module):
    """Six used layers and an unused one, with a buffer."""

    def __init__(self, *, twice):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(6))
        self.unused, self.norm = nn.Linear(256, 256), nn.BatchNorm1d(256)
        self.head, self.twice = nn.Linear(256, 8).double(), twice

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        if self.twice:
            x = self.layers[2](x)
        return self.head(self.norm(x).double())


dist.init_process_group("gloo")
looking = DistributedDataParallel(Partly(twice=False), bucket_cap_mb=0.5, find_unused_parameters=True)
static = DistributedDataParallel(Partly(twice=True), bucket_cap_mb=0.5, static_graph=True)
halved = DistributedDataParallel(nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 8)), bucket_cap_mb=0.1)
halved.register_comm_hook(None, default_hooks.fp16_compress_hook)
models = (looking, static, halved)
optimizer = torch.optim.Adam([parameter for model in models for parameter in model.parameters()])
for _ in range(6):
    optimizer.zero_grad()
    for part in range(2):
        with looking.no_sync() if part == 0 else contextlib.nullcontext():
            looking(torch.rand(4, 256)).sum().backward()
    static(torch.rand(4, 256)).sum().backward()
    halved(torch.rand(4, 256)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
