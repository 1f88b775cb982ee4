"""Train a model with one stage per rank and the 1F1B schedule; ``--replicated`` trains two replicas.

A number sets the number of micro-batches.
"""

import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
micro_batches = next((int(word) for word in sys.argv[1:] if word.isdigit()), 4)
replicas = 2 if "--replicated" in sys.argv else 1
mesh = init_device_mesh("cpu", (replicas, dist.get_world_size() // replicas), mesh_dim_names=("data", "pipe"))
rank, stages = mesh["pipe"].get_local_rank(), mesh["pipe"].size()
layers = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU())
if replicas > 1:
    layers = DistributedDataParallel(layers, process_group=mesh.get_group("data"))
stage = PipelineStage(layers, rank, stages, torch.device("cpu"), group=mesh.get_group("pipe"))
schedule = Schedule1F1B(stage, n_microbatches=micro_batches, loss_fn=torch.nn.functional.mse_loss)
optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    inputs = (torch.rand(2 * micro_batches, 16),) if rank == 0 else ()
    schedule.step(*inputs, **({"target": torch.rand(2 * micro_batches, 16)} if rank == stages - 1 else {}))
    optimizer.step()
dist.destroy_process_group()
