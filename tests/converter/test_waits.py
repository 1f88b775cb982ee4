"""Waiting and working time of threads with gloo: captures on busy machines, and synthetic traces."""

import tempfile
from pathlib import Path

import pytest
from gloo_thread import Thread, write_trace_set
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chakrascope.converter import EdgeKind, NodeType, convert
from chakrascope.runner import get_backend, prepare
from chakrascope.runner._sync_points import with_measured_waits
from chakrascope.runner.analysis import critical_path

START_US = 1_000


def converted(folder, thread, *, peer_entered, steps=((START_US, 5_000),)):
    """Return graph and accounting of rank 0, *thread*; rank 1 entered collectives at *peer_entered* (us)."""
    peer = Thread(1)
    for start, _ in steps:
        peer.op("aten::add", start + 10, start + 20, 3)
    for time_us in peer_entered:
        peer.enter(time_us)
    ranks = [rank.write(folder, steps) for rank in (thread, peer)]
    write_trace_set(folder, ranks)
    workload = convert(folder, step=0)
    return workload.graphs[0], workload.metadata["accounting"]["0"]


def awaited(graph):
    """Return the nodes that waited for a communication."""
    targets = graph.edges[graph.edges["kind"] == EdgeKind.COMM_WAIT]["dst"]
    return graph.nodes[graph.nodes["node_id"].isin(targets)]


@pytest.mark.parametrize("late_us", [0, 20, 60, 400, 1500, 3000])
def test_a_wait_is_one_however_late_the_annotation_closes(tmp_path, late_us):
    """Idle from 1300 to 3300, woken at 3295: the result is used at once."""
    thread = Thread(0)
    thread.all_reduce(1100, 1110, 5, closes=3295 + late_us)
    thread.op("aten::mm", 1110, 1300, 9)
    thread.op("aten::as_strided", 3300, 3302, 5)
    thread.op("aten::copy_", 3302, 3400, 5)
    thread.op("aten::add_", 3400, 4900, 9)
    graph, figures = converted(tmp_path, thread, peer_entered=[3000])
    assert awaited(graph)["name"].tolist() == ["host before aten::as_strided"]
    assert awaited(graph)["duration_ns"].item() == max(0, 5_000 - 1_000 * late_us)
    assert figures["wait_ns"] == 2_000_000 - awaited(graph)["duration_ns"].item()
    assert figures["unexplained_ns"] == 0
    assert graph.nodes.loc[graph.nodes["type"] == NodeType.COMM_COLL, "duration_ns"].item() <= 2_190_000


def test_operators_that_copy_gradients_to_and_from_buckets_have_their_place(tmp_path):
    thread = Thread(0)
    thread.op("torch::distributed::reducer::mul_out", 1050, 1300, 5)
    thread.op("aten::mul", 1100, 1250, 5)
    thread.op("aten::div", 1350, 1450, 5)
    thread.all_reduce(1500, 1510, 5, closes=2500)
    thread.op("torch.distributed.ddp.reducer::copy_bucket_to_grad", 2600, 2900, 5)
    thread.op("aten::copy_", 2650, 2850, 5)
    graph, _ = converted(tmp_path, thread, peer_entered=[1500])
    nodes = graph.nodes[graph.nodes["place"] == "gradient buckets of DistributedDataParallel"]
    assert nodes.groupby("operator")["duration_ns"].sum().loc[["aten::copy_", "aten::mul"]].to_list() == [
        200_000,
        150_000,
    ]
    assert not {"aten::div", "c10d::allreduce_"} & {*nodes["operator"]}


@pytest.mark.parametrize(
    ("operator", "place"),
    [
        ("fsdp::all_gather_copy_in", {"gathered parameters of FSDP"}),
        ("fsdp::chunk_cat", {"reduced gradients of FSDP"}),
        ("aten::chunk_cat", {""}),
    ],
)
def test_operators_that_copy_to_and_from_buffers_of_fsdp_have_their_place(tmp_path, operator, place):
    thread = Thread(0)
    thread.op(operator, 1050, 1300, 5)
    thread.op("aten::copy_", 1100, 1250, 5)
    thread.all_reduce(1500, 1510, 5, closes=2500)
    graph, _ = converted(tmp_path, thread, peer_entered=[1500])
    assert {*graph.nodes.loc[graph.nodes["operator"].isin([operator, "aten::copy_"]), "place"]} == place


def test_nobody_waits_before_the_last_rank_has_entered(tmp_path):
    """The operation at 1900 is a view of a result that rank 1 did not complete before 2400."""
    thread = Thread(0)
    thread.all_reduce(1100, 1110, 5, closes=2500)
    thread.op("aten::view", 1900, 1902, 5)
    thread.op("aten::mm", 1902, 2600, 9)
    thread.op("aten::mul", 2620, 4900, 5)
    graph, figures = converted(tmp_path, thread, peer_entered=[2400])
    assert graph.nodes.query("name == 'host before aten::view'")["duration_ns"].item() == 790_000
    assert figures["wait_ns"] == 0


def test_using_another_part_of_a_shared_buffer_waits_for_nobody(tmp_path):
    """Two all-reduces of parts of one buffer are in flight while a third part is computed."""
    thread = Thread(0)
    thread.all_reduce(1100, 1110, 5, closes=4000)
    thread.all_reduce(1150, 1160, 5, closes=4100)
    thread.op("aten::add_", 1200, 3000, 5)
    thread.op("aten::mm", 3000, 4300, 9)
    thread.op("aten::mul", 4320, 4900, 5)
    graph, _ = converted(tmp_path, thread, peer_entered=[1000, 1001])
    assert set(awaited(graph)["name"]) == {"host before aten::mul"}
    collectives = graph.nodes[graph.nodes["type"] == NodeType.COMM_COLL]
    assert collectives["duration_ns"].tolist() == [2_890_000, 100_000]


def test_time_between_the_parts_of_an_operator_is_no_wait(tmp_path):
    """The matmul runs from 1210 to 2500; a collective that ends in between delayed no rank."""
    thread = Thread(0)
    thread.all_reduce(1100, 1110, 5, closes=2400)
    thread.op("aten::mm", 1200, 2500, 9)
    thread.op("aten::resolve_conj", 1205, 1210, 9)
    thread.op("aten::mul", 4000, 4900, 5)
    graph, figures = converted(tmp_path, thread, peer_entered=[1200])
    assert figures["wait_ns"] == 0
    assert graph.nodes.query("name == 'aten::mm'")["duration_ns"].sum() == 1_295_000


def test_the_last_collective_of_a_step_does_not_last_until_the_next_ones(tmp_path):
    thread = Thread(0)
    for start in (0, 4000):
        thread.all_reduce(start + 1100, start + 1110, 5, closes=start + 1400)
        thread.op("aten::mul", start + 1410, start + 4900, 5)
    steps = ((START_US, 5_000), (5_000, 9_000))
    graph, _ = converted(tmp_path, thread, peer_entered=[1200, 5200], steps=steps)
    assert graph.nodes.loc[graph.nodes["type"] == NodeType.COMM_COLL, "duration_ns"].tolist() == [290_000]
    assert awaited(graph)["name"].tolist() == ["host before aten::mul"]


def named(graph, name):
    return graph.nodes[graph.nodes["name"] == name]


CALL = "c10d::allreduce_"


@pytest.mark.parametrize(("closes", "parts_us"), [(2950, [1, 50]), (1400, [1, 1600]), (3300, [1, 1899])])
def test_blocked_call_issues_immediately_and_then_waits(tmp_path, closes, parts_us):
    thread = Thread(0)
    thread.all_reduce(1100, 3000, 5, closes=closes)
    thread.op("aten::mul", max(3000, closes) + 5, 4900, 5)
    graph, figures = converted(tmp_path, thread, peer_entered=[1100])
    collective = graph.nodes[graph.nodes["type"] == NodeType.COMM_COLL]
    assert collective["measured_start_ns"].item() == 101_000
    assert collective["duration_ns"].item() == (closes - 1101) * 1000
    assert (named(graph, CALL)["duration_ns"] // 1000).tolist() == parts_us
    assert awaited(graph)["name"].tolist() == [CALL if closes < 3000 else "host before aten::mul"]
    assert figures["unexplained_ns"] == 0


def test_a_call_issues_as_soon_as_the_quickest_of_its_kind(tmp_path):
    """The first call returned 40 us after its start, before the collective began; the second after 900 us."""
    thread = Thread(0)
    thread.all_reduce(1100, 1141, 5, closes=1200)
    thread.events[-1] |= {"ts": 1145, "dur": 55}
    thread.op("aten::mul", 1205, 1300, 5)
    thread.all_reduce(1400, 2300, 5, closes=2200)
    thread.events[-1] |= {"ts": 1460, "dur": 740}
    thread.op("aten::mul", 2305, 4900, 5)
    graph, _ = converted(tmp_path, thread, peer_entered=[1100, 1400])
    assert (named(graph, CALL)["duration_ns"] // 1000).tolist() == [41, 41, 100]
    collectives = graph.nodes[graph.nodes["type"] == NodeType.COMM_COLL]
    assert (collectives["duration_ns"] // 1000).tolist() == [59, 759]


def test_a_long_call_without_an_annotation_is_work_of_the_host(tmp_path):
    """NCCL's calls launch kernels, and create a communicator at first."""
    thread = Thread(0)
    thread.all_reduce(1100, 3000, 5, closes=2950)
    thread.events.pop()
    thread.op("aten::mul", 3005, 4900, 5)
    graph, figures = converted(tmp_path, thread, peer_entered=[1100])
    assert (named(graph, CALL)["duration_ns"] // 1000).tolist() == [1900]
    assert figures["wait_ns"] <= 1


@pytest.mark.parametrize("end", [1150, 1200])
def test_a_call_that_returns_soon_is_one_node(tmp_path, end):
    thread = Thread(0)
    thread.all_reduce(1100, end, 5, closes=1140)
    thread.op("aten::mul", end + 5, 4900, 5)
    graph, _ = converted(tmp_path, thread, peer_entered=[1100])
    assert (named(graph, CALL)["duration_ns"] // 1000).tolist() == [end - 1100]


@pytest.mark.parametrize("name", ["c10d::recv_", "c10d::send"])
@pytest.mark.parametrize(("waits_us", "in_call"), [(60, True), (2500, False)])
def test_message_of_a_blocked_call_is_posted_at_its_start(tmp_path, name, waits_us, in_call):
    """The peer may continue from then on; the call moved the data unless the thread waited longer."""
    thread = Thread(0)
    thread.message(name, 1100, 2000, opens=1990, closes=2000 + waits_us)
    thread.op("aten::mul", 2005 + waits_us, 4900, 5)
    graph, figures = converted(tmp_path, thread, peer_entered=[])
    message = graph.nodes[graph.nodes["type"].isin([NodeType.COMM_RECV, NodeType.COMM_SEND])]
    assert message["measured_start_ns"].item() == 200_000
    assert message["duration_ns"].item() == (1 if in_call else (800 + waits_us) * 1000)
    assert figures["unexplained_ns"] <= 1


def test_the_path_follows_the_rank_that_a_blocking_call_waited_for(tmp_path):
    late, waiting = Thread(1), Thread(0)
    for thread, start in ((waiting, 1200), (late, 4000)):
        thread.op("aten::mm", 1000, start, 9)
        thread.all_reduce(start, 4300, 5, closes=4280)
        thread.op("aten::mul", 4300, 4900 + 10 * thread.rank, 5)
    write_trace_set(tmp_path, [rank.write(tmp_path, [(START_US, 5_000)]) for rank in (waiting, late)])
    workload = convert(tmp_path, step=0)
    result = get_backend("replay").run(
        prepare(workload, "default", None, backend="replay", semantics="trace")
    )
    path = critical_path(result, workload)
    assert path.segments["duration_ns"].sum() == path.makespan_ns == result.makespan_ns
    on_path = path.breakdown("operator").set_index("key")["duration_ns"]
    assert on_path["aten::mm"] == 3_000_000
    sent = path.segments[path.segments["kind"] == "communication"]
    assert sent["duration_ns"].sum() == 279_000
    waits = result.columns("collectives")
    assert with_measured_waits(waits)["wait_ns"].tolist() == [2_800_000, 0]


@pytest.mark.parametrize("step", [4, 5, 6])
def test_capture_on_a_busy_machine_keeps_its_waits(data_dir, step):
    """Two ranks of a data-parallel job, captured while three processes kept the two cores busy."""
    workload = convert(data_dir / "converter" / "loaded_2", step=step)
    for graph in workload.graphs:
        figures = workload.metadata["accounting"][str(graph.rank)]
        measured_ns = figures["measured_step_ns"]
        assert figures["unexplained_ns"] <= 7
        assert (graph.nodes["type"] == NodeType.COMM_COLL).sum() == 7
        assert (graph.edges["kind"] == EdgeKind.COMM_WAIT).sum() == 7
        unpacking = graph.nodes.query("name == 'host before aten::as_strided'")
        assert unpacking["duration_ns"].sum() < 0.05 * measured_ns


@pytest.mark.parametrize("name", ["loaded_2", "ring_2", "mlp_2"])
def test_calls_of_the_communication_library_compute_nothing(data_dir, name):
    for graph in convert(data_dir / "converter" / name).graphs:
        on_host = graph.nodes[graph.nodes["type"] == NodeType.COMP]
        called = on_host["name"].str.startswith("c10d::")
        assert called.any()
        assert set(on_host.loc[called, "cause"]) == {"communication_call"}
        assert "communication_call" not in set(on_host.loc[~called, "cause"])


# Whether a gap is a wait follows from the thread's other gaps: on any machine, however slowly it wakes.


GAPS_US = [3, 5, 8, 4, 12, 30, 6, 3, 9, 15, 4, 7]
SCALES = [0.1, 0.3, 1.0, 4.0, 20.0]


class Program:
    """A rank that computes and all-reduces concurrently; *pace* is the slowness of its machine."""

    def __init__(self, pace=1.0):
        self.thread, self.pace, self.now = Thread(0), pace, 1_000.0
        self.waited, self.entered = 0.0, []

    def compute(self, count=None):
        for gap in GAPS_US[:count]:
            self.now += gap * self.pace
            self.op("aten::mm", 40, 9)

    def op(self, name, length, storage):
        self.thread.op(name, self.now, self.now + length * self.pace, storage)
        self.now += length * self.pace

    def all_reduce(self, storage):
        """Issue an all-reduce; return the record of its end."""
        start, self.now = self.now, self.now + 10 * self.pace
        self.entered.append(start)
        end = self.now
        return lambda closes: self.thread.all_reduce(start, end, storage, closes, entered=round(start))

    def converted(self):
        """Return the graph of this rank, and the time that the thread waited in microseconds."""
        peer = Thread(1)
        peer.op("aten::add", 1_010, 1_020, 3)
        for time_us in self.entered:
            peer.enter(round(time_us))
        steps = ((1_000, round(self.now) + 10),)
        with tempfile.TemporaryDirectory() as folder:
            ranks = [rank.write(Path(folder), steps) for rank in (self.thread, peer)]
            write_trace_set(Path(folder), ranks)
            workload = convert(folder, step=0)
        figures = workload.metadata["accounting"]["0"]
        assert figures["unexplained_ns"] == 0
        return workload.graphs[0], figures["wait_ns"] / 1_000


def waiting_program(waits_us, wakes_us, *, uses_at_once, pace=1.0):
    """Return a rank that waits *waits_us* for each all-reduce, and continues *wakes_us* after its end."""
    program = Program(pace)
    for number, (wait_us, wake_us) in enumerate(zip(waits_us, wakes_us, strict=True)):
        program.compute()
        over = program.all_reduce(20 + number)
        program.compute(2)
        program.now += wait_us
        over(program.now)
        program.waited += wait_us
        program.now += wake_us
        if not uses_at_once[number]:
            program.compute(3)
        program.op("aten::mul", 30, 20 + number)
    program.compute()
    return program


waits = st.lists(st.integers(6_000, 20_000), min_size=3, max_size=3)
uses = st.lists(st.booleans(), min_size=3, max_size=3).map(lambda later: [True, *later[1:]])


@settings(max_examples=12, deadline=None)
@given(waits, uses, st.lists(st.integers(20, 60), min_size=3, max_size=3))
@example([6_000] * 3, [False] * 3, [60] * 3)  # no event shows when the thread resumed
@example([1_000] * 3, [True, False, False], [51, 50, 49])  # one gap is a wait, and the others are as long
def test_a_wait_is_one_however_long_it_takes_to_wake(waits_us, uses_at_once, wakes_us):
    for scale in SCALES:
        wakes = [wake * scale for wake in wakes_us]
        program = waiting_program(waits_us, wakes, uses_at_once=uses_at_once)
        graph, waited_us = program.converted()
        assert waited_us == pytest.approx(program.waited, abs=3), scale
        assert (graph.edges["kind"] == EdgeKind.COMM_WAIT).sum() == len(waits_us)


@settings(max_examples=8, deadline=None)
@given(waits, uses)
def test_a_slower_machine_waits_for_the_same(waits_us, uses_at_once):
    for pace in SCALES:
        scaled, wakes = [pace * wait for wait in waits_us], [pace * 50] * 3
        program = waiting_program(scaled, wakes, uses_at_once=uses_at_once, pace=pace)
        assert program.converted()[1] == pytest.approx(program.waited, abs=3), pace


@pytest.mark.parametrize("pace", SCALES)
@pytest.mark.parametrize("share", [0.05, 0.25, 0.5])
def test_collective_ending_during_work_delays_no_rank(pace, share):
    """The script loads data for 20 ms; the result is used only afterwards."""
    program = Program(pace)
    program.compute()
    over = program.all_reduce(20)
    program.compute(2)
    over(program.now + share * 20_000 * pace)
    program.now += 20_000 * pace
    program.compute(3)
    program.op("aten::mul", 30, 20)
    program.compute()
    program.op("aten::mul", 30, 9)
    graph, waited_us = program.converted()
    assert waited_us == 0
    assert (graph.nodes["type"] == NodeType.COMM_COLL).sum() == 1
