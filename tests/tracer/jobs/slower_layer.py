"""Train a model of three equal blocks, the second of which also does --slow superfluous operations."""

import argparse

import torch
import torch.distributed as dist
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--slow", type=int, default=0)
slow = parser.parse_args().slow
torch.set_num_threads(1)
dist.init_process_group("gloo")
big = torch.zeros(1 << 22)


class Block(nn.Module):
    def __init__(self, slow):
        super().__init__()
        self.linear, self.slow = nn.Linear(64, 64), slow

    def forward(self, x):
        for _ in range(self.slow):
            torch.cos(big)
        return torch.relu(self.linear(x))


model = nn.parallel.DistributedDataParallel(nn.Sequential(Block(0), Block(slow), Block(0)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(9):
    optimizer.zero_grad()
    model(torch.randn(64, 64)).square().mean().backward()
    optimizer.step()
