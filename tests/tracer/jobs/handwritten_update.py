"""Train without torch.optim: the update is written by hand."""

import torch

model = torch.nn.Linear(8, 1)
loss_function = torch.nn.MSELoss()
for _ in range(8):
    loss = loss_function(model(torch.rand(4, 8)), torch.rand(4, 1))
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(0.1 * parameter.grad)
            parameter.grad = None
