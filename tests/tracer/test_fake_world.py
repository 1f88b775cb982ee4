"""One process that poses as rank 0 of many: what it records, and the graphs of all ranks made of it."""

import sys

import pytest

from chakrascope.converter import CollectiveType, convert
from chakrascope.tracer import TraceSet

from .conftest import JOBS

pytestmark = pytest.mark.torch

DATA_PARALLEL = """
def half(state, bucket):
    raise AssertionError("a hook that would need real ranks")
model.register_comm_hook(None, half)
assert (dist.get_world_size(), os.environ["LOCAL_RANK"]) == (512, "0")
dist.barrier()
train(5)
dist.destroy_process_group()
"""


def collectives(workload, rank):
    nodes = workload.graphs[workload.program_of_rank[rank]].nodes
    nodes = nodes[nodes["comm_type"] >= 0]
    columns = nodes[["comm_type", "comm_size_bytes", "group"]].drop_duplicates()
    return {
        (kind, size, workload.groups.get(group, ())) for kind, size, group in columns.itertuples(index=False)
    }


def test_sharded_and_replicated_groups_follow_their_ranks(tmp_path, run_trace):
    done = run_trace(sys.executable, JOBS / "fsdp2.py", "--hybrid", fake_world=8, warmup=2, steps=2)
    assert done.returncode == 0, done.stderr
    trace_set = TraceSet.load(tmp_path / "out")
    assert (trace_set.partial, trace_set.world_size, trace_set.fake_world) == (False, 8, True)
    assert "posed as rank 0 of 8" in trace_set.notes[0]
    workload = convert(trace_set.path)
    assert workload.num_ranks == 8
    for rank in range(8):
        pair, every_other = (rank // 2 * 2, rank // 2 * 2 + 1), tuple(range(rank % 2, 8, 2))
        assert collectives(workload, rank) == {
            (CollectiveType.ALL_GATHER, 2144, pair),
            (CollectiveType.REDUCE_SCATTER, 4288, pair),
            (CollectiveType.ALL_REDUCE, 2144, every_other),
        }


def test_a_data_parallel_job_of_512_ranks_needs_one_process(tmp_path, script, run_trace):
    done = run_trace(sys.executable, script(DATA_PARALLEL), fake_world=512, warmup=2, steps=2)
    assert done.returncode == 0, done.stderr
    trace_set = TraceSet.load(tmp_path / "out")
    assert any("communication hook" in note for note in trace_set.notes)
    workload = convert(trace_set.path)
    assert (workload.num_ranks, len(workload.graphs)) == (512, 1)
    # 8*8 + 8 + 8 + 1 parameters of 4 bytes
    assert collectives(workload, 511) == {(CollectiveType.ALL_REDUCE, 324, ())}


TENSOR_PARALLEL = """
import torch
from torch import distributed as dist, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
with FakeTensorMode():
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    model = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        x = torch.randn(32, 64, requires_grad=True)
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_no_functional_collective_of_fake_tensors_is_lost(tmp_path, script, run_trace):
    done = run_trace(sys.executable, script("", start=TENSOR_PARALLEL), fake_world=8, warmup=2, steps=1)
    assert done.returncode == 0, done.stderr
    workload = convert(TraceSet.load(tmp_path / "out").path)
    nodes = workload.graphs[0].nodes
    assert nodes["comm_type"][nodes["comm_type"] >= 0].tolist() == [CollectiveType.ALL_REDUCE] * 2
    assert collectives(workload, 7) == {(CollectiveType.ALL_REDUCE, 32 * 64 * 4, ())}
