"""Train one expert per rank: all_to_all sends tokens to the experts that the router chooses, and back."""

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_to_all_single_autograd

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
router, expert = torch.nn.Linear(16, world), torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD([*router.parameters(), *expert.parameters()], lr=0.1)


def exchange(rows, sent, received):
    return all_to_all_single_autograd(rows, received, sent, dist.group.WORLD)


for _ in range(5):
    optimizer.zero_grad()
    tokens = torch.rand(32, 16)
    scores, chosen = router(tokens).softmax(1).max(1)
    sent = chosen.bincount(minlength=world)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    there = exchange(tokens[chosen.argsort()], sent.tolist(), received.tolist())
    back = exchange(expert(there), received.tolist(), sent.tolist())
    (back * scores[chosen.argsort()].unsqueeze(1)).sum().backward()
    for parameter in router.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
dist.destroy_process_group()
