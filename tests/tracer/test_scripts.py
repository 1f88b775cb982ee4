"""Scripts recorded without devices, peers or data: unmodified scripts, shares of ranks, errors."""

import json
import sys
from collections import Counter
from types import SimpleNamespace
from unittest import mock

import pytest

from chakrascope.converter import CollectiveType, convert
from chakrascope.errors import CaptureError, NothingCaptured
from chakrascope.runner import script_workload
from chakrascope.tracer import TraceSet, _scripts, record_script

from .conftest import JOBS, PARALLELISM, RANKS, serving

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def record(tmp_path_factory, package_path):
    """Return `record_script` with ranks that are forks of a recorded process, which has imported torch."""
    folder = tmp_path_factory.mktemp("recorded")
    options = json.dumps({"fake_run": {"rank": 0, "world": 1}})
    with serving(folder, package_path, *PARALLELISM, CHAKRASCOPE_CAPTURE=options, PYTORCH_JIT="0") as address:
        start = folder / "python"
        start.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {RANKS} {address} 1 "$@"\n')
        start.chmod(0o755)

        def run(*arguments, **options):
            with mock.patch.object(_scripts, "sys", SimpleNamespace(executable=str(start))):
                return record_script(*arguments, **options)

        yield run


ON_GPUS = """
import os, torch, torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
dist.init_process_group("nccl")
local = int(os.environ["LOCAL_RANK"])
assert torch.cuda.is_available() and torch.cuda.device_count() == 8
torch.cuda.set_device(local)
assert torch.accelerator.is_available() and torch.accelerator.current_accelerator().type == "cuda"
torch.accelerator.set_device_index(local)
device = torch.device(f"cuda:{local}")
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]).to(device)
model = torch.nn.parallel.DistributedDataParallel(torch.compile(model), device_ids=[local])
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.randn(2048, 512), torch.randint(0, 512, (2048,)))
loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data), num_workers=4, pin_memory=True)
for x, y in loader:
    x, y = x.to(device, non_blocking=True), y.cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0:
        print(f"{loss.item():.3f}")
"""


def communications(workload, rank=0):
    nodes = workload.graph_of(rank).nodes
    nodes = nodes[nodes["comm_size_bytes"] >= 0]
    world = tuple(range(workload.num_ranks))
    return [
        (node.name, node.comm_size_bytes, workload.groups.get(node.group, world))
        for node in nodes.itertuples()
    ]


def test_a_script_for_gpus_runs_as_it_is(tmp_path, script):
    recordings = record_script([str(script("", start=ON_GPUS))], tmp_path / "out", world=16)
    assert [one.rank for one in recordings] == [0, 15]
    workload = script_workload(recordings)
    assert (workload.num_ranks, len(workload.graphs)) == (16, 1)
    # Buckets in the order in which gradients come: at least 1 MiB first, a weight, then up to 25 MiB.
    layer, everyone = (512 * 512 + 512) * 4, tuple(range(16))
    first = 512 * 512 * 4
    assert communications(workload) == [
        ("all_reduce", first, everyone),
        ("all_reduce", 4 * layer - first, everyone),
    ]
    nodes = workload.graphs[0].nodes
    products = nodes[nodes["operator"].isin(["aten::addmm", "aten::mm"])]
    assert products["num_ops"].tolist() == [2 * 32 * 512 * 512] * (4 + 2 * 4 - 1)
    assert {name.partition(" ")[2] for name in products["name"]} == {"half"}  # under autocast
    assert recordings[0].tf32 == ["convolution"]  # PyTorch's default
    assert set(nodes["module"]) >= {"0", "3"}
    held = recordings[0].memory_bytes
    assert held.fixed >= 4 * layer * 3  # parameters and two states of the optimizer
    assert held.most > held.fixed


def test_tensor_parallel_ranks_count_local_work(tmp_path, record):
    command = [str(JOBS / "titan_style.py"), "--dp", "2", "--tp", "2", "--layers", "2", "--recompute"]
    recordings = record(command, tmp_path / "out", world=4)
    workload = script_workload(recordings, {"dp": 2, "tp": 2})
    found = communications(workload)
    sizes = {}
    for name, size, group in found:
        sizes.setdefault((name, group), []).append(size)
    # Activations of 4 x 32 x 64 in bf16, of which a tensor-parallel rank has half.
    assert 4 * 32 * 64 * 2 // 2 in sizes["all_gather", (0, 1)]
    assert set(sizes["reduce_scatter", (0, 1)]) == {4 * 32 * 64 * 2}
    # Weights: half for the data-parallel rank, and half of half of each matrix for the tensor-parallel one.
    block = (4 * 64 * 64 + 3 * 64 * 176) // 2 + 2 * 64
    assert sizes["all_gather", (0, 2)].count(block * 2 // 2) == 4  # two layers, forward and backward
    assert sizes["reduce_scatter", (0, 2)].count(block * 4) == 2
    nodes = workload.graphs[0].nodes
    w1 = nodes[(nodes["module"] == "layers.0.feed_forward.w1") & (nodes["operator"] == "aten::mm")]
    assert set(w1["num_ops"]) == {2 * 4 * 32 * 64 * 176 // 2}


def test_prefetched_weights_overlap_computation(tmp_path, record):
    recordings = record([str(JOBS / "fsdp2.py")], tmp_path / "out", world=2)
    graph = script_workload(recordings).graphs[0]
    nodes, edges = graph.nodes, graph.edges
    gathers = nodes.index[nodes["name"] == "all_gather"].tolist()
    assert len(gathers) == 4
    products = nodes.index[(nodes["phase"] == "forward") & (nodes["operator"] == "aten::addmm")].tolist()
    assert len(products) == 4

    def all_before(node):
        found, pending = set(), [node]
        while pending:
            for source in edges["src"][edges["dst"] == pending.pop()]:
                if source not in found:
                    found.add(source)
                    pending.append(source)
        return found

    # The second block's weights arrive while the first one computes; nothing waits for later blocks.
    assert not all_before(gathers[1]) & set(products)
    assert [len(all_before(product) & set(gathers)) for product in products] == [1, 1, 2, 2]


PARTS = """
import torch
from torch.nn.functional import linear, scaled_dot_product_attention
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(64, 256), torch.nn.Linear(256, 64)
    def forward(self, x):
        h = self.up(x)
        return x + self.down((h * 2).tanh() * h.sigmoid())
class Gate(torch.nn.Module):
    def __init__(self, compiled):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(256, 64))
        self.layer = layer = torch.nn.Linear(256, 256)
        def gate(h):
            return layer((h * 2).tanh() * h.sigmoid())
        self.gate = compiled(gate)
    def forward(self, x):
        return self.gate(linear(x, self.weight))
class Attention(torch.nn.Module):
    def __init__(self, causal):
        super().__init__()
        self.q = torch.nn.Parameter(torch.ones(2, 4, 64, 16))
        self.causal = causal
    def forward(self, x):
        return scaled_dot_product_attention(self.q, self.q, self.q, is_causal=self.causal)
parts = {"block": Block(), "compiled_block": Block()}
parts["compiled_block"].compile()
parts |= {"attention": Attention(False), "causal": Attention(True)}
parts |= {"gate": Gate(lambda gate: gate), "compiled_gate": Gate(torch.compile)}
parts["whole_gate"] = Gate(torch.compile(fullgraph=True))
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
    def forward(self, x):
        return sum(part(x).sum() for part in parts.values())
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(32, 64)).backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def moved(tmp_path_factory, record):
    """The nodes of one script of several parts, by part."""
    folder = tmp_path_factory.mktemp("parts")
    (folder / "train.py").write_text(PARTS)
    (recording,) = record([str(folder / "train.py")], folder / "out", world=1)
    nodes = script_workload([recording]).graphs[0].nodes
    return dict(iter(nodes.groupby(nodes["module"].str.partition(".")[0])))


def bytes_of(nodes, operator):
    return int(nodes["tensor_size_bytes"][nodes["operator"] == f"aten::{operator}"].sum())


@pytest.mark.parametrize(
    ("plain", "compiled"),
    [("block", "compiled_block"), ("gate", "compiled_gate"), ("gate", "whole_gate")],
    ids=["module", "function", "function with options"],
)
def test_compiled_modules_move_bytes_of_one_kernel(moved, plain, compiled):
    plain, compiled = moved[plain], moved[compiled]
    wide = 32 * 256 * 4
    for name in ("tanh", "sigmoid"):
        # One kernel reads h once. Of its results, the matmul needs the last, the backward pass the other two.
        assert (bytes_of(plain, name), bytes_of(compiled, name)) == (2 * wide, wide)
    assert bytes_of(compiled, "tanh_backward") < bytes_of(plain, "tanh_backward")
    assert bytes_of(compiled, "addmm") == bytes_of(plain, "addmm")


def test_causal_attention_counts_the_pairs_it_computes(moved):
    counts = [
        nodes["num_ops"][nodes["operator"].str.contains("flash_attention")].tolist()
        for nodes in (moved["attention"], moved["causal"])
    ]
    assert counts[0] == [2 * count for count in counts[1]]
    assert len(counts[0]) == 2


def test_hugging_face_trainer_runs_as_it_is(tmp_path, record):
    pytest.importorskip("transformers", reason="Hugging Face's Trainer is an extra")
    (only,) = record([str(JOBS / "hugging_face.py")], tmp_path / "out", world=1)
    names = [entry.name for entry in only.entries]
    assert names.count("aten::embedding") == 2 * 2  # tokens and positions, of two accumulated batches
    assert any("layer_norm_backward" in name for name in names)


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (
            "torch.load('no_such_file.pt')",
            r"train.py:\d+.* reads data that does not exist here.*let the script generate",
        ),
        ("import flash_attn", r"train.py:\d+.* imports a module that is not installed here .*flash_attn"),
        ("torch.ones(4).nonzero()", r"train.py:\d+.* shape depends on values .*equal share"),
        (
            "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
            "FSDP(torch.nn.Linear(4, 4))(torch.ones(2, 4))",
            "fully_shard instead",
        ),
        ("train(1)", "no optimizer made two steps"),
    ],
)
def test_unrecordable_script_gets_a_next_step(tmp_path, script, record, ending, said):
    with pytest.raises(CaptureError, match=said) as caught:
        record([str(script(ending))], tmp_path / "out", world=1)
    assert isinstance(caught.value, NothingCaptured) == (ending == "train(1)")
    assert "\n" not in caught.value.message


# With fake tensors, a script has the same communication and the same matmuls as in a real run.


PRODUCTS = ("mm", "convolution", "attention")


def captured_communications(workload, rank):
    """Return the sends, receives and collectives of a rank, in order: kind, bytes, members or peers."""
    nodes = workload.graph_of(rank).nodes
    nodes = nodes[nodes["comm_size_bytes"] >= 0]
    world = tuple(range(workload.num_ranks))
    return [
        (
            node.type,
            node.comm_type,
            node.comm_size_bytes,
            workload.groups.get(node.group, world) if node.comm_type >= 0 else (node.comm_src, node.comm_dst),
        )
        for node in nodes.itertuples()
    ]


def products(workload, rank):
    """Return the matmuls of a rank: pass, operations and bytes, and how often."""
    nodes = workload.graph_of(rank).nodes
    nodes = nodes[nodes["operator"].str.contains("|".join(PRODUCTS)) & (nodes["num_ops"] > 1)]
    return Counter(nodes[["operator", "phase", "num_ops", "tensor_size_bytes"]].itertuples(index=False))


@pytest.mark.parametrize(
    "job",
    [
        "many_collectives.py",
        "fsdp2.py",
        "tensor_parallel.py",
        "ddp_buckets.py",
        "interleaved.py zero-bubble",
    ],
)
def test_no_communication_is_lost_and_none_made_up(tmp_path, run_ranks, record, job):
    path, *words = job.split()
    done = run_ranks(path, *words, ranks=2, folder="captured", warmup=3, steps=1)
    assert done.returncode == 0, done.stderr
    captured = convert(TraceSet.load(tmp_path / "captured").path)
    recorded = script_workload(record([str(JOBS / path), *words], tmp_path / "recorded", world=2))
    for rank in range(2):
        assert captured_communications(recorded, rank) == captured_communications(captured, rank)
        assert captured_communications(captured, rank)
        assert products(recorded, rank) == products(captured, rank)
        assert products(captured, rank)


# One process that represents rank 0 of many: its recording, and the graphs of all ranks made from it.


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


@pytest.fixture(scope="module")
def fake_rank_server(tmp_path_factory, package_path):
    """Return the address of a process that has imported torch and starts fake worlds fast."""
    options = json.dumps({"fake_world": 1})
    folder = tmp_path_factory.mktemp("fake")
    with serving(folder, package_path, *PARALLELISM, CHAKRASCOPE_CAPTURE=options) as address:
        yield address


@pytest.fixture
def run_fake(run_trace, fake_rank_server):
    """Return a function that traces a script as rank 0 of a fake world."""

    def run(path, *arguments, **options):
        return run_trace(sys.executable, RANKS, fake_rank_server, 1, path, *arguments, **options)

    return run


def test_sharded_and_replicated_groups_follow_their_ranks(tmp_path, run_fake):
    done = run_fake(JOBS / "fsdp2.py", "--hybrid", fake_world=8, warmup=2, steps=2)
    assert done.returncode == 0, done.stderr
    trace_set = TraceSet.load(tmp_path / "out")
    assert (trace_set.partial, trace_set.world_size, trace_set.fake_world) == (False, 8, True)
    assert "ran as rank 0 of 8" in trace_set.notes[0]
    workload = convert(trace_set.path)
    assert workload.num_ranks == 8
    for rank in range(8):
        pair, every_other = (rank // 2 * 2, rank // 2 * 2 + 1), tuple(range(rank % 2, 8, 2))
        assert collectives(workload, rank) == {
            (CollectiveType.ALL_GATHER, 2144, pair),
            (CollectiveType.REDUCE_SCATTER, 4288, pair),
            (CollectiveType.ALL_REDUCE, 2144, every_other),
        }


def test_a_data_parallel_job_of_512_ranks_needs_one_process(tmp_path, script, run_fake):
    done = run_fake(script(DATA_PARALLEL), fake_world=512, warmup=2, steps=2)
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
    """The process is a separate Python, as a user's is."""
    done = run_trace(sys.executable, script("", start=TENSOR_PARALLEL), fake_world=8, warmup=2, steps=1)
    assert done.returncode == 0, done.stderr
    workload = convert(TraceSet.load(tmp_path / "out").path)
    nodes = workload.graphs[0].nodes
    assert nodes["comm_type"][nodes["comm_type"] >= 0].tolist() == [CollectiveType.ALL_REDUCE] * 2
    assert collectives(workload, 7) == {(CollectiveType.ALL_REDUCE, 32 * 64 * 4, ())}
