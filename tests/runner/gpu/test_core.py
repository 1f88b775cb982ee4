"""The GPU model by itself: against formulas, its slow fabric against its fast one, and bad input."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakrascope.errors import Cancelled, ConfigError
from chakrascope.runner.gpu import (
    LINE_BYTES,
    Compute,
    Machine,
    Memory,
    Mesh,
    ScaleOut,
    ScaleUp,
    find_machine,
    simulate_program,
    why_rough,
)
from chakrascope.runner.programs import (
    AlikeRanks,
    Buffer,
    Channel,
    ChannelType,
    Op,
    Program,
    RankProgram,
    Region,
    ThreadBlock,
    all_pairs_program,
    builtin_program,
    nccl_program,
    read_program,
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
    """A machine with one of everything, on which only one link and the memory take time."""
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


FABRICS = pytest.mark.parametrize("detailed", [False, True], ids=["fast", "detailed"])
# Programs of every kind of operation, with sizes that fill the links for a while.
PROGRAMS = {
    "ring": (nccl_program("ring", "all-reduce", 4, "Simple", 4), 1 << 18),
    "LL ring": (nccl_program("ring", "all-gather", 4, "LL", 2), 1 << 15),
    "tree": (nccl_program("tree", "all-reduce", 4, "LL128", 2), 1 << 18),
    "nvls": (nccl_program("nvls", "all-reduce", 4, "Simple", 2, unit_bytes=1 << 14), 1 << 18),
    "direct": (builtin_program("direct", "all-to-all", 4), 1 << 18),
    "put": (all_pairs_program("put", "all-gather", 4, 8), 1 << 16),
    "get": (all_pairs_program("get", "reduce-scatter", 4, 8), 1 << 18),
    "packet": (all_pairs_program("packet", "all-gather", 4, 4), 1 << 14),
}


def slow_and_fast(program, size, on):
    return [simulate_program(program, size, on, detailed=detailed) for detailed in (True, False)]


# Formulas.


@FABRICS
@given(
    lines=st.integers(1, 64),
    bandwidth=st.floats(1.0, 500.0),
    link=st.integers(0, 5000),
    memory=st.integers(0, 900),
)
@settings(max_examples=8, deadline=None)
def test_one_put_takes_its_bytes_over_the_link_and_the_latencies(detailed, lines, bandwidth, link, memory):
    size = lines * LINE_BYTES
    run = simulate_program(put(), size, one_link(bandwidth, float(link), float(memory)), detailed=detailed)
    # Read, cross the link (into the switch and, a line later, out of it), and the acknowledgement.
    formula = memory + (size + LINE_BYTES) / bandwidth + 2 * link
    assert run.time_ns == pytest.approx(formula, abs=1.01)


@FABRICS
@given(lines=st.integers(1, 64), link=st.integers(0, 5000), memory=st.integers(0, 900))
@settings(max_examples=10, deadline=None)
def test_one_get_is_a_request_and_an_answer(detailed, lines, link, memory):
    size, bandwidth = lines * LINE_BYTES, 64.0
    run = simulate_program(
        put("get"), size, one_link(bandwidth, float(link), float(memory)), detailed=detailed
    )
    request = 2 * 16 / bandwidth  # into the switch and out of it; the others follow while the data come back
    formula = memory + request + (size + LINE_BYTES) / bandwidth + 2 * link
    assert run.time_ns == pytest.approx(formula, abs=1.01)


def test_a_port_channel_between_nodes_takes_the_nic():
    apart = replace(one_link(64.0, 100.0, 0.0), scale_up=replace(one_link(64.0, 100.0, 0.0).scale_up, gpus=1))
    apart = replace(
        apart, scale_out=replace(apart.scale_out, bytes_per_ns=10.0, latency_ns=3000.0, proxy_ns=500.0)
    )
    size = 100 * LINE_BYTES
    run = simulate_program(put(channel=ChannelType.PORT), size, apart)
    assert run.time_ns == pytest.approx(500 + (size + LINE_BYTES) / 10.0 + 3000, abs=1.01)


@pytest.mark.parametrize("channel", [ChannelType.MEMORY, ChannelType.PORT])
def test_flush_takes_no_time(channel):
    def time_ns(*names):
        whole = put(channel=channel)
        (op,) = whole.ranks[0].thread_blocks[0].ops
        flush = replace(op, name="flush", sources=(), destinations=())
        ops = tuple(
            replace(flush if name == "flush" else op, name=name, path=(number,))
            for number, name in enumerate(names)
        )
        sender = replace(whole.ranks[0], thread_blocks=(ThreadBlock(0, ops),))
        program = replace(whole, ranks=(sender, whole.ranks[1]))
        return simulate_program(program, 100 * LINE_BYTES, machine()).time_ns

    assert time_ns("put", "flush", "put") == time_ns("put", "put")
    if channel is ChannelType.PORT:
        assert time_ns("pwsf", "put") > time_ns("pws", "put")


def without_switch_in_waits(op):
    if op.name == "wait":
        return replace(op, channels=op.awaited)
    return replace(op, body=tuple(map(without_switch_in_waits, op.body)))


@FABRICS
def test_a_wait_through_the_switch_takes_a_round_trip_longer(detailed):
    whole = nccl_program("nvls", "all-reduce", 4)
    ranks = [
        replace(
            rank,
            thread_blocks=tuple(
                replace(block, ops=tuple(map(without_switch_in_waits, block.ops)))
                for block in rank.thread_blocks
            ),
        )
        for rank in whole.ranks
    ]
    on = machine()
    fast = simulate_program(replace(whole, ranks=tuple(ranks)), 4096, on, detailed=detailed)
    slow = simulate_program(whole, 4096, on, detailed=detailed)
    round_trip = 2 * on.scale_up.latency_ns + on.memory.latency_ns + on.scale_up.reduce_ns
    assert slow.time_ns - fast.time_ns == pytest.approx(round_trip, abs=40)


# The two fabrics.


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_fabrics_agree(name):
    program, size = PROGRAMS[name]
    slow, fast = slow_and_fast(program, size, machine())
    assert fast.time_ns == pytest.approx(slow.time_ns, rel=0.05)
    for key in ("asked_lines", "stored_lines", "controls"):
        assert fast.counters[key] == slow.counters[key]


@pytest.mark.parametrize(
    ("way", "collective", "size"),
    [("get", "reduce-scatter", 1 << 18), ("put", "all-gather", 1 << 16)],
)
def test_both_fabrics_agree_on_the_generic_gpu(way, collective, size):
    """Long trains keep no port for lines that have yet to come, and puts wait for reads from the far side."""
    program = all_pairs_program(way, collective, 8, 8)
    slow, fast = slow_and_fast(program, size, find_machine("generic"))
    assert fast.time_ns == pytest.approx(slow.time_ns, rel=0.03)


@st.composite
def small_machines(draw, name):
    """Machines of all kinds that the fast fabric is for; the mesh of some is narrow."""
    topology = draw(st.sampled_from(["switch", "direct"])) if name != "nvls" else "switch"
    unroll = draw(st.sampled_from([1, 4]))
    return machine(
        mesh={
            "columns": draw(st.integers(1, 5)),
            "rows": draw(st.integers(1, 4)),
            "virtual_channels": draw(st.sampled_from([16, 32])),
            "buffer_flits": draw(st.sampled_from([8, 16, 64])),
            "link_bytes_per_ns": draw(st.sampled_from([128.0, 192.0, 512.0])),
            "arbitration": draw(st.sampled_from(["round-robin", "priority"])),
        },
        scale_up={
            "topology": topology,
            "ports": draw(st.sampled_from([8, 16] if topology == "direct" else [1, 4, 8, 16])),
            "latency_ns": draw(st.sampled_from([100.0, 500.0, 1500.0])),
            "header_bytes": draw(st.sampled_from([0, 28])),
        },
        memory={"channels": draw(st.sampled_from([4, 8, 16]))},
        compute={"unroll": unroll, "requests_per_unit": draw(st.sampled_from([16, 32, 64])) * unroll},
        arbitration=draw(st.sampled_from(["first-come", "fair"])),
    )


@pytest.mark.parametrize("name", PROGRAMS)
@given(data=st.data())
@settings(max_examples=3, deadline=None, derandomize=True)
def test_both_fabrics_agree_on_machines_of_all_kinds(name, data):
    on = data.draw(small_machines(name))
    assert why_rough(on) == []
    program, size = PROGRAMS[name]
    slow, fast = slow_and_fast(program, size // 2, on)
    # Sums of data read from peers wait for the slowest read of a batch.
    assert fast.time_ns == pytest.approx(slow.time_ns, rel=0.15 if name == "get" else 0.10)


@pytest.mark.parametrize(
    "parts",
    [
        {"mesh": {"virtual_channels": 2}},
        {"mesh": {"link_bytes_per_ns": 32.0}},
        {"compute": {"requests_per_unit": 16}},
    ],
)
def test_where_the_fast_fabric_is_rough_few_requests_go_by_themselves(parts):
    program, size = PROGRAMS["put"]
    run = simulate_program(program, size // 4, machine(**parts))
    assert run.detailed
    assert run.time_ns == simulate_program(program, size // 4, machine(**parts), detailed=True).time_ns
    assert not simulate_program(program, 64 * size, machine(**parts)).detailed
    assert not simulate_program(program, size // 4, machine()).detailed


@given(
    name=st.sampled_from(sorted(PROGRAMS)),
    columns=st.integers(1, 5),
    rows=st.integers(1, 4),
    flits=st.integers(4, 12),
    channels=st.integers(1, 4),
    topology=st.sampled_from(["switch", "direct"]),
    routers=st.sampled_from(["round-robin", "priority"]),
    ends=st.sampled_from(["first-come", "fair"]),
    requests=st.integers(1, 64),
    detailed=st.booleans(),
)
@settings(max_examples=20, deadline=None)
def test_all_requests_complete(  # noqa: PLR0917 - one machine
    name, columns, rows, flits, channels, topology, routers, ends, requests, detailed
):
    program, _ = PROGRAMS[name]
    if name == "nvls":
        topology = "switch"
    on = machine(
        mesh={
            "columns": columns,
            "rows": rows,
            "buffer_flits": flits,
            "virtual_channels": channels,
            "arbitration": routers,
        },
        scale_up={"topology": topology},
        compute={"requests_per_unit": requests},
        arbitration=ends,
    )
    runs = [simulate_program(program, 12288, on, detailed=detailed) for _ in range(2)]
    counters = runs[0].counters
    assert counters["loaded_lines"] == counters["asked_lines"] > 0
    assert counters["delivered_lines"] == counters["stored_lines"] > 0
    assert 0 <= counters["least_credit"] <= counters["most_credit"] == 1
    assert runs[0].ops.equals(runs[1].ops)
    assert counters == runs[1].counters


def test_ops_are_stamped_in_their_order():
    run = simulate_program(*PROGRAMS["ring"], machine())
    assert set(run.ops["rank"]) == {0, 1, 2, 3}
    for _, ops in run.ops.groupby(["rank", "block"]):
        assert (ops["start_ns"].iloc[1:].to_numpy() >= ops["end_ns"].iloc[:-1].to_numpy() - 1).all()
    assert run.ops["end_ns"].max() <= run.time_ns


def test_all_programs_of_the_reference_run(shared):
    for file in sorted((shared / "reference" / "collectives").glob("msc*/*.gz")):
        program = read_program(file)
        size = program.chunks * 1024 // (program.num_ranks if program.collective == "all-gather" else 1)
        nodes = 4 if "multi_node" in file.name else 64
        run = simulate_program(program, max(size, 1024), machine(scale_up={"gpus": nodes}), record_ops=False)
        assert run.time_ns > 0, file.name
        assert run.counters["delivered_lines"] == run.counters["stored_lines"], file.name


@pytest.mark.parametrize(("gpus", "simulated"), [(8, 1), (4, 4)])
@pytest.mark.parametrize("protocol", ["Simple", "LL"])
def test_one_of_the_ranks_that_do_the_same_is_simulated(gpus, simulated, protocol):
    on = machine(scale_up={"gpus": gpus})
    program, made = nccl_program("ring", "all-reduce", 8, protocol, 2), []
    alike = AlikeRanks(lambda rank: made.append(rank) or program.ranks[rank], 8)
    once = simulate_program(replace(program, ranks=alike), 1 << 18, on)
    assert made == [0]
    each = simulate_program(replace(program, ranks=tuple(program.ranks)), 1 << 18, on)
    # The data are on other memory channels.
    assert once.rank_ns == pytest.approx(each.rank_ns, rel=0.01)
    events = once.counters.pop("events"), each.counters.pop("events")
    assert events[0] == pytest.approx(events[1] * simulated / 8, rel=0.01)
    assert once.counters == each.counters
    ends, keys = ["src", "dst", "bytes", "lines"], ["rank", "block", "op", "round"]
    assert once.links[ends].equals(each.links[ends])
    assert once.ops[keys].equals(each.ops[keys])


def test_ranks_with_chunks_of_other_sizes_are_all_simulated():
    program = nccl_program("ring", "all-reduce", 8, "LL", 2)
    size = program.chunks * program.alignment_bytes
    even, uneven = (simulate_program(program, size + more, machine()) for more in (0, 16))
    assert uneven.counters["events"] > 4 * even.counters["events"]


# What machines do.


def test_ll_protocol_is_faster_only_for_small_sizes():
    times = {
        (protocol, size): simulate_program(
            nccl_program("ring", "all-reduce", 4, protocol, 4), size, machine(scale_up={"latency_ns": 1000.0})
        ).time_ns
        for protocol in ("LL", "Simple")
        for size in (1 << 12, 1 << 22)
    }
    assert times["LL", 1 << 12] < times["Simple", 1 << 12]
    assert times["LL", 1 << 22] > times["Simple", 1 << 22]


def test_more_requests_in_flight_help_until_the_link_is_full():
    program = all_pairs_program("put", "all-gather", 4, 8)
    times = [
        simulate_program(program, 1 << 18, machine(compute={"unroll": 8, "requests_per_unit": cap})).time_ns
        for cap in (16, 64, 256, 1024, 4096)
    ]
    assert times[0] > 1.2 * times[1]
    assert times[1] >= 0.99 * times[2]
    assert times[2] >= 0.99 * times[3]
    assert times[4] == pytest.approx(times[3], rel=0.02)


def test_workgroups_wait_for_a_free_unit():
    program = all_pairs_program("put", "all-to-all", 2, 4)
    alone = machine(compute={"units": 8, "workgroups_per_unit": 1})
    crowded = machine(compute={"units": 1, "workgroups_per_unit": 1})
    assert (
        simulate_program(program, 1 << 16, crowded).time_ns
        > 2 * simulate_program(program, 1 << 16, alone).time_ns
    )


# Bad input.


def test_thread_blocks_that_find_no_unit_are_named():
    meets = ThreadBlock(0, (Op("barrier", (0,), barrier=0, barrier_blocks=2),))
    blocks = (meets, replace(meets, id=1))
    program = replace(put(), ranks=tuple(replace(rank, thread_blocks=blocks) for rank in put().ranks))
    assert (
        simulate_program(program, 128, machine(compute={"units": 2, "workgroups_per_unit": 1})).time_ns == 0
    )
    with pytest.raises(ConfigError, match=r"rank 0: thread block 1 finds no free compute unit"):
        simulate_program(program, 128, machine(compute={"units": 1, "workgroups_per_unit": 1}))


def test_a_switch_that_cannot_multicast_is_named():
    program, size = PROGRAMS["nvls"]
    with pytest.raises(ConfigError, match=r"rank 0, thread block \d+, op .*multicast"):
        simulate_program(program, size, machine(scale_up={"multicast": False}))


def test_loads_and_stores_do_not_leave_the_node():
    program, size = PROGRAMS["put"]
    with pytest.raises(ConfigError, match=r"rank 0, thread block 1, op .*only within a node.*2 GPUs"):
        simulate_program(program, size, machine(scale_up={"gpus": 2}))


def test_sizes_that_chunks_do_not_divide_are_refused():
    with pytest.raises(ConfigError, match="multiple of 4"):
        simulate_program(builtin_program("ring", "all-reduce", 4), 4097, machine())


def test_missing_signal_is_a_deadlock():
    program, size = PROGRAMS["put"]
    rank = program.ranks[1]
    blocks = tuple(
        replace(block, ops=tuple(op for op in block.ops if "signal" not in op.name))
        for block in rank.thread_blocks
    )
    broken = replace(
        program, ranks=(program.ranks[0], replace(rank, thread_blocks=blocks), *program.ranks[2:])
    )
    with pytest.raises(ConfigError, match=r"thread block \d+, op .*waits for a signal or flag for ever"):
        simulate_program(broken, size, machine())


def test_each_put_of_an_op_signals_on_its_own_channel():
    ends = [Channel(ChannelType.PORT, 0, peer, 0) for peer in (1, 2)]
    here, there = Region((0,), Buffer.INPUT, 0, 1), [Region((peer,), Buffer.OUTPUT, 0, 1) for peer in (1, 2)]
    blocks = [ThreadBlock(0, (Op("pwsf", (0,), (here, here), tuple(there), tuple(ends)),))]
    blocks += [ThreadBlock(0, (Op("wait", (0,), channels=(end.other_end,)),)) for end in ends]
    # A semaphore is the first counter of rank 2.
    ranks = [RankProgram(rank, 1, 1, 0, (blocks[rank],), (), (0,) * (rank == 2)) for rank in range(3)]
    program = replace(put(), ranks=tuple(ranks))
    assert simulate_program(program, 128, machine(scale_up={"gpus": 1})).time_ns > 2000


def test_buffers_hold_a_line():
    with pytest.raises(ConfigError, match="buffer_flits"):
        machine(mesh={"buffer_flits": 3})


@pytest.mark.parametrize(
    "wrong", [{"compute_waves": 0}, {"compute_memory_share": 1.5}, {"arbitration": "fare"}]
)
def test_figures_of_a_machine_have_bounds(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        machine(**wrong)


def test_a_run_can_be_cancelled():
    program, size = nccl_program("ring", "all-reduce", 4, "Simple", 4), 1 << 27
    with pytest.raises(Cancelled):
        simulate_program(program, size, machine(), progress=lambda _now, _done: False)
