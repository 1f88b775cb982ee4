"""Train two networks against each other: the critic steps twice for each step of the generator."""

import torch

generator, critic = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
of_generator = torch.optim.Adam(generator.parameters())
of_critic = torch.optim.RMSprop(critic.parameters())
for _ in range(8):
    for _ in range(2):
        of_critic.zero_grad()
        (critic(generator(torch.rand(4, 4)).detach()).mean() - critic(torch.rand(4, 8)).mean()).backward()
        of_critic.step()
    of_generator.zero_grad()
    critic(generator(torch.rand(4, 4))).mean().backward()
    of_generator.step()
