"""Whether an emulation measured the network or the processors."""

import numpy as np
import pandas as pd
import pytest

from chakrascope.converter import Graph, NodeType, Workload
from chakrascope.runner.emulation import Lateness

MS = 1_000_000


def workload(duration_ns=MS, computations=3):
    nodes = [
        {"node_id": number, "name": "work", "type": NodeType.COMP, "duration_ns": duration_ns}
        for number in range(computations)
    ]
    return Workload(
        graphs=(Graph.build(0, nodes, []),),
        program_of_rank=np.zeros(2, np.int32),
        groups={},
        metadata={},
    )


def measured(late_ns):
    """Return the nodes of two ranks, whose computations end late by *late_ns* (rank, computation)."""
    rows = [
        {"rank": rank, "node_id": number, "start_ns": 0, "end_ns": MS + late}
        for rank, own in enumerate(late_ns)
        for number, late in enumerate(own)
    ]
    return pd.DataFrame(rows)


def test_the_rank_where_lateness_adds_up_most_counts():
    late = Lateness.of(workload(), measured([[0, 0, 9], [5, 5, 5]]))
    assert (late.rank, late.total, late.max, late.count) == (1, 15, 9, 6)
    assert late.to_json()["total"] == 15


@pytest.mark.parametrize(
    ("total", "warned", "refused"), [(0.02, False, False), (0.021, True, False), (0.21, True, True)]
)
def test_a_share_of_the_makespan_decides(total, warned, refused):
    late = Lateness.of(workload(computations=1), measured([[round(total * MS)], [0]]))
    assert bool(late.warning(MS)) == warned
    assert bool(late.refusal(MS)) == refused


def test_the_refusal_names_rank_share_and_what_to_do():
    text = Lateness.of(workload(computations=1), measured([[0], [MS // 2]])).refusal(MS)
    assert "rank 1 ended late by 500 µs in total, 50.0 % of the makespan" in text
    assert "fewer ranks" in text


def test_computation_that_ends_early_makes_up_for_nothing():
    late = Lateness.of(workload(computations=2), measured([[-500, 400], [0, 0]]))
    assert late.total == 400


def test_without_computation_nothing_is_late():
    nodes = pd.DataFrame({"rank": [0], "node_id": [7], "start_ns": [0], "end_ns": [1]})
    assert Lateness.of(workload(), nodes) is None
