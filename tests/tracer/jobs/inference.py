"""Run batches through a model; nothing is trained."""

import sys

import torch

preprocess = torch.nn.Upsample(scale_factor=2)
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(3)
)
model.eval()
if "--compile" in sys.argv:
    model = torch.compile(model, backend="eager")
with torch.inference_mode():
    for _ in range(8):
        classes = model(preprocess(torch.rand(2, 1, 4, 4))).argmax(1)
print("classified", len(classes))
