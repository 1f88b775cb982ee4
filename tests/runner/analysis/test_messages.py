"""Advice on sends and receives: from their size, the bandwidth they reached and the wait before them."""

from __future__ import annotations

import pytest
from workloads import comp, workload

from chakrascope.converter import NodeType
from chakrascope.runner import NetworkConfig, Study, get_backend, prepare
from chakrascope.runner.analysis import analyse_run
from chakrascope.runner.analysis._messages import messages_on_path
from chakrascope.runner.analysis._remedies import REMEDIES


def message(node_id, size_bytes, kind, after=()):
    return {
        "node_id": node_id,
        "name": "c10d::recv_" if kind == NodeType.COMM_RECV else "c10d::send",
        "type": kind,
        "comm_src": 0,
        "comm_dst": 1,
        "comm_tag": 1,
        "comm_size_bytes": size_bytes,
        "kind": "communication",
        "after": after,
    }


def pipeline(size_bytes):
    first = [comp(0, 200_000), message(1, size_bytes, NodeType.COMM_SEND, (0,))]
    second = [message(0, size_bytes, NodeType.COMM_RECV), comp(1, 1000, (0,))]
    return workload(first, second, metadata={"measured_step_ns": {"0": 1, "1": 1}})


def analysed(tmp_path, size_bytes, latency_ns):
    study = Study.create(tmp_path / "study")
    prefix = study.add_workload(pipeline(size_bytes), "pipeline")
    network = NetworkConfig(("Switch",), (2,), (10.0,), (latency_ns,))
    experiment = prepare(prefix, "default", network)
    study.add_run(experiment, get_backend("analytical-unaware").run(experiment), workload="pipeline")
    return analyse_run(study)


@pytest.mark.parametrize(
    ("size_bytes", "latency_ns", "hint"),
    [(24 * 1024, 4_000_000.0, "latency"), (1 << 28, 500.0, "communication")],
)
def test_advice_on_a_message_follows_from_its_figures(tmp_path, size_bytes, latency_ns, hint):
    run = analysed(tmp_path, size_bytes, latency_ns)
    (item,) = (item for item in run.advices() if item.what.startswith("Sends and receives"))
    assert REMEDIES[hint] in item.how


def test_figures_of_messages_leave_the_wait_for_the_sender_out(tmp_path):
    run = analysed(tmp_path, 1 << 28, 500.0)
    table = messages_on_path(run.nodes, run.path).set_index("name")
    received = table.loc["recv of 256 MiB"]
    assert received["waited_ns"] == 200_000
    assert received["bytes_per_ns"] == pytest.approx(10 * 2**30 / 1e9, rel=0.01)
    assert received["size_bytes"] == 1 << 28
