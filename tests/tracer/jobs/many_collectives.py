"""Two data-parallel ranks that accumulate, clip, and use every kind of communication of scripts."""

import contextlib

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


class Reduced(torch.autograd.Function):
    """Sums over ranks in the forward pass, and passes its gradient on."""

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        gathered = [torch.empty_like(gradient) for _ in range(world)]
        dist.all_gather(gathered, gradient.contiguous())
        return gathered[rank]


class Model(torch.nn.Module):
    """Layers that are recomputed, with a collective in between."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
        return Reduced.apply(x)


model = torch.nn.parallel.DistributedDataParallel(Model())
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
for _ in range(5):
    for part in range(3):
        with model.no_sync() if part < 2 else contextlib.nullcontext():
            model(torch.ones(8, 64)).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    exchanged = torch.empty(4 * world)
    dist.all_to_all_single(exchanged, torch.ones(4 * world))
    dist.broadcast(exchanged, 1)
    dist.all_reduce(exchanged, async_op=True).wait()
    if rank == 0:
        dist.send(exchanged, 1)
    else:
        dist.recv(exchanged, 0)
    optimizer.step()
    optimizer.zero_grad()
