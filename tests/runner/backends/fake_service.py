"""A fake of ASTRA-sim Service, and experiments that run on it.

Answers have the bytes that version 1.2.1 was seen to send; behind "ns3" there is no packet either. A method
in `FakeService.instead` does something else, with the request's bytes and gRPC's context.
"""

import io
import tempfile
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
from processes import wait_for
from workloads import coll, comp, workload

from chakrascope.converter import Workload
from chakrascope.runner import MemoryConfig, NetworkConfig, SystemConfig, get_backend, prepare
from chakrascope.runner.backends.service import ServiceAddress, ServiceBackend
from chakrascope.runner.backends.service._request import MESSAGES, message

RUNNING, COMPLETED, FAILED, TERMINATED, INACTIVE = 1, 2, 3, 4, 5
TOPOLOGIES = {1: "Ring", 2: "FullyConnected", 3: "Switch"}
NETWORKS = {1: "analytical-aware", 2: "analytical-unaware", 3: "analytical-unaware"}
BUS = {"latency": "L", "overhead": "o", "gap": "g", "global_memory": "G"}
LOST = (
    "Exception calling application: Invalid StatusCode.{0} format, expected int32 at <class 'Error'> \n got"
)


class FakeService:
    """A service on a free port of this machine; a context manager."""

    def __init__(self):
        self.instead = {}
        self.calls = []
        self.status = INACTIVE
        self.runs_s = 0.0
        self.ends_at = 0.0
        self.archive = b""
        self.config = None
        self.log = ""
        self.files = {}
        self.released = threading.Event()
        self._server = grpc.server(ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers((_Methods(self),))
        self.port = self._server.add_insecure_port("127.0.0.1:0")

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *_):
        self.released.set()
        self._server.stop(None).wait()

    def die(self, *_):
        """Break all connections, as when the process is killed."""
        self._server.stop(0)
        self.released.wait(5)
        return b""

    def hang(self, *_):
        """Never answer while a client waits."""
        self.released.wait(200)
        return b""

    def upload(self, chunks, context):
        if self.now() == RUNNING:
            context.abort(grpc.StatusCode.UNAVAILABLE, LOST.format("UNAVAILABLE"))
        parts = []
        for chunk in chunks:
            data = message("Data")
            data.ParseFromString(chunk)
            parts.append(data.datum)
        self.archive = b"".join(parts)
        return b"\n,\n*Upload configuration successfully executed"

    def configure(self, request, context):
        sent = message("SetConfigRequest")
        sent.ParseFromString(request)
        self.config = sent.config
        with zipfile.ZipFile(io.BytesIO(self.archive)) as archive:
            if not any(name.startswith(self.config.common_config.workload) for name in archive.namelist()):
                context.abort(grpc.StatusCode.NOT_FOUND, LOST.format("NOT_FOUND"))
        return b"\n%\n#Configuration applied successfully."

    def control(self, request, context):
        sent = message("SetControlActionRequest")
        sent.ParseFromString(request)
        if sent.control.choice == 2:
            if self.now() != RUNNING:
                context.abort(
                    grpc.StatusCode.UNKNOWN,
                    "Exception calling application: pid must be a positive integer (got -1)",
                )
            self.status = TERMINATED
            return b'\n$\n"Simulation terminated successfully'
        if sent.control.start.backend not in NETWORKS:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, LOST.format("INVALID_ARGUMENT"))
        self.log = self.simulate(NETWORKS[sent.control.start.backend])
        self.status, self.ends_at = RUNNING, time.monotonic() + self.runs_s
        return b"\n!\n\x1fSimulation started successfully"

    def now(self):
        if self.status == RUNNING and time.monotonic() > self.ends_at:
            self.status = COMPLETED
        return self.status

    def get_status(self, *_):
        return b"\n\x02\x08" + bytes([self.now()])

    def get_config(self, *_):
        return message("GetConfigResponse", {"response_bytes": self.archive}).SerializeToString()

    def result(self, request, context):
        sent = message("GetResultRequest")
        sent.ParseFromString(request)
        assert sent.result.choice == 2
        content = (self.files | {"simulation.log": self.log.encode()})[sent.result.filename]
        return message("GetResultResponse", {"response_bytes": content}).SerializeToString()

    def version(self, *_):
        return b"\n\x10\n\x051.2.1\x12\x051.2.1\x1a\x00"

    def simulate(self, backend):
        """Return the log of the simulation that was configured."""
        common = self.config.common_config
        with tempfile.TemporaryDirectory() as folder:
            with zipfile.ZipFile(io.BytesIO(self.archive)) as archive:
                archive.extractall(folder)
            model = Workload.load(Path(folder) / common.workload)
        arguments = common.cmd_parameters
        ready = prepare(
            model,
            self.system(),
            self.network(),
            MemoryConfig(
                **{name: getattr(common.remote_memory, name) for name, *_ in MESSAGES["RemoteMemory"]}
            ),
            {int(group.identifier): tuple(group.npu_list) for group in common.communicator_group},
            backend,
            num_queues_per_dim=arguments.num_queues_per_dim,
            injection_scale=arguments.injection_scale,
            rendezvous=arguments.rendezvous_protocol,
            semantics="astra-sim",
        )
        return log_of(get_backend(backend).run(ready), trace=bool(len(common.logging.sink)))

    def system(self):
        sent = self.config.common_config.system
        keys = {BUS.get(name, name): getattr(sent, name) for name, *_ in MESSAGES["SystemConfiguration"]}
        data = {key.replace("_", "-"): value for key, value in keys.items() if not key.endswith("custom")}
        lists = {key: list(value) for key, value in data.items() if key.endswith("implementation")}
        return SystemConfig.from_mapping(data | lists, "the service")

    def network(self):
        backend = self.config.network_backend
        if backend.choice == 3:
            counts = tuple(backend.ns3.logical_topology.logical_dimensions)
            alike = len(counts)
            return NetworkConfig(("Switch",) * alike, counts, (50.0,) * alike, (500.0,) * alike)
        parts = {1: backend.analytical_congestion_aware, 2: backend.analytical_congestion_unaware}
        rows = parts[backend.choice].topology.network
        # As the service does: the shortest decimal text of the same 32-bit number.
        exact = {
            key: [float(str(np.float32(getattr(row, key)))) for row in rows]
            for key in ("bandwidth", "latency")
        }
        return NetworkConfig(
            tuple(TOPOLOGIES[row.topology] for row in rows),
            tuple(row.npus_count for row in rows),
            tuple(exact["bandwidth"]),
            tuple(exact["latency"]),
        )


class _Methods(grpc.GenericRpcHandler):
    def __init__(self, service):
        self._service = service
        self._known = {
            "streamUploadConfig": service.upload,
            "SetConfig": service.configure,
            "SetControlAction": service.control,
            "GetStatus": service.get_status,
            "GetConfig": service.get_config,
            "GetResult": service.result,
            "GetVersion": service.version,
        }

    def service(self, details):
        name = details.method.removeprefix("/astra.Openapi/")
        if name not in self._known:
            return None
        self._service.calls.append(name)
        act = self._service.instead.get(name, self._known[name])
        if name == "streamUploadConfig":
            return grpc.stream_unary_rpc_method_handler(act)
        return grpc.unary_unary_rpc_method_handler(act)


def log_of(result, *, trace):
    """Return the log ASTRA-sim 2 writes of *result*; with *trace*, workload lines come twice or more."""
    events = []
    for node in result.nodes.itertuples() if trace else ():
        where = f"sys->id={node.rank}, tick={{}}, node->id={node.node_id}, node->name=n, node->type=4"
        events.append((node.end_ns, 0, node.rank, "callback," + where.format(node.end_ns)))
        events.append((node.start_ns, 1, node.rank, "issue," + where.format(node.start_ns)))
    lines = [f"[2026-11-21T09:53:18+00:00] [D] <workload>: {text}" for *_, text in sorted(events)]
    for rank in result.ranks.itertuples():
        end = f"sys[{rank.rank}] finished, {rank.finish_ns} cycles, exposed communication "
        end += f"{rank.exposed_comm_ns % 2**64} cycles."
        lines += [f"[2026-11-21T09:53:18+00:00] [I] <workload>: {end}"] * trace
        lines.append(f"[2026-11-21 09:53:18.530] [workload] [info] {end}")
        facts = {"Wall time": rank.finish_ns, "Comm time": rank.comm_ns, "GPU time": rank.compute_ns}
        facts["Total compute-communication overlap"] = rank.overlap_ns
        lines += [
            f"[2026-11-21 09:53:18.530] [statistics] [info] sys[{rank.rank}], {name}: {value}"
            for name, value in facts.items()
        ]
    return "\n".join([*lines, "[2026-11-21 09:53:18.531] [system] [warning] Exiting", ""])


NETWORK = NetworkConfig(("Ring", "Switch"), (2, 2), (50.0, 46.57), (500.0, 21.3))


def four_ranks(nodes=2):
    ranks = []
    for rank in range(4):
        pairs = [
            (
                comp(2 * i, 1000 * (1 + (rank + i) % 3), after=(2 * i - 1,) if i else ()),
                coll(2 * i + 1, 1 << 20, (2 * i,)),
            )
            for i in range(nodes)
        ]
        ranks.append([node for pair in pairs for node in pair])
    return workload(*ranks)


def experiment(kind="analytical-unaware", model=None, network=NETWORK, system="default", **options):
    options.setdefault("semantics", "astra-sim")
    name = f"service://127.0.0.1:1/{kind}"
    return prepare(model or four_ranks(), system, network, backend=name, **options)


def run(service, progress=None, *, timeout_s=120.0, call_s=None, kind="analytical-unaware", **options):
    backend = ServiceBackend(ServiceAddress("127.0.0.1", service.port, kind), timeout_s, call_s)
    return backend.run(experiment(kind, **options), progress)


@contextmanager
def no_thread_stays():
    """Check that the block leaves no threads except those of the fake's pool."""
    before = set(threading.enumerate())
    yield
    # gRPC's server has a separate thread that serves the pool.
    of_the_fake = ("ThreadPool", "_serve")

    def left():
        others = set(threading.enumerate()) - before
        return [thread for thread in others if not any(name in thread.name for name in of_the_fake)]

    wait_for(lambda: not left())
