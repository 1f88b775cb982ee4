"""Failures of a user's command or folder: messages, exit codes, and kept files."""

import signal
import sys

import pytest

from chakrascope.converter import convert
from chakrascope.errors import CaptureError, UsageError
from chakrascope.tracer import TraceSet, trace

pytestmark = pytest.mark.torch
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
LIMITED = (
    "import resource, sys; sys.dont_write_bytecode = True; "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)); "
)


def test_exit_code_3_and_steps_are_preserved(tmp_path, script, run_ranks):
    done = run_ranks(script("train(5, lambda step: step == 3 and sys.exit(3))"), warmup=1, steps=3)
    assert done.returncode == 3
    trace_set = TraceSet.load(tmp_path / "out")
    assert (trace_set.exit_code, trace_set.partial) == (3, True)
    assert [step.index for step in trace_set.ranks[0].steps] == [2]
    assert "exit code 3" in trace_set.reasons[0]


def test_exit_code_before_the_first_step_is_preserved(tmp_path, script, run_ranks):
    done = run_ranks(script("sys.exit(7)"))
    assert done.returncode == 7
    assert "ended with exit code 7 before its first training step" in done.stderr
    assert not (tmp_path / "out").exists()


def test_script_failing_in_warm_up_gets_its_step_count(script, run_ranks):
    done = run_ranks(script("train(2); sys.exit(7)"), warmup=5)
    assert done.returncode == 7
    assert "after 2 training steps" in done.stderr


def test_script_without_steps_gets_a_next_step(script, run_ranks):
    done = run_ranks(script("train(0)"))
    assert done.returncode == 11
    assert "no training step was detected" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_recording_without_steps_does_not_suggest_a_shorter_warm_up(script, run_ranks):
    done = run_ranks(script("train(0)"), steps=0)
    assert done.returncode == 11
    assert "no training step was detected" in done.stderr
    assert "Mark the steps yourself" in done.stderr
    assert "--warmup" not in done.stderr


def test_script_shorter_than_warm_up_gets_its_step_count(script, run_ranks):
    done = run_ranks(script("train(2)"), warmup=2)
    assert done.returncode == 11
    assert "ran for 2 training steps" in done.stderr
    assert "--warmup" in done.stderr


@pytest.mark.parametrize("words", [["-um", "platform"], ["-mplatform", "terse"], ["-uc", "pass"]])
def test_modules_and_code_after_joined_options_are_no_scripts(script, run_trace, words):
    script("")
    done = run_trace("python", *words)
    assert "no training step was detected" in done.stderr


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (["python", "nosuch.py"], "no script nosuch.py"),
        (["python", "-u", "trian.py"], "Did you mean train.py"),
        ([*TORCHRUN, "nosuch.py", "--lr", "1"], "no script nosuch.py"),
        (["torchrun", "nosuch.py"], "no script nosuch.py"),
        (["nosuchcommand"], "no command 'nosuchcommand'"),
        (["./train.py"], "put `python` before it"),
    ],
)
def test_a_missing_script_or_command_is_named(script, run_trace, command, named):
    script("")
    done = run_trace(*command)
    assert done.returncode == 10
    assert named in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ([], {}),
        (["python", "x.py"], {"steps": -1}),
        (["python", "x.py"], {"steps": 0, "fake_world": 8}),
        (["python", "x.py"], {"warmup": -1}),
        (["python", "x.py"], {"fake_world": -1}),
        (["torchrun", "x.py"], {"fake_world": 8}),
    ],
)
def test_meaningless_call_is_refused_before_the_run(tmp_path, command, options):
    with pytest.raises(UsageError):
        trace(command, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_unwritable_folder_is_refused_before_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CaptureError, match=r"cannot be written to: Not a directory\. Choose another"):
        trace(["true"], tmp_path / "file" / "out")
    (tmp_path / "manifest.json").write_text("")
    with pytest.raises(CaptureError, match="already contains a trace set"):
        trace(["true"], tmp_path)


def test_a_full_disk_is_no_problem_of_the_script_s_and_is_named(tmp_path, script, run_ranks):
    done = run_ranks(script(LIMITED + "train(6); print('end')"), warmup=2, steps=2)
    assert done.returncode == 11
    assert done.stdout == "end\n"
    assert "the disk is full" in done.stderr
    assert "Traceback" not in done.stderr
    assert "output_json" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_killed_rank_leaves_its_peers_and_its_host_trace(tmp_path, script, run_ranks):
    ending = "train(9, lambda step: step == 3 and rank == 1 and os.kill(os.getpid(), 9))"
    done = run_ranks(script(ending), ranks=2, warmup=2, steps=3)
    assert done.returncode != 0
    trace_set = TraceSet.load(tmp_path / "out")
    assert trace_set.partial
    assert "rank 1 died while it was recorded" in trace_set.reasons
    peer, killed = trace_set.ranks
    assert (killed.complete, killed.device_trace) == (False, None)
    assert peer.device_trace is not None


def test_a_rank_stuck_in_a_collective_dies_of_the_signal_all_the_same(tmp_path, script, run_ranks):
    ending = """
import fcntl, threading
alive = open("alive", "w")
def at_step(step):
    if step == 0 and rank == 0:
        fcntl.flock(alive, fcntl.LOCK_EX)
    elif step == 3 and rank == 0:
        threading.Timer(0.3, os.kill, (os.getpid(), 15)).start()
    elif step == 3:
        fcntl.flock(alive, fcntl.LOCK_EX)  # until rank 0 is dead
        os._exit(0)
train(9, at_step)
"""
    done = run_ranks(script(ending), ranks=2, warmup=2, steps=3)
    assert done.returncode != 0
    assert "rank 0 died while it was recorded" in TraceSet.load(tmp_path / "out").reasons


@pytest.mark.parametrize("end", ["os._exit(0)", "os.abort()", "os.execl('/bin/false', 'false')"])
def test_script_that_exits_abruptly_keeps_its_recording(tmp_path, script, run_ranks, end):
    done = run_ranks(script(f"train(9, lambda step: step == 3 and {end})"), warmup=2, steps=3)
    assert (done.returncode == 0) == (end == "os._exit(0)")
    trace_set = TraceSet.load(tmp_path / "out")
    assert "rank 0 ended after 1 of 3 captured steps" in trace_set.reasons
    assert trace_set.ranks[0].device_trace is not None


def test_a_watchdog_thread_that_ends_the_script_is_not_held_up(tmp_path, script, run_ranks):
    ending = """
import threading, time
def stall(step):
    if step == 3:
        threading.Thread(target=os._exit, args=(4,)).start()
        time.sleep(60)
train(9, stall)
"""
    done = run_ranks(script(ending), warmup=2, steps=3)
    assert done.returncode == 4
    assert "rank 0 died while it was recorded" in TraceSet.load(tmp_path / "out").reasons


def test_a_thread_that_trained_may_end_within_a_step(tmp_path, script, run_ranks):
    start = """
import threading, torch
def train():
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(5):
        weight.sum().backward()
        optimizer.step()
thread = threading.Thread(target=train)
thread.start()
thread.join()
"""
    done = run_ranks(script("", start=start), warmup=2, steps=3)
    assert done.returncode == 0, done.stderr
    trace_set = TraceSet.load(tmp_path / "out")
    assert trace_set.reasons == ["rank 0 ended after 2 of 3 captured steps"]
    assert trace_set.ranks[0].device_trace is not None


def test_concurrently_training_threads_are_not_captured(script, run_ranks):
    ending = """
import threading
turns = [threading.Event(), threading.Event()]
def work(own):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        turns[own].wait()
        turns[own].clear()
        optimizer.step()
        turns[not own].set()
threads = [threading.Thread(target=work, args=(own,)) for own in (0, 1)]
[thread.start() for thread in threads]
turns[0].set()
[thread.join() for thread in threads]
print("end")
"""
    done = run_ranks(script(ending), warmup=2, steps=2)
    assert (done.returncode, done.stdout) == (11, "end\n")
    assert "several threads train at once" in done.stderr


def test_threads_that_train_from_within_the_capture_on_do_not_crash(tmp_path, script, run_ranks):
    start = """
import threading, torch
def train(steps, layers, at_step=lambda step: None):
    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(layers)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        at_step(step)
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
begun = threading.Event()
threads = [threading.Thread(target=train, args=(150, 2, lambda step: step and begun.set())) for _ in range(6)]
def at_step(step):
    if step == 2:
        [thread.start() for thread in threads]
    elif step == 3:
        begun.wait()  # within the capture
train(8, 200, at_step)
[thread.join() for thread in threads]
print("end")
"""
    done = run_ranks(script("", start=start), warmup=2, steps=2)
    assert (done.returncode, done.stdout) == (0, "end\n"), done.stderr
    trace_set = TraceSet.load(tmp_path / "out")
    assert not trace_set.partial
    assert any("another thread began to train" in note for note in trace_set.notes)
    convert(trace_set.path)


def test_two_signals_in_a_row_end_the_script_as_one_and_keep_its_steps(tmp_path, script, start_trace):
    path = script(
        "import time; train(4); print('ready', flush=True); train(9999, lambda step: time.sleep(0.1))"
    )
    jobs = {
        number: start_trace(sys.executable, path, folder=number.name, warmup=2, steps=9000)
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    for number, job in jobs.items():
        assert job.stdout.readline() == "ready\n"
        job.send_signal(number)
        job.send_signal(number)
    for number, job in jobs.items():
        _, errors = job.communicate(timeout=240)
        assert job.returncode == 128 + number
        assert "atexit" not in errors
        trace_set = TraceSet.load(tmp_path / number.name)
        assert trace_set.ranks[0].device_trace is not None
        assert f"the training command ended with exit code {128 + number}" in trace_set.reasons
