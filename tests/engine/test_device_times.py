"""What a rank's device does adds up: computation, exposed communication, exposed copies and idle time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import build

KINDS = ["compute", "communication", "copy", "idle", "host", "sync", "", "something else"]
_COUNTS_AS = {"": "compute", "something else": "compute"}


@st.composite
def streams(draw):
    """Draw nodes on up to 4 streams: kind, duration and dependencies at random."""
    count = draw(st.integers(1, 25))
    nodes = []
    for number in range(1, count + 1):
        after = draw(st.lists(st.integers(1, number - 1), max_size=2, unique=True)) if number > 1 else []
        facts = {"stream": draw(st.integers(1000, 1003)), "duration_ns": draw(st.integers(1, 9))}
        facts |= {"kind": draw(st.sampled_from(KINDS)), "is_cpu_op": draw(st.booleans())}
        nodes.append(build.comp(number, 1, tuple(after), **facts))
    return nodes


def figures(nodes, output):
    """Return the figures of a rank, nanosecond by nanosecond."""
    times = output.nodes(0, 1)
    doing = [set() for _ in range(int(output.makespan_ns))]
    for number, start, end in zip(times["node_id"], times["start_ns"], times["end_ns"], strict=True):
        node = nodes[number - 1]
        kind = "host" if node["is_cpu_op"] else _COUNTS_AS.get(node["kind"], node["kind"])
        for moment in range(start, end):
            doing[moment].add(kind)
    at_work = [kinds & {"compute", "communication", "copy"} for kinds in doing]
    return {
        "compute": sum("compute" in kinds for kinds in at_work),
        "comm": sum("communication" in kinds for kinds in at_work),
        "overlap": sum({"compute", "communication"} <= kinds for kinds in at_work),
        "exposed_comm": sum("communication" in kinds and "compute" not in kinds for kinds in at_work),
        "copy": sum("copy" in kinds for kinds in at_work),
        "exposed_copy": sum(kinds == {"copy"} for kinds in at_work),
        "idle": sum(not kinds for kinds in at_work),
    }


@settings(deadline=None)
@given(streams())
def test_every_moment_of_a_rank_is_one_of_four(nodes):
    output = build.run([nodes], semantics="trace", record_nodes=True)
    expected = figures(nodes, output)
    idle = expected.pop("idle")
    got = {name: int(getattr(output, f"rank_{name}_ns")[0]) for name in expected}
    assert got == expected
    assert got["compute"] + got["exposed_comm"] + got["exposed_copy"] + idle == output.makespan_ns


@pytest.mark.parametrize("semantics", ["astra-sim", "trace"])
def test_communication_of_unknown_size_takes_its_measured_time_on_any_machine(semantics):
    facts = {"num_ops": 10**9, "tensor_size": 10**6, "duration_ns": 7000, "stream": 1000}
    machine = {"roofline_enabled": True, "peak_perf": 1000.0, "local_mem_bw": 100.0, "semantics": semantics}
    times = {
        kind: int(build.run([[build.comp(1, 7, kind=kind, **facts)]], **machine).makespan_ns)
        for kind in ("compute", "communication")
    }
    assert times == {"compute": 10_000, "communication": 7_000}
