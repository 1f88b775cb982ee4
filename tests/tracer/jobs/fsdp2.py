"""Train with parameters sharded over all ranks (FSDP2); with --hybrid over two, and replicated."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
world = dist.get_world_size()
if "--hybrid" in sys.argv:
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("replicate", "shard"))
else:
    mesh = init_device_mesh("cpu", (world,))
blocks = [
    torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16)) for _ in range(2)
]
model = torch.nn.Sequential(*blocks)
for block in model:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(5):
    optimizer.zero_grad()
    model(torch.rand(4, 16)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
