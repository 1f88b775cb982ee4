"""Custom and symmetric-memory collectives have the size of the operator that launched them."""

from __future__ import annotations

import json

import pytest

from chakrascope.converter import CollectiveType, NodeType, convert_files
from chakrascope.converter.kernels import unsized_communication

SYMMETRIC = "void c10d::symmetric_memory::one_shot_all_reduce_kernel<c10::BFloat16, 16, 8, false>(x)"
VLLM = "void vllm::cross_device_reduce_2stage<__half, 4>(vllm::RankData*, vllm::RankSignals)"
GATHER = "void c10d::symmetric_memory::multimem_all_gather_kernel<16>(x)"


def trace(path, operator, kernels, dims, types, *, concrete=(), world=4, groups=()):
    """Write a trace with one *operator*, which launches *kernels* one after the other."""
    events = []

    def event(category, name, start, duration, **args):
        args = {key.replace("_", " "): value for key, value in args.items()}
        events.append({"ph": "X", "pid": 1, "tid": 1, "cat": category, "name": name, "ts": start,
                       "dur": duration, "args": args})  # fmt: skip

    event("cpu_op", "vllm::unified", 5, 100, External_id=1)
    event("cpu_op", operator, 10, 90, External_id=2, Input_Dims=dims, Input_type=types,
          Concrete_Inputs=[*concrete, *[""] * (len(dims) - len(concrete))])  # fmt: skip
    for number, kernel in enumerate(kernels):
        event("cuda_runtime", "cudaLaunchKernel", 20 + 10 * number, 5, correlation=number + 7)
        event("kernel", kernel, 40 + 10 * number, 8, correlation=number + 7, stream=7, device=0)
    info = {"rank": 0, "world_size": world, "pg_config": list(groups)}
    path.write_text(json.dumps({"schemaVersion": 1, "distributedInfo": info, "traceEvents": events}))
    return path


def group(name, *ranks):
    return {"pg_name": name, "pg_desc": "", "pg_size": len(ranks), "ranks": list(ranks)}


def collectives(workload):
    """Return kind, bytes and ranks of each collective."""
    nodes = workload.graphs[0].nodes
    found = nodes[nodes["type"] == NodeType.COMM_COLL]
    columns = (found[name].tolist() for name in ("comm_type", "comm_size_bytes", "group"))
    return [
        (CollectiveType(kind), size, workload.groups.get(key, ()))
        for kind, size, key in zip(*columns, strict=True)
    ]


ONE_SHOT = ("symm_mem::one_shot_all_reduce", [SYMMETRIC], [[64, 32], [], []], ["c10::BFloat16", "", ""])


@pytest.mark.parametrize(
    ("called", "expected"),
    [
        (ONE_SHOT, (CollectiveType.ALL_REDUCE, 4096)),
        (("_C_custom_ar::all_reduce", [VLLM], [[], [3, 50], [3, 50], []],
          ["Scalar", "c10::Half", "c10::Half", ""]), (CollectiveType.ALL_REDUCE, 300)),
        (("symm_mem::multimem_all_gather_out", [GATHER], [[10], [], [40]], ["float", "", "float"]),
         (CollectiveType.ALL_GATHER, 40)),
    ],
)  # fmt: skip
def test_they_move_the_first_tensor_of_their_operator(tmp_path, called, expected):
    workload = convert_files(None, str(trace(tmp_path / "trace.json", *called)))
    assert collectives(workload) == [(*expected, ())]
    assert unsized_communication(workload) is None
    assert any("are of all ranks" in note for note in workload.metadata["assumptions"])


@pytest.mark.parametrize(
    ("concrete", "groups", "count"),
    [
        (("", "", '"tp"'), [group("tp", 0, 1, 2, 3), group("dp", 0, 2)], 1),
        ((), [group("world", 0, 1, 2, 3), group("alone", 0)], 1),
        ((), [group("world", 0, 1, 2, 3), group("tp", 0, 1)], 0),
        (("", "", '"tp"'), [group("world", 0, 1, 2, 3), group("tp", 0, 1)], 0),
    ],
    ids=["named", "the only one", "ambiguous", "of some ranks"],
)
def test_they_are_of_all_ranks(tmp_path, concrete, groups, count):
    path = trace(tmp_path / "trace.json", *ONE_SHOT, concrete=concrete, groups=groups)
    assert len(collectives(convert_files(None, str(path)))) == count


@pytest.mark.parametrize(
    ("operator", "kernels", "dims", "world"),
    [
        (ONE_SHOT[0], [SYMMETRIC], [[64, 32], [], []], 16),
        (ONE_SHOT[0], [SYMMETRIC, SYMMETRIC], [[64, 32], [], []], 4),
        (ONE_SHOT[0], [SYMMETRIC], [[-3, 2**62], [], []], 4),
        ("symm_mem::fused_matmul_all_reduce", [SYMMETRIC], [[64, 32], [], []], 4),
        ("ours::step", [SYMMETRIC], [[64, 32], [], []], 4),
    ],
    ids=["several nodes", "several kernels", "no shape", "a product", "another operator"],
)
def test_what_does_not_tell_size_and_ranks_leaves_the_measured_time(tmp_path, operator, kernels, dims, world):
    path = trace(tmp_path / "trace.json", operator, kernels, dims, ONE_SHOT[3], world=world)
    found = unsized_communication(convert_files(None, str(path)))
    assert found is not None
    assert (found.kernels, found.duration_ns) == (len(kernels), 8_000 * len(kernels))
