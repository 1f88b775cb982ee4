"""Captures that the script itself opens, with and without a launcher."""

import json
import socket

import pytest

from chakrascope.tracer import TraceSet

pytestmark = pytest.mark.torch

LOOP = """
import fcntl, os, sys
sys.path.insert(0, {path!r})
import torch
import torch.distributed as dist
from chakrascope.tracer import capture
rank = int(os.environ["RANK"])
if os.environ["WORLD_SIZE"] != "1":
    dist.init_process_group("gloo")
with capture("own", warmup=1, steps=2) as steps:
    for step in range(6):
        {at_step}
        torch.ones(4).sum()
        steps.step()
"""


@pytest.fixture
def loop(script, package_path):
    """Return a function that writes a script which marks its steps and does *at_step* in each."""
    return lambda at_step="": script("", start=LOOP.format(path=package_path, at_step=at_step))


def steps(trace_set):
    return [[step.index for step in rank.steps] for rank in trace_set.ranks]


def test_with_a_launcher_its_folder_and_options_hold(tmp_path, loop, run_ranks):
    done = run_ranks(loop(), warmup=2, steps=2)
    assert done.returncode == 0, done.stderr
    assert steps(TraceSet.load(tmp_path / "out")) == [[3, 4]]
    assert not (tmp_path / "own").exists()


def test_without_a_launcher_the_last_rank_writes_the_manifest(tmp_path, loop, run_ranks_alone):
    done = run_ranks_alone(loop(), ranks=2)
    assert done.returncode == 0, done.stderr
    trace_set = TraceSet.load(tmp_path / "own")
    assert (trace_set.partial, steps(trace_set)) == (False, [[2, 3], [2, 3]])
    assert not (tmp_path / "own" / "status").exists()


def test_a_rank_that_dies_leaves_the_others_a_manifest(tmp_path, loop, run_ranks_alone):
    at_step = """
        if step == 0:
            alive = open("alive", "w")
            if rank == 1: fcntl.flock(alive, fcntl.LOCK_EX)
            dist.barrier()
        elif step == 2:
            if rank == 1: os.kill(os.getpid(), 9)
            fcntl.flock(alive, fcntl.LOCK_EX)  # until rank 1 is dead
"""
    done = run_ranks_alone(loop(at_step), ranks=2)
    assert done.returncode != 0
    trace_set = TraceSet.load(tmp_path / "own")
    assert trace_set.reasons == ["rank 1 died while it was recorded"]
    assert trace_set.ranks[0].complete


def test_an_error_of_the_loop_s_is_the_one_that_shows(tmp_path, loop, run_ranks_alone):
    done = run_ranks_alone(loop("if step == 0: raise ValueError('bad batch')"))
    assert done.returncode == 1
    assert "ValueError: bad batch" in done.stderr
    assert "NothingCaptured" not in done.stderr
    done = run_ranks_alone(loop("if step == 3: raise ValueError('bad batch')"))
    assert "ValueError: bad batch" in done.stderr
    assert steps(TraceSet.load(tmp_path / "own")) == [[2]]


def test_what_an_earlier_run_left_is_not_taken_for_a_peer(tmp_path, loop, run_ranks_alone):
    stale = tmp_path / "own" / "status" / f"{socket.gethostname()}.1.json"
    stale.parent.mkdir(parents=True)
    rank = {"rank": 1, "world_size": 2, "complete": False, "trigger": "manual", "pid": 1}
    stale.write_text(json.dumps({"host": socket.gethostname(), "pid": 1, "rank": rank, "closed": False}))
    done = run_ranks_alone(loop())
    assert done.returncode == 0, done.stderr
    assert steps(TraceSet.load(tmp_path / "own")) == [[2, 3]]


def test_too_short_loop_is_an_error(loop, run_ranks_alone):
    done = run_ranks_alone(loop("if step == 1: break"))
    assert "NothingCaptured: The training command ran for 1 training steps" in done.stderr
