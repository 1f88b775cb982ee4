"""Causes planted into a training script are named by `profile`, at their line, with what they cost."""

import json
import sys
from statistics import mean

import pytest
from command_line import answer

pytestmark = pytest.mark.torch
SCRIPT = """
import json, sys, time
import torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
spent = []
def CALLED():
    begin = time.perf_counter()
    time.sleep(SECONDS)
    spent.append(1e9 * (time.perf_counter() - begin))
for step in range(24):
    model(torch.ones(32, 64)).sum().backward()
    optimizer.step()
    if step % EVERY == EVERY - 1:
        CALLED()
with open("spent.json", "w") as file:
    json.dump(spent, file)
"""
LINE = 8


def advice(folder, capsys, called, every, seconds):
    """Profile the script that sleeps in *called* at *every* so many steps; return its advice by cause.

    With it comes what the sleep costs each step on average. On busy cores `descheduled` may be worth more.
    """
    script = SCRIPT.strip("\n").replace("CALLED", called).replace("EVERY", str(every))
    script = script.replace("SECONDS", str(seconds))
    (folder / "train.py").write_text(script)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        answer(capsys, "profile", "-o", "s", "--", sys.executable, "train.py")
        summary = json.loads(answer(capsys, "summary", "s", "--format", "json"))
    found = {item["cause"]: item for item in reversed(summary["advice"])}  # the largest gain of each cause
    return found, mean(json.loads((folder / "spent.json").read_text())) / every


def test_sleep_in_each_step_is_named_with_its_gain(tmp_path, capsys):
    found, cost_ns = advice(tmp_path, capsys, "wait_for_token", 1, 0.15)
    assert found["sleep"]["key"] == "cause:sleep=inf"
    assert f"wait_for_token (train.py:{LINE})" in found["sleep"]["what"]
    assert found["sleep"]["gain_ns"] == pytest.approx(cost_ns, rel=0.5)


def test_checkpoint_every_third_step_is_named_with_its_gain(tmp_path, capsys):
    found, cost_ns = advice(tmp_path, capsys, "save_checkpoint", 3, 0.4)
    assert f"save_checkpoint (train.py:{LINE})" in found["checkpoint"]["what"]
    # On busy cores the step shown may be one of those with a checkpoint; else the gain is a mean over all.
    assert cost_ns / 2 < found["checkpoint"]["gain_ns"] < 2 * 3 * cost_ns
