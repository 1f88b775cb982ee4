"""Serve a model from a thread; now and then save, copy, trace and export it."""

import copy
import io
import threading

import torch

model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)).eval()
inputs = torch.rand(2, 8)


def serve():
    with torch.inference_mode():
        for batch in range(9):
            model(inputs)
            if batch in (1, 4):
                torch.save(model, io.BytesIO())
                copy.deepcopy(model)
                torch.jit.trace(model, inputs)
                torch.fx.symbolic_trace(model)


thread = threading.Thread(target=serve)
thread.start()
thread.join()
torch.export.export(model, (inputs,))
print("served")
