"""Train a model of two stages on each rank; the argument is the schedule: interleaved, or zero-bubble."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B, ScheduleZBVZeroBubble

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
zero_bubble = "zero-bubble" in sys.argv
places = [rank, 2 * ranks - 1 - rank if zero_bubble else rank + ranks]
parts = [nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)) for _ in places]
stages = [
    PipelineStage(part, place, 2 * ranks, torch.device("cpu"))
    for part, place in zip(parts, places, strict=True)
]
kind = ScheduleZBVZeroBubble if zero_bubble else ScheduleInterleaved1F1B
schedule = kind(stages, n_microbatches=4, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.SGD([parameter for part in parts for parameter in part.parameters()], lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    inputs = (torch.rand(8, 16),) if 0 in places else ()
    schedule.step(*inputs, **({"target": torch.rand(8, 16)} if 2 * ranks - 1 in places else {}))
    optimizer.step()
dist.destroy_process_group()
