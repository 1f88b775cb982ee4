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
