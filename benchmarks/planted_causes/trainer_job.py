"""Transformers' Trainer on a small model, with a callback that logs too much if ``--slow``."""

from __future__ import annotations

import argparse
import json
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)


class Texts(torch.utils.data.Dataset):
    """Random tokens with labels."""

    def __len__(self) -> int:
        return 4_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(0, 500, (32,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens[0] % 2}


class Statistics(TrainerCallback):
    """Times the steps and logs the parameters at each."""

    def __init__(self, slow: bool) -> None:
        self.slow, self.times, self.begin = slow, [], 0.0
        self.logger = logging.getLogger("statistics")
        self.logger.addHandler(logging.FileHandler(Path(tempfile.mkdtemp()) / "statistics.log"))
        self.logger.setLevel(logging.INFO)

    def on_step_end(self, _args: Any, state: Any, _control: Any, **more: Any) -> None:
        """Log the parameters."""
        if self.slow:
            for name, parameter in more["model"].named_parameters():
                self.logger.info("%d %s %s", state.global_step, name, parameter)
        now = time.perf_counter()
        self.times.append(1e3 * (now - self.begin))
        self.begin = now


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = BertConfig(vocab_size=500, hidden_size=128, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=256, max_position_embeddings=64)  # fmt: skip
    statistics = Statistics(options.slow)
    arguments = TrainingArguments(output_dir=tempfile.mkdtemp(), max_steps=options.steps, report_to=[],
                                  per_device_train_batch_size=16, save_strategy="no", use_cpu=True,
                                  disable_tqdm=True)  # fmt: skip
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=arguments,
        train_dataset=Texts(),
        callbacks=[statistics],
    )
    trainer.train()
    if "STEP_TIMES" in os.environ:
        Path(os.environ["STEP_TIMES"]).write_text(json.dumps(statistics.times[1:]), encoding="utf-8")


if __name__ == "__main__":
    main()
