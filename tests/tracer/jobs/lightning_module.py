"""Train a small classifier with Lightning; arguments: ranks, a callback's folder, a batch that fails.

A fourth is the name of one of Lightning's profilers.
"""

import sys
import tempfile

import lightning
import torch


class Classifier(lightning.LightningModule):
    def __init__(self, failing):
        super().__init__()
        self.failing = failing
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))

    def training_step(self, batch, index):
        if index == self.failing:
            raise ValueError("bad batch")
        inputs, classes = batch
        return torch.nn.functional.cross_entropy(self.layers(inputs), classes)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters())
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 5)]


ranks, folder, failing = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
callbacks = []
if folder:
    from chakrascope.tracer.callbacks import lightning_callback

    callbacks = [lightning_callback(folder, warmup=2, steps=2)]
profiler = sys.argv[4] if len(sys.argv) > 4 else None
trainer = lightning.Trainer(
    profiler=profiler,
    accelerator="cpu",
    devices=ranks,
    strategy="ddp" if ranks > 1 else "auto",
    max_epochs=1,
    accumulate_grad_batches=1 if profiler else 2,
    callbacks=callbacks,
    default_root_dir=tempfile.mkdtemp(),
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
data = torch.utils.data.TensorDataset(torch.rand(64, 8), torch.randint(4, (64,)))
trainer.fit(Classifier(failing), torch.utils.data.DataLoader(data, 2))
print(f"steps {trainer.global_step}\n", end="", flush=True)
