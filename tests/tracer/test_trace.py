"""Captures of real PyTorch processes, dumps of their flight recorders, and measurements of their gloo."""

import gzip
import json
import sys
from statistics import mean

import command_line
import pytest
from command_line import answer

from chakrascope.converter import convert, convert_logs, doctor, match_logs, read_logs
from chakrascope.converter.readers import recorded_operations
from chakrascope.errors import TraceError
from chakrascope.runner import simulate
from chakrascope.runner.analysis import find_stragglers
from chakrascope.runner.calibration import gloo_records
from chakrascope.tracer import ProcessGroup, TraceSet

pytestmark = pytest.mark.torch


def read(trace_set, rank, key):
    return json.loads(gzip.decompress((trace_set.path / getattr(trace_set.ranks[rank], key)).read_bytes()))


def test_a_job_of_two_ranks_is_captured_whole(tmp_path, script, run_ranks):
    path = script("train(6); print(sys.argv[1:]); dist.destroy_process_group()")
    done = run_ranks(path, "--lr", "1", ranks=2, warmup=2, steps=2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("['--lr', '1']") == 2
    assert "Observer" not in done.stderr
    assert "USDT" not in done.stderr
    trace_set = TraceSet.load(tmp_path / "out")
    assert (trace_set.partial, trace_set.reasons, trace_set.world_size) == (False, [], 2)
    for number, rank in enumerate(trace_set.ranks):
        assert (rank.rank, rank.complete, rank.device, rank.backend) == (
            number,
            True,
            "cpu",
            "gloo",
        )
        assert rank.process_groups == [ProcessGroup("0", [0, 1], "default_pg")]
        steps = [rank.structure_step, *rank.steps]
        assert [step.index for step in steps] == [2, 3, 4]
        assert all(step.start_ns < step.end_ns for step in steps)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "manifest.json",
        *(
            f"rank{rank}.{kind}.json.gz"
            for rank in (0, 1)
            for kind in ("comms", "device", "evidence", "host")
        ),
    ]
    check_ranges(trace_set)


def check_ranges(trace_set):
    events = [event for event in read(trace_set, 0, "device_trace")["traceEvents"] if event.get("ph") == "X"]
    names = [event["name"] for event in events]
    assert [name for name in names if name.startswith("ProfilerStep#")] == [
        f"ProfilerStep#{index}" for index in (2, 3, 4)
    ]
    modules = [event for event in events if event["name"].startswith("chakrascope::module ")]
    names = {"DistributedDataParallel", "Sequential", "0", "1", "2"}
    assert {event["name"].split(" ", 1)[1] for event in modules} == names
    events.sort(key=lambda event: event["ts"])
    second = next(event for event in events if event["name"] == "ProfilerStep#3")
    assert all(event["ts"] < second["ts"] for event in modules)  # timed steps cost no more than profiled ones
    (converted,) = {frozenset(graph.nodes["module"]) for graph in convert(trace_set.path, step=3).graphs}
    assert converted == {"", "0", "1", "2"}
    step, optimizer = (
        next(event for event in events if event["name"] == name)
        for name in ("ProfilerStep#2", "Optimizer.step#SGD.step")
    )
    assert step["ts"] < optimizer["ts"]
    assert optimizer["ts"] + optimizer["dur"] < step["ts"] + step["dur"]
    ids = {
        attribute["value"]
        for node in read(trace_set, 0, "host_trace")["nodes"]
        for attribute in node["attrs"]
        if attribute["name"] == "rf_id"
    }
    assert {event["args"]["Record function id"] for event in (step, optimizer)} <= ids
    record = read(trace_set, 0, "flight_record")["entries"]
    assert [entry["profiling_name"] for entry in record] == ["gloo:all_reduce"] * 3


def test_communication_hook_in_other_threads_is_recorded(tmp_path, run_ranks):
    done = run_ranks("communication_hook.py", ranks=2, warmup=3, steps=2)
    assert done.returncode == 0, done.stderr
    trace_set = TraceSet.load(tmp_path / "out")
    assert not trace_set.partial
    trace = read(trace_set, 0, "device_trace")
    names = [event["name"] for event in trace["traceEvents"] if event.get("ph") == "X"]
    assert names.count("ProfilerStep#4") == 1
    # in each of the three steps the bias, then both factors of the matrix, each when the one before has ended
    assert names.count("c10d::allreduce_") == 9
    (finding,) = [finding for finding in doctor(trace_set.path) if "left out" in finding.cause]
    assert (finding.severity, "PowerSGD" in finding.cause) == ("warning", True)


def test_without_captured_steps_all_are_timed_by_phase(tmp_path, script, run_ranks):
    ending = """
import gc, signal, time
def at_step(step):
    if rank == 1:
        time.sleep(0.05)
    if step == 30 and rank == 1:
        time.sleep(3)
    if step == 31 and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
train(40, at_step)
"""
    done = run_ranks(script(ending), ranks=2, warmup=2, steps=0)
    assert done.returncode != 0
    trace_set = TraceSet.load(tmp_path / "out")
    assert any("rank 1 died" in reason for reason in trace_set.reasons)
    assert [rank.device_trace for rank in trace_set.ranks] == [None, None]
    assert read(trace_set, 0, "evidence")["sampling"]["samples"] == 0  # no stacks, regardless of their cost
    found = find_stragglers(recorded_operations(trace_set))
    # How many steps were written before the end, and which other causes there are, depends on the machine.
    assert set(found.layout.steps) >= set(range(2, 7))
    assert ("worker", 1) in {(cause.kind, cause.rank) for cause in found.causes}
    with pytest.raises(TraceError, match="diagnose"):
        trace_set.check_usable()


def test_a_layer_that_became_slower_is_found_in_real_captures(tmp_path, rank_command, capsys):
    before, after = str(tmp_path / "before"), str(tmp_path / "after")
    for study, slow in ((before, 0), (after, 24)):
        job = rank_command("slower_layer.py", "--slow", slow, ranks=2)
        assert command_line.run("trace", "-o", study, "--steps", "4", "--", *job) == 0
    capsys.readouterr()
    options = ["--between-starts", "50%", "--format", "json", "--fail-if", "step > +3%"]
    assert command_line.run("diff", before, after, *options) == 70
    found = json.loads(capsys.readouterr().out)
    assert sum(row["delta_ns"] for row in found["waterfall"]) == found["delta_ns"] > 20_000_000
    assert found["modules"][0]["key"] == "1"
    assert found["modules"][0]["verdict"] == "more"
    assert {row["key"]: row["change"] for row in found["operators"]}["aten::cos"] == "new"


LIVE = """
import os, time, torch, torch.distributed as dist
from torch._C import _distributed_c10d as c10d
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
group = dist.new_group([0, 1])
values = torch.ones(1000)
for _ in range(3):
    dist.all_reduce(values)
dist.broadcast(values, 0, group=group)
dist.all_gather([torch.empty(1000), torch.empty(1000)], values)
dist.barrier()
pending = dist.all_reduce(values, async_op=True) if rank == 0 else None
while True:  # gloo's threads retire what has ended a moment after it returned
    time.sleep(0.01)
    text, pickled = c10d._dump_fr_trace_json(), c10d._dump_fr_trace()
    text = text if isinstance(text, bytes) else text.encode()
    if text.count(b'"retired":false') + text.count(b'"retired": false') == (rank == 0):
        break
open(f"fr_{rank}.json", "wb").write(text)
open(f"nccl_trace_rank_{rank}", "wb").write(pickled)
done = dist.distributed_c10d._get_default_store()
done.set(f"done{rank}", "1")
done.wait(["done0", "done1"])
os._exit(0)
"""


def test_dumps_of_a_running_job_in_both_formats(tmp_path, script, run_ranks_alone, monkeypatch):
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "100")
    done = run_ranks_alone(script("", start=LIVE), ranks=2)
    assert done.returncode == 0, done.stderr
    texts = read_logs(sorted(tmp_path.glob("fr_*.json")))
    pickles = read_logs(sorted(tmp_path.glob("nccl_trace_rank_*")))
    assert [log.ops for log in texts.ranks.values()] == [log.ops for log in pickles.ranks.values()]
    matched = match_logs(texts)
    names = [found.first.name for found in matched.collectives]
    assert names == ["all_reduce"] * 3 + ["broadcast", "all_gather", "barrier"]
    assert [found.first.size_bytes for found in matched.collectives] == [4000] * 5 + [64]
    assert set(texts.groups.values()) == {(0, 1)}
    (hang,) = matched.unfinished
    assert (hang.name, hang.waiting, hang.missing) == ("all_reduce", (0,), (1,))
    workload = convert_logs(sorted(tmp_path.glob("fr_*.json")), cut_unfinished=True)
    assert simulate(workload, "default", "ring-2").makespan_ns > 0


GLOO = """
import runpy, sys
sys.path.insert(0, {path!r})
sys.argv[1:] = ["gloo.json", "--largest", "16KiB"]
runpy.run_module("chakrascope.runner.calibration.gloo", run_name="__main__")
"""


def test_two_ranks_measure_every_collective_of_gloo(tmp_path, script, run_ranks_alone, package_path):
    done = run_ranks_alone(script("", start=GLOO.format(path=package_path)), ranks=2)
    assert done.returncode == 0, done.stderr
    transfers = gloo_records(tmp_path / "gloo.json").transfers
    operations = {transfer.calls[0].operation for transfer in transfers}
    collectives = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
    rooted = {"broadcast", "reduce", "gather", "scatter"}
    assert operations == collectives | rooted | {"message", "exchange"}
    assert min(transfer.transfer_ns for transfer in transfers) > 0


# `profile` names causes planted into a training script, with their line and their cost.

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


@pytest.fixture
def advice(tmp_path, capsys, rank_command):
    """Return a function that profiles the script, which sleeps in *called* at *every* n-th step.

    The *command* runs the script, by default from the server of ranks, which starts faster. The function
    returns the advice by cause, and the mean time of the sleep per step. On busy cores, `descheduled` may
    gain more.
    """

    def profiled(called, every, seconds, *command):
        script = SCRIPT.strip("\n").replace("CALLED", called).replace("EVERY", str(every))
        script = script.replace("SECONDS", str(seconds))
        (tmp_path / "train.py").write_text(script)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path)
            command = command or rank_command(tmp_path / "train.py")
            answer(capsys, "profile", "-o", "s", "--", *command)
            summary = json.loads(answer(capsys, "summary", "s", "--format", "json"))
        # the largest gain of each cause
        found = {item["cause"]: item for item in reversed(summary["advice"])}
        return found, mean(json.loads((tmp_path / "spent.json").read_text())) / every

    return profiled


def test_sleep_in_each_step_is_named_with_its_gain(advice):
    found, cost_ns = advice("wait_for_token", 1, 0.15)
    # On busy cores, the rest of the function may take so long that the whole function is advised.
    assert found["sleep"]["key"] in ("cause:sleep=inf", "place:wait_for_token (train.py)=inf")
    assert f"wait_for_token (train.py:{LINE})" in found["sleep"]["what"]
    assert found["sleep"]["gain_ns"] == pytest.approx(cost_ns, rel=0.5)


def test_checkpoint_every_third_step_is_named_with_its_gain(advice):
    found, cost_ns = advice("save_checkpoint", 3, 0.4, sys.executable, "train.py")
    assert f"save_checkpoint (train.py:{LINE})" in found["checkpoint"]["what"]
    # On busy cores, the shown step may be one with a checkpoint; otherwise the gain is a mean over all steps.
    assert cost_ns / 2 < found["checkpoint"]["gain_ns"] < 2 * 3 * cost_ns
