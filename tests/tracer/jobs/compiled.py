"""Train a compiled model with DistributedDataParallel."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
model = torch.compile(torch.nn.parallel.DistributedDataParallel(model), backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
recompilations = sum(torch._dynamo.utils.counters["recompiles"].values())
print(f"recompilations {recompilations}\n", end="", flush=True)
dist.destroy_process_group()
