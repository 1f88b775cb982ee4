"""Evaluate a model for some batches, then make an optimizer and train it."""

import torch

model = torch.nn.Linear(8, 1)
with torch.no_grad():
    for _ in range(8):
        model(torch.rand(4, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    model(torch.rand(4, 8)).sum().backward()
    optimizer.step()
