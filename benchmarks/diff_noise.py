"""Count false alarms of ``chakrascope diff``, and test whether it detects a real change.

    python benchmarks/diff_noise.py [FOLDER] [--starts 16] [--slow-starts 4] [--draws 200]

The benchmark captures many starts of a small job of two ranks on gloo, and a few starts with a layer that
computes more. FOLDER stores the captures, and existing captures are used again. The benchmark compares four
starts with four other starts of the unchanged job: alternating starts (a, b, a, b ...), and random starts. It
counts how often ``step > +3%`` fails, how often the medians alone would have failed, and how many rows of the
table of operators exceed the noise. Finally, it tests whether comparisons with four slow starts name the slow
layer.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from chakrascope.runner import Side, Study, diff_steps, read_side
from chakrascope.runner.analysis import judge, parse_limit

TRAIN = """
import sys, torch, torch.distributed as dist
from collections import OrderedDict
from torch import nn
torch.set_num_threads(1)
dist.init_process_group("gloo")
class Block(nn.Module):
    def __init__(self, width, again):
        super().__init__()
        self.up, self.down, self.again = nn.Linear(width, 2 * width), nn.Linear(2 * width, width), again
    def forward(self, x):
        hidden = torch.relu(self.up(x))
        for _ in range(self.again):
            hidden = torch.tanh(hidden)
        return x + self.down(hidden)
again = int(sys.argv[1])
layers = nn.Sequential(*(Block(256, again if layer == 1 else 0) for layer in range(4)))
model = nn.Sequential(OrderedDict(layers=layers, head=nn.Linear(256, 10)))
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(14):
    optimizer.zero_grad()
    model(torch.randn(256, 256)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""
EACH = 4
LIMIT = parse_limit("step > +3%")


def capture(folder: Path, name: str, count: int, again: int) -> Side:
    """Return *count* starts of the job; starts that the study lacks are captured."""
    script = folder / "train.py"
    script.write_text(TRAIN)
    study = folder / name
    while len(held(study)) < count:
        trace = ["chakrascope", "trace", "-o", str(study), "--steps", "5", "--", sys.executable, "-m"]
        job = ["torch.distributed.run", "--nproc-per-node", "2", str(script), str(again)]
        subprocess.run([*trace, *job], check=True, capture_output=True)
    return read_side(f"{study}@all")


def held(study: Path) -> list[str]:
    """Return the captures that *study* holds."""
    return Study.open(study).trace_sets() if Study.is_study(study) else []


def split(side: Side) -> list[tuple]:
    """Return the steps of each start of *side*, in the order of the captures."""
    starts = {step.start: [] for step in side.steps}
    for step in side.steps:
        starts[step.start].append(step)
    return [tuple(starts[name]) for name in sorted(starts, key=lambda name: int(name.rpartition("-")[2]))]


def together(starts: list[tuple]) -> Side:
    """Return one side of a comparison that consists of several *starts*."""
    return Side("side", tuple(step for steps in starts for step in steps))


def count_alarms(name: str, pairs: list[tuple[list, list]]) -> None:
    """Print the number of differences reported between unchanged sides."""
    failed = medians = rows = beyond = 0
    for one, two in pairs:
        found = diff_steps(together(one), together(two))
        failed += judge(found, [LIMIT])[0].outcome == "failed"
        medians += found.other.median.makespan_ns > 1.03 * found.base.median.makespan_ns
        rows += len(found.operators)
        beyond += int(found.operators["verdict"].isin(["more", "less"]).sum())
    print(f"{name}: '{LIMIT.text}' fails in {failed} of {len(pairs)}, by medians alone in {medians}; "
          f"{beyond} of {rows} operators beyond the noise")  # fmt: skip


def main() -> None:
    """Capture the job, compare its starts, and print the number of false alarms."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", nargs="?", type=Path, default=None)
    parser.add_argument("--starts", type=int, default=16)
    parser.add_argument("--slow-starts", type=int, default=EACH)
    parser.add_argument("--draws", type=int, default=200)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    plain = split(capture(folder, "plain", options.starts, 0))
    slowed = capture(folder, "slowed", options.slow_starts, 12)
    medians = sorted(together([start]).median.makespan_ns / 1e6 for start in plain)
    print(f"{len(plain)} starts, median steps from {medians[0]:.1f} to {medians[-1]:.1f} ms")
    windows = [plain[first : first + 2 * EACH] for first in range(len(plain) - 2 * EACH + 1)]
    in_turn = [(window[::2], window[1::2]) for window in windows]
    count_alarms("in turn", in_turn + [(two, one) for one, two in in_turn])
    drawn = random.Random(1)
    samples = [drawn.sample(plain, 2 * EACH) for _ in range(options.draws)]
    count_alarms("at random", [(sample[:EACH], sample[EACH:]) for sample in samples])
    for first in range(0, len(plain) - EACH + 1, EACH):
        found = diff_steps(together(plain[first : first + EACH]), slowed)
        row = found.modules.set_index(["key", "kind"]).loc[("layers.1", "compute")]
        print(f"slowed layer: {row['verdict']}, {row['delta_ns'] / 1e6:+.1f} ms; {found.headline}")


if __name__ == "__main__":
    main()
