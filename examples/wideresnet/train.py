"""Train a wide residual network on Fashion-MNIST-shaped random images with DistributedDataParallel.

Alone:        python train.py
Two ranks:    torchrun --nproc-per-node 2 train.py --epochs 2
"""

import argparse
import itertools
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class WideBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        activated = F.relu(self.norm1(x))
        out = self.conv2(F.relu(self.norm2(self.conv1(activated))))
        return out + self.shortcut(activated)


class WideResNet(nn.Module):
    def __init__(self, blocks, widen, classes=10):
        super().__init__()
        widths = [16, 16 * widen, 32 * widen, 64 * widen]
        self.stem = nn.Conv2d(1, widths[0], 3, 1, 1, bias=False)
        layers = []
        for stage, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
            layers.append(WideBlock(inputs, outputs, stride=1 if stage == 0 else 2))
            layers += [WideBlock(outputs, outputs, stride=1) for _ in range(blocks - 1)]
        self.stages = nn.Sequential(*layers)
        self.norm = nn.BatchNorm2d(widths[-1])
        self.classifier = nn.Linear(widths[-1], classes)

    def forward(self, x):
        x = F.relu(self.norm(self.stages(self.stem(x))))
        return self.classifier(x.mean((2, 3)))


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8, help="optimizer steps per epoch")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--blocks", type=int, default=1, help="residual blocks per stage")
    parser.add_argument("--widen", type=int, default=2)
    return parser.parse_args()


def average_over_ranks(value, device):
    total = torch.tensor([value], device=device)
    if not dist.is_initialized():
        return value
    dist.all_reduce(total)
    return (total / dist.get_world_size()).item()


def train_epoch(model, loader, optimizer, device):
    correct, seen = 0, 0
    for images, labels in loader:
        optimizer.zero_grad(set_to_none=True)
        logits = model(images.to(device))
        loss = F.cross_entropy(logits, labels.to(device))
        loss.backward()
        optimizer.step()
        correct += (logits.argmax(1).cpu() == labels).sum().item()
        seen += len(labels)
        accuracy = average_over_ranks(correct / seen, device)
    return accuracy


def main():
    args = parse_arguments()
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if "RANK" in os.environ:
        dist.init_process_group("nccl" if cuda else "gloo")
    torch.manual_seed(0)
    count = args.batch * args.steps * world_size
    dataset = TensorDataset(torch.rand(count, 1, 28, 28), torch.randint(10, (count,)))
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank)
    loader = DataLoader(dataset, batch_size=args.batch, sampler=sampler)
    model = WideResNet(args.blocks, args.widen).to(device)
    if dist.is_initialized():
        model = DistributedDataParallel(model, device_ids=[device] if cuda else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        started = time.perf_counter()
        accuracy = train_epoch(model, loader, optimizer, device)
        if dist.is_initialized():
            dist.barrier()
        if rank == 0:
            print(
                f"epoch {epoch}: accuracy {accuracy:.3f}, {time.perf_counter() - started:.1f} s", flush=True
            )
    if dist.is_initialized():
        del model  # before the group, because PyTorch 2.13 may hang if the model outlives the group
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
