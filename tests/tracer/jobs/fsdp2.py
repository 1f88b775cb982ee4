"""Train with parameters sharded over all ranks (FSDP2); with --hybrid, sharded over two and replicated over the rest."""

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
world = dist.get_world_size()
shape, names = ((world // 2, 2), ("replicate", "shard")) if "--hybrid" in sys.argv else ((world,), ("shard",))
mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
blocks = [torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16)) for _ in range(2)]
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
