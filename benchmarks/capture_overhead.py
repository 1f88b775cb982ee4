"""Measure the cost of capturing a training job, in one process.

    python benchmarks/capture_overhead.py [--rounds 10] [--width 256] [--small]

Outside the captured window, blocks of steps alternate: blocks that the capture agent counts and times while
it samples stacks, and blocks that call torch's own method. Inside, four kinds of windows alternate: windows
recorded as by ``chakrascope trace`` (one detailed step and three timed steps, with sampled stacks), the same
windows without stacks, windows recorded only by ``torch.profiler``, and plain steps. The first step of each
window is omitted. The benchmark prints the shortest and the median step, and their ratios. ``--small`` runs
twenty linear layers of 64 x 64, whose operators take less time than recording them.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from chakrascope.tracer import _agent as agent
from chakrascope.tracer._agent.evidence import EvidenceRecorder
from chakrascope.tracer._agent.recorder import Recorder

WINDOW = 3
BLOCK_SECONDS = 0.5


def training_step(width, batch):
    """Return a model's training step (its argument is the optimizer's ``step``) and the optimizer."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, dropout=0.0)
    model = torch.nn.Sequential(torch.nn.TransformerEncoder(layer, 4), torch.nn.Linear(width, width))
    optimizer = torch.optim.AdamW(model.parameters())
    inputs = torch.rand(batch, 64, width)

    def step(update):
        started = time.perf_counter_ns()
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        update()
        return time.perf_counter_ns() - started

    return step, optimizer


def small_step():
    """Return the same as `training_step`, for a model of many small operators."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(20)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.rand(8, 64)

    def step(update):
        started = time.perf_counter_ns()
        optimizer.zero_grad()
        model(inputs).sum().backward()
        update()
        return time.perf_counter_ns() - started

    return step, optimizer


def outside(step, optimizer, rounds):
    """Return the median step of blocks without the agent, and the median ratio with and without it."""
    bare = type(optimizer).step.__wrapped__.__get__(optimizer)
    blocks = []
    for number in range(2 * rounds):
        pair = {}
        for observed in (number % 2 == 0, number % 2 == 1):
            with observing(observed) as recorder:
                update = optimizer.step if observed else bare
                times = []
                until = time.perf_counter() + BLOCK_SECONDS
                while time.perf_counter() < until:
                    times.append(step(update))
                    if observed:
                        recorder.boundary(len(times), recorded=False)
            pair[observed] = statistics.fmean(times)
        blocks.append(pair)
    ratio = statistics.median(pair[True] / pair[False] for pair in blocks)
    return statistics.median(pair[False] for pair in blocks), ratio


@contextlib.contextmanager
def observing(stacks, window=False):
    """Collect evidence with *stacks* (if true) during the block."""
    recorder = EvidenceRecorder(stacks=stacks)
    if stacks:
        recorder.start()
        recorder.enter_window(window)
    try:
        yield recorder
    finally:
        recorder.stop()


def wrapper_cost_ns():
    """Return the time that the agent's wrapper adds to an optimizer step, from many steps without updates."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    bare = type(optimizer).step.__wrapped__.__get__(optimizer)
    times = {optimizer.step: [], bare: []}
    for _ in range(200):
        for update, measured in times.items():
            started = time.perf_counter_ns()
            for _ in range(20):
                update()
            measured.append((time.perf_counter_ns() - started) / 20)
    with_it, without = (statistics.median(measured) for measured in times.values())
    return with_it - without


def window_of_ours(step, optimizer, stacks):
    """Return the step times of a captured window, starting with the step of the host trace."""
    with tempfile.TemporaryDirectory() as folder, observing(stacks, window=True):
        recorder = Recorder(Path(folder), modules=True)
        recorder.start(0)
        times = []
        for index in range(WINDOW + 1):
            times.append(step(optimizer.step))
            recorder.close_step(time.time_ns())
            if index < WINDOW:
                recorder.open_step(index + 1)
        recorder.discard()
    return times


def inside(step, optimizer, rounds):
    """Return the step times without recording, under torch.profiler, and in windows of the tracer."""
    times = {"plain": [], "torch.profiler": [], "timed": [], "no stacks": [], "structure": []}
    for _ in range(rounds):
        times["plain"] += [step(optimizer.step) for _ in range(WINDOW + 1)][1:]
        with torch.profiler.profile():
            times["torch.profiler"] += [step(optimizer.step) for _ in range(WINDOW + 1)][1:]
        structure, *timed = window_of_ours(step, optimizer, stacks=True)
        times["structure"].append(structure)
        times["timed"] += timed
        times["no stacks"] += window_of_ours(step, optimizer, stacks=False)[1:]
    return times


def main():
    """Measure the cost of capturing, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        agent.set_current_agent(agent.Agent(folder, warmup=1 << 60, steps=1, modules=True))
        report(arguments)
        agent.current_agent().close()  # otherwise, it would write at exit, into a deleted folder


def report(arguments):
    """Print the cost of a step without the agent, with the agent, and during the capture."""
    agent.INSTALLATIONS["torch.optim.optimizer"](sys.modules["torch.optim.optimizer"])
    torch.set_num_threads(1)
    step, optimizer = small_step() if arguments.small else training_step(arguments.width, arguments.batch)
    for _ in range(WINDOW):
        step(optimizer.step)
    bare, ratio = outside(step, optimizer, arguments.rounds)
    print("outside the captured window")
    print(f"  steps without  {bare / 1e6:8.3f} ms, with x{ratio:.4f}")
    cost = wrapper_cost_ns()
    print(f"  the wrapper alone: {cost / 1e3:.2f} us a step   x{1 + cost / bare:.5f}")
    print("inside it: shortest and median step, and as many times torch.profiler's")
    times = inside(step, optimizer, arguments.rounds)
    shortest, median = min(times["torch.profiler"]), statistics.median(times["torch.profiler"])
    for name, own in times.items():
        least, middle = min(own), statistics.median(own)
        print(f"  {name:15} {least / 1e6:8.3f} ms x{least / shortest:.3f}", end="")
        print(f"  {middle / 1e6:8.3f} ms x{middle / median:.3f}")


if __name__ == "__main__":
    main()
