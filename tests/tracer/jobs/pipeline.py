"""Train a model cut into one stage a rank, with the 1F1B schedule."""

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
layers = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU())
stage = PipelineStage(layers, rank, world, torch.device("cpu"))
schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    inputs = (torch.rand(8, 16),) if rank == 0 else ()
    schedule.step(*inputs, **({"target": torch.rand(8, 16)} if rank == world - 1 else {}))
    optimizer.step()
dist.destroy_process_group()
