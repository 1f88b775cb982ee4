"""Make process groups inside the training loop, while it is captured."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
group = None
for step in range(6):
    if step == 3:
        group = dist.new_group([0, 1], group_desc="late")
    weight.sum().backward()
    dist.all_reduce(weight.grad, group=group)
    optimizer.step()
dist.destroy_process_group()
