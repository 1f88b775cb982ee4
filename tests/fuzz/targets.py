"""The fuzzed readers: for each, small valid files as seeds, and the code that uses the files."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import pickle
import socket
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import yaml

from chakrascope.converter import (
    Workload,
    convert,
    convert_files,
    convert_logs,
    decode_graph,
    doctor,
    read_et,
    read_text_workload,
)
from chakrascope.converter.kernels import read_patterns
from chakrascope.converter.readers import (
    is_operation_table,
    read_device_trace,
    read_host_trace,
    read_operation_table,
    recorded_operations,
)
from chakrascope.errors import BackendError, ChakrascopeError, ConfigError
from chakrascope.runner import (
    Experiment,
    MemoryConfig,
    NetworkConfig,
    Study,
    SystemConfig,
    WorkloadSource,
    critical_path,
    load_groups,
    simulate,
    summarize,
)
from chakrascope.runner.analysis import find_stragglers
from chakrascope.runner.chips import load_chip
from chakrascope.runner.config import fabric_of, preset_text
from chakrascope.runner.emulation._hosts import read_setup
from chakrascope.runner.emulation._wire import Channel, algorithms_of, challenge, columns_from_wire, config_of
from chakrascope.runner.gpu import load_machine
from chakrascope.runner.prediction.models import find_model
from chakrascope.runner.programs import inspect_program, read_program
from chakrascope.runner.sweep import Prices, read_points
from chakrascope.support.table import ParquetFile, frame_bytes
from chakrascope.tracer import TraceSet

__all__ = ["CORPUS", "TARGETS", "Target", "saved_cases"]

CORPUS = Path(__file__).with_name("corpus.zip")
_TESTS = Path(__file__).parents[1]
_DATA = _TESTS / "data"
sys.path[:0] = [str(_TESTS), str(_TESTS / "converter"), str(_TESTS / "runner")]

import log_files  # noqa: E402 - beside other tests
import step_times  # noqa: E402
import training_job  # noqa: E402
import workloads  # noqa: E402
from studies import as_version_0_2  # noqa: E402

Files = dict[str, bytes]
_DEFAULTS = {"link-defaults": {"*": {"bandwidth": "100Gb/s", "latency": "1us"}}}


def saved_cases(name: str) -> dict[str, Files]:
    """Return the files of each stored crash of the reader *name*; the corpus has NAME/CASE/FILE."""
    cases: dict[str, Files] = {}
    with zipfile.ZipFile(CORPUS) as archive:
        for path in archive.namelist():
            reader, case, file = path.split("/", maxsplit=2)
            if reader == name:
                cases.setdefault(case, {})[file] = archive.read(path)
    return cases


@dataclass(frozen=True)
class Target:
    """A reader: *seeds* are folders of valid files, *use* reads a folder, *changed* may be damaged.

    *weight* is the relative frequency of the reader.
    """

    seeds: Callable[[], list[Files]]
    use: Callable[[Path], Any]
    changed: tuple[str, ...] = ()
    weight: int = 2


def _plain(name: str, *paths: str) -> Callable[[], list[Files]]:
    """Return a function that makes seeds of one file called *name*, from any file of the test data."""

    def seeds() -> list[Files]:
        contents = [(_DATA / path).read_bytes() for path in paths]
        opened = [gzip.decompress(each) if each[:2] == b"\x1f\x8b" else each for each in contents]
        return [{name: each} for each in opened]

    return seeds


def _texts(*seeds: dict[str, str]) -> Callable[[], list[Files]]:
    return lambda: [{name: text.encode() for name, text in seed.items()} for seed in seeds]


def _folder(path: Path) -> Files:
    return {
        str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()
    }


def _system() -> SystemConfig:
    return SystemConfig.preset("default")


def _job() -> Workload:
    nodes = [
        [workloads.comp(1, 100), workloads.coll(2, 4096, (1,)), workloads.comp(3, 50, (2,))] for _ in range(2)
    ]
    return workloads.workload(*nodes, groups={1: (0, 1)})


def _saved_workload() -> list[Files]:
    with tempfile.TemporaryDirectory() as folder:
        _job().save(Path(folder) / "w")
        return [_folder(Path(folder))]


def _saved_study() -> list[Files]:
    with tempfile.TemporaryDirectory() as folder:
        job, network = _job(), NetworkConfig.preset("ring-2")
        job.save(Path(folder) / "job" / "w")
        study = Study.create(Path(folder) / "study")
        study.import_workload(Path(folder) / "job" / "w")
        experiment = Experiment(WorkloadSource.of_model(job), _system(), network, MemoryConfig())
        study.add_run(experiment, simulate(job, _system(), network))
        files = _folder(study.path)
        # With checksums every change would end there, and no reader behind them see any.
        as_version_0_2(next(study.run_dirs()))
        (study.workloads_dir / "w" / "SHA256SUMS").unlink()
        return [files, _folder(study.path)]


def _captured() -> list[Files]:
    return [_folder(_DATA / "converter" / "ring_2")]


def _gpu_job() -> list[Files]:
    folder = _DATA / "converter" / "dlrm_v100_8"
    sides = {"host.json": "et_0.json.gz", "kineto.json": "kineto_0.json.gz"}
    return [{name: gzip.decompress((folder / file).read_bytes()) for name, file in sides.items()}]


def _logs(kind: str) -> Callable[[], list[Files]]:
    def seeds() -> list[Files]:
        with tempfile.TemporaryDirectory() as folder:
            return [_folder(log_files.straggling_job(steps=2).write(Path(folder) / "logs", kind))]

    return seeds


def _operations() -> list[Files]:
    table = training_job.TrainingJob(micro_batches=2, steps=2).table()
    return [
        {"operations.csv": content} for content in (table.to_csv(index=False).encode(), table.to_parquet())
    ]


def _use_operations(folder: Path) -> None:
    if is_operation_table(folder / "operations.csv"):
        find_stragglers(read_operation_table(folder / "operations.csv"))


def _recorded_steps() -> list[Files]:
    with tempfile.TemporaryDirectory() as folder:
        return [_folder(step_times.data_parallel_job(Path(folder), ranks=2, count=8))]


def _pickled() -> list[Files]:
    return [
        {
            name.replace(".json", ".pickle"): pickle.dumps(json.loads(content), protocol=2)
            for name, content in files.items()
        }
        for files in _logs("flight")()
    ]


def _archives() -> list[Files]:
    trace = _folder(_DATA / "converter" / "ring_2")["rank0.device.json.gz"]
    packed, tarred = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("logs/rank0.json.gz", trace)
    with tarfile.open(fileobj=tarred, mode="w:gz") as archive:
        member = tarfile.TarInfo("logs/rank0.json.gz")
        member.size = len(trace)
        archive.addfile(member, io.BytesIO(trace))
    return [{"a.zip": packed.getvalue()}, {"a.zip": tarred.getvalue()}]


def _presets(kind: str, name: str, *chosen: str) -> Callable[[], list[Files]]:
    return lambda: [{name: preset_text(kind, preset).encode()} for preset in chosen]


# The use of the files


def _use_gpu(folder: Path) -> None:
    """Convert both traces, and the device trace alone."""
    with contextlib.suppress(ChakrascopeError):
        convert_files([folder / "host.json"], [folder / "kineto.json"])
    convert_files(device_trace=[folder / "kineto.json"])


def _use_et(folder: Path) -> None:
    graph = decode_graph(read_et(folder / "a.0.et"))
    graph.nodes.describe(include="all")


def _use_workload(folder: Path) -> None:
    job = Workload.load(folder / "w")
    doctor(folder / "w")
    simulate(job, _system(), NetworkConfig(("Ring",), (2,), (50.0,), (500.0,)))


def _use_system(folder: Path) -> None:
    simulate(_job(), SystemConfig.load(folder / "system.json"), NetworkConfig.preset("ring-2"))


def _use_memory(folder: Path) -> None:
    memory = MemoryConfig.load(folder / "memory.json")
    simulate(_job(), _system(), NetworkConfig.preset("ring-2"), memory)


def _use_network(folder: Path) -> None:
    network = NetworkConfig.load(folder / "network.yml")
    if network.num_ranks == 2:
        for backend in ("analytical-unaware", "analytical-aware", "flow"):
            with contextlib.suppress(BackendError, ConfigError):  # some backends refuse some networks
                simulate(_job(), _system(), network, backend=backend)


def _use_packet(folder: Path) -> None:
    logical = folder / "logical.json"
    fabric_of(NetworkConfig.load_packet(folder / "config.txt", logical if logical.exists() else None))


def _use_infragraph(folder: Path) -> None:
    fabric_of(NetworkConfig.load(folder / "fabric.json", _DEFAULTS))


def _parquet_files() -> list[Files]:
    """Return Parquet files of this project, and Parquet files with other settings and no checksums."""
    missing = pa.table({"i": [1, None, 3] * 20, "t": ["a", None, "bc"] * 20, "b": [True, None, False] * 20})
    numbers = pa.table({"n": np.arange(60) * 1000, "r": np.arange(60) // 15, "f": np.linspace(0, 1, 60)})
    made = [{"a.parquet": frame_bytes(missing.to_pandas())}]
    for table in (numbers, missing):
        for settings in ({}, {"use_dictionary": False}, {"compression": "none"}):
            file = io.BytesIO()
            pyarrow.parquet.write_table(table, file, **settings)
            made.append({"a.parquet": file.getvalue()})
    return made


def _use_parquet(folder: Path) -> None:
    """Read Parquet files as the commands do, which report faults of a file as errors."""
    try:
        file = ParquetFile(folder / "a.parquet")
        file.read()
        [file.bounds(name) for name in file.kinds]
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _use_study(folder: Path) -> None:
    study = Study.open(folder)
    for run in study.runs():
        result = study.result(run.id)
        study.experiment(run.id)
        job = study.run_workload(run.id)
        summarize(result, job)
        critical_path(result, job)


def _use_program(folder: Path) -> None:
    for file in folder.iterdir():
        inspect_program(read_program(file), 1 << 20)


def _use_model(folder: Path) -> None:
    for file in folder.iterdir():
        model = find_model(file)
        assert model.name


def _framed(content: bytes) -> Any:
    """Return *content* framed and signed by a channel."""
    from chakrascope.runner.emulation import _wire

    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(ours, b"k", b"k")
        head = int.from_bytes(content[:4], "big")
        body = content[4:]
        length = _wire._LENGTH.pack(len(body), min(head, len(body)))
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
        sealed = _wire.signature(b"k", (0).to_bytes(8, "big"), length, body)
        theirs.setblocking(False)
        theirs.send(length + sealed + body)
        return channel.receive(0.05)


def _use_wire(folder: Path) -> None:
    """Read a message of a rank that has the secret but is otherwise not trusted."""
    message = _framed((folder / "frame.wire").read_bytes()[: 60 << 10])
    if message.kind == "job":
        algorithms_of(message)
        config_of(message)
    elif message.kind == "output":
        columns_from_wire(message)


def _use_handshake(folder: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        theirs.send((folder / "hello.wire").read_bytes()[: 60 << 10])
        theirs.shutdown(socket.SHUT_WR)
        challenge(ours, b"0" * 32)


def _frames() -> list[Files]:
    facts = {"tables": [["sends", "start_ns", "int64"], ["sends", "tag", "int32"]]}
    whole = {"kind": "output", "facts": facts, "sizes": [16, 8]}
    head = json.dumps(whole).encode()
    return [{"frame.wire": len(head).to_bytes(4, "big") + head + bytes(24)}]


_HOSTS = """listen: 127.0.0.1:5555
token_file: token
transport: tcp
repeat: 3
join: 30s
limit: 60s
hosts:
  - {name: one, address: 127.0.0.1, ranks: [0], location: leaf 1}
  - {name: two, nics: [127.0.0.2, 127.0.0.3], ranks: [1, 2]}
"""
_LINKS = """topology: [Switch]
npus_count: [2]
bandwidth: [50]
latency: [500]
links: [[0, 2, 50, 500], [1, 2, 50, 500]]
failures: [{link: [0, 2], at: 1us, rate: 0.5}]
"""
_PACKET_CONFIG = """ENABLE_QCN 1
TOPOLOGY_FILE topo.txt
KMIN_MAP 2 100000000000 400 400000000000 800
RATE_AI 50Mb/s
BUFFER_SIZE 7
CC_MODE 1
"""
_TOPOLOGY = "5 1 4\n4\n0 4 400Gbps 0.0005ms 0\n1 4 400Gbps 0.0005ms 0\n2 4 100Gbps 1us 0\n3 4 50GBps 0 0.25\n"
_MEMORY = {
    "memory-type": "PER_NODE_MEMORY_EXPANSION",
    "remote-mem-latency": 9,
    "num-nodes": 2,
    "num-npus-per-node": 1,
}
_LLAMA = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "intermediate_size": 11008, "vocab_size": 32000, "max_position_embeddings": 4096,
    "num_key_value_heads": 8,
}  # fmt: skip
_TEXT_WORKLOAD = (
    "DATA\n2\na -1 10 NONE 0 20 NONE 0 30 ALLREDUCE 4096 5\nb -1 1 NONE 0 2 NONE 0 3 ALLREDUCE 8 5\n"
)
_CUSTOM = {"scheduling-policy": "LIFO", "all-reduce-implementation": ["ring"], "preferred-dataset-splits": 4,
           "active-chunks-per-dimension": 2, "endpoint-delay": 10, "local-mem-bw": 1600, "peak-perf": 900,
           "all-gather-implementation": ["direct2"]}  # fmt: skip
_PATTERNS = """- library: ours
  version: 1.2
  kernels:
    - {name: 'ring_.*', operation: send_recv}
    - {name: 'gemm', within: 'a::b', operation: all_to_all, kind: compute}
"""
_PROGRAMS = ("allgather_ring", "hierarchical_allreduce", "alltoall_a100_three_step")
_PLANS = (
    "allreduce_packet",
    "allreduce_pipeline",
    "multi_node_allgather",
    "single_node_allreduce_nvls_zero_copy",
)
_FABRICS = ("single-tier", "dgx1", "clos-fat-tree-2", "dragonfly")


def _shipped(package: str, file: str) -> Callable[[], list[Files]]:
    path = Path(sys.modules[f"chakrascope.runner.{package}"].__file__ or "").with_name(file)
    blocks = yaml.safe_load(path.read_text())
    return lambda: [{"file.yml": yaml.safe_dump(block).encode()} for block in blocks.values()]


TARGETS = {
    "host": Target(
        _plain("host.json", *(f"converter/ring_2/rank{rank}.host.json.gz" for rank in (0, 1))),
        lambda folder: read_host_trace(folder / "host.json"),
        weight=5,
    ),
    "kineto": Target(
        _plain("device.json", "converter/ring_2/rank0.device.json.gz"),
        lambda folder: read_device_trace(folder / "device.json", with_arguments=True),
        weight=5,
    ),
    "linked": Target(
        _plain("linked.json", "converter/linked/linked_0.json.gz"),
        lambda folder: convert_files(linked_trace=[folder / "linked.json"]),
    ),
    "gpu": Target(_gpu_job, _use_gpu, weight=3),
    "compressed": Target(
        lambda: [{"d.json.gz": (_DATA / "converter/ring_2/rank0.device.json.gz").read_bytes()}],
        lambda folder: read_device_trace(folder / "d.json.gz"),
    ),
    "archive": Target(_archives, lambda folder: convert_files(device_trace=str(folder / "a.zip"))),
    "patterns": Target(
        _texts({"patterns.yml": _PATTERNS}), lambda folder: read_patterns(folder / "patterns.yml"), weight=1
    ),
    "et": Target(
        _plain("a.0.et", *(f"converter/chakra/{name}.et" for name in ("all_kinds", "storage", "public.0"))),
        _use_et,
        weight=8,
    ),
    "workload": Target(_saved_workload, _use_workload, weight=5),
    "capture": Target(_captured, convert, weight=3),
    "manifest": Target(_captured, TraceSet.load, ("manifest.json",)),
    "flight": Target(_logs("flight"), lambda folder: convert_logs([folder], back_to_back=True)),
    "pickle": Target(_pickled, lambda folder: convert_logs([folder], back_to_back=True)),
    "inspector": Target(_logs("inspector"), lambda folder: convert_logs([folder], back_to_back=True)),
    "operations": Target(_operations, _use_operations, weight=2),
    "steps": Target(
        _recorded_steps, lambda folder: find_stragglers(recorded_operations(TraceSet.load(folder))), weight=3
    ),
    "text": Target(_texts({"w.txt": _TEXT_WORKLOAD}), lambda folder: read_text_workload(folder / "w.txt", 4)),
    "system": Target(
        lambda: [
            *_presets("system", "system.json", "default")(),
            {"system.json": json.dumps(_CUSTOM).encode()},
        ],
        _use_system,
        weight=4,
    ),
    "network": Target(
        lambda: [*_presets("network", "network.yml", "ring-2")(), {"network.yml": _LINKS.encode()}],
        _use_network,
        weight=4,
    ),
    "memory": Target(_texts({"memory.json": json.dumps(_MEMORY)}), _use_memory),
    "groups": Target(
        _texts({"groups.json": '{"1": [0, 1], "2": [2, 3, 4]}'}),
        lambda folder: load_groups(folder / "groups.json"),
    ),
    "packet": Target(
        _texts(
            {
                "config.txt": _PACKET_CONFIG,
                "topo.txt": _TOPOLOGY,
                "logical.json": '{"logical-dims": ["2", "2"]}',
            }
        ),
        _use_packet,
    ),
    "infragraph": Target(
        _plain("fabric.json", *(f"runner/infragraph/{name}.json" for name in _FABRICS)), _use_infragraph
    ),
    "msccl": Target(
        _plain("p.xml", *(f"runner/programs/{name}.xml.gz" for name in _PROGRAMS)), _use_program, weight=3
    ),
    "mscclpp": Target(
        _plain("p.json", *(f"runner/programs/{name}.json.gz" for name in _PLANS)), _use_program
    ),
    "study": Target(_saved_study, _use_study, weight=5),
    "parquet": Target(_parquet_files, _use_parquet, weight=3),
    "hosts": Target(
        _texts({"hosts.yml": _HOSTS, "token": "0123456789abcdef0123\n"}),
        lambda folder: read_setup(str(folder / "hosts.yml")),
        ("hosts.yml", "token"),
    ),
    "machine": Target(_shipped("gpu", "machines.yml"), lambda folder: load_machine(folder / "file.yml")),
    "chip": Target(_shipped("chips", "chips.yml"), lambda folder: load_chip(folder / "file.yml")),
    "model": Target(
        lambda: [
            {"config.json": json.dumps(_LLAMA).encode()},
            {
                "m.yml": yaml.safe_dump(
                    {"layers": 4, "hidden": 64, "heads": 4, "vocab": 9, "sequence": 8}
                ).encode()
            },
        ],
        _use_model,
    ),
    "points": Target(
        _texts({"points.jsonl": '{"network.bandwidth": [25, 50], "system.endpoint-delay": 3}'}),
        lambda folder: read_points(folder / "points.jsonl"),
        weight=1,
    ),
    "prices": Target(
        _texts({"prices.yml": "ring-8: 0.5\n"}),
        lambda folder: Prices.parse([str(folder / "prices.yml")]),
        weight=1,
    ),
    "wire": Target(_frames, _use_wire),
    "handshake": Target(
        lambda: [{"hello.wire": b"chakrascope emulation 1\n" + bytes(64)}], _use_handshake, weight=1
    ),
}
