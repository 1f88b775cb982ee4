"""Gradients compressed by PowerSGD: its further all-reduces are issued by the threads that end the first.

Rank 0 is always first, so that none of its all-reduces has ended when the hook asks to be called at its end:
that would be in the thread that trains. The group is left to the end of the process: torch at times aborts if
it is destroyed after such steps.
"""

import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 64))
state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(8):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 32)).square().sum()
    if dist.get_rank() == 1:
        time.sleep(0.05)
    loss.backward()
    optimizer.step()
