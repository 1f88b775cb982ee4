"""Small machines and programs for tests of the GPU model."""

from dataclasses import replace

from chakrascope.runner.gpu import Compute, Machine, Memory, Mesh, ScaleOut, ScaleUp
from chakrascope.runner.programs import (
    Buffer,
    Channel,
    ChannelType,
    Op,
    Program,
    RankProgram,
    Region,
    ThreadBlock,
)

ENDLESS = 1e9  # bytes per ns


def machine(**parts):
    """A machine whose mesh is no bottleneck; *parts* change its own, as in ``compute={"units": 2}``."""
    whole = Machine(
        name="small",
        compute=Compute(8, workgroups_per_unit=4, unroll=4, requests_per_unit=256, bytes_per_ns=64.0),
        mesh=Mesh(4, 2, 256.0, hop_ns=2.0),
        memory=Memory(8, 512.0, latency_ns=100.0),
        scale_up=ScaleUp(8, 8, 128.0, 500.0, multicast=True),
        scale_out=ScaleOut(50.0, 2000.0),
    )
    changes = {
        name: replace(getattr(whole, name), **value) if isinstance(value, dict) else value
        for name, value in parts.items()
    }
    return replace(whole, **changes)


def one_link(bandwidth, latency_ns, memory_ns):
    """A machine with one of everything, of which only one link and the memory take time."""
    return Machine(
        name="one link",
        compute=Compute(
            1, unroll=1 << 20, requests_per_unit=1 << 21, bytes_per_ns=ENDLESS, reduce_bytes_per_ns=ENDLESS
        ),
        mesh=Mesh(1, 1, ENDLESS),
        memory=Memory(1, ENDLESS, latency_ns=memory_ns),
        scale_up=ScaleUp(2, 1, bandwidth, latency_ns),
        scale_out=ScaleOut(1.0, 0.0),
    )


def put(kind="put", channel=ChannelType.MEMORY):
    """A program in which rank 0 puts its input to the output of rank 1, or rank 1 gets it."""
    source, target = Region((0,), Buffer.INPUT, 0, 1), Region((1,), Buffer.OUTPUT, 0, 1)
    own = 0 if kind == "put" else 1
    op = Op(kind, (0,), (source,), (target,), (Channel(channel, own, 1 - own, 0),))
    blocks = (ThreadBlock(0, (op,)),)
    ranks = tuple(RankProgram(rank, 1, 1, 0, blocks if rank == own else ()) for rank in range(2))
    return Program(
        kind, kind, "mscclpp", "custom", "Simple", False, 1, ranks, alignment_bytes=1, threads_per_block=32
    )
