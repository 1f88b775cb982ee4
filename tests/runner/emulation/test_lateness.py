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
    assert (late.to_json()["total"], late.to_json()["kept_waiting"]) == (15, 0)


@pytest.mark.parametrize(
    ("total", "warned", "refused"), [(0.02, False, False), (0.021, True, False), (0.23, True, True)]
)
def test_a_share_of_the_makespan_decides(total, warned, refused):
    makespan_ns = 1000 * MS
    late = Lateness.of(workload(computations=1), measured([[round(total * makespan_ns)], [0]]))
    assert bool(late.warning(makespan_ns)) == warned
    assert bool(late.refusal(makespan_ns)) == refused


def test_a_pause_of_a_short_job_is_a_warning():
    late = Lateness.of(workload(computations=1), measured([[4 * MS], [0]]))
    assert late.warning(6 * MS)
    assert not late.refusal(6 * MS)


def test_the_refusal_names_rank_share_and_what_to_do():
    text = Lateness.of(workload(computations=1), measured([[0], [500 * MS]])).refusal(1000 * MS)
    assert "rank 1 ended late by 500 ms in total, 50.0 % of the makespan" in text
    assert "fewer ranks" in text


def test_computation_that_ends_early_makes_up_for_nothing():
    late = Lateness.of(workload(computations=2), measured([[-500, 400], [0, 0]]))
    assert late.total == 400


def test_what_waking_up_takes_ends_no_emulation():
    late = Lateness.of(workload(computations=2), measured([[19_000, 19_000], [0, 0]]))
    assert late.kept_waiting == 0
    assert late.warning(50_000)
    assert not late.refusal(50_000)


def test_without_computation_nothing_is_late():
    nodes = pd.DataFrame({"rank": [0], "node_id": [7], "start_ns": [0], "end_ns": [1]})
    assert Lateness.of(workload(), nodes) is None
