"""Fine-tune a small GPT-2 of random weights with Hugging Face's Trainer.

Argument: a callback's folder, or "profiled" to run a profiler as its users do.
"""

import contextlib
import sys
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        tokens = torch.arange(index, index + 16) % 128
        return {"input_ids": tokens, "labels": tokens}


class Profiling(TrainerCallback):
    def on_step_end(self, *_, **__):
        profiler.step()


callbacks = []
profiler = contextlib.nullcontext()
if sys.argv[1:] == ["profiled"]:
    plan = torch.profiler.schedule(wait=1, warmup=1, active=4)
    profiler = torch.profiler.profile(schedule=plan)
    callbacks = [Profiling()]
elif len(sys.argv) > 1:
    from chakrascope.tracer.callbacks import hugging_face_callback

    callbacks = [hugging_face_callback(sys.argv[1], warmup=2, steps=2)]
config = GPT2Config(
    n_layer=1, n_head=2, n_embd=16, vocab_size=128, n_positions=16, bos_token_id=0, eos_token_id=0
)
arguments = TrainingArguments(
    tempfile.mkdtemp(),
    max_steps=7,
    per_device_train_batch_size=2,
    gradient_accumulation_steps=2,
    use_cpu=True,
    report_to="none",
    save_strategy="no",
    disable_tqdm=True,
)
trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Tokens(), callbacks=callbacks)
with profiler:
    trainer.train()
print(f"steps {trainer.state.global_step}\n", end="", flush=True)
