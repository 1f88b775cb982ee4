"""Messages that overtake each other: who gets them in ASTRA-sim's ns-3, and who in a measured job."""

from __future__ import annotations

import pytest
from packets import network, star
from workloads import coll, comp, workload

from chakrascope.converter import CollectiveType
from chakrascope.runner import simulate

RATES_GBPS = (400, 25)
# Answers of ASTRA-sim's ns-3, in ns a rank.
RECORDED = [
    (CollectiveType.ALL_REDUCE, 40_000, [63235, 64320, 65809, 62661]),
    (CollectiveType.ALL_REDUCE, 400_000, [227066, 227812, 224458, 218506]),
    (CollectiveType.ALL_GATHER, 400_000, [381627, 405754, 407752, 374077]),
    (CollectiveType.REDUCE_SCATTER, 40_000, [29207, 31940, 32019, 30713]),
]


def run(kind, size_bytes, semantics):
    """Run a collective of four hosts with a fast and a slow interface each; a hash picks one per message."""
    links = [
        [host, 4 + i, f"{rate}Gbps", "500ns", 0] for host in range(4) for i, rate in enumerate(RATES_GBPS)
    ]
    marks = {
        name: {rate * 10**9: value for rate, value in zip(RATES_GBPS, values, strict=True)}
        for name, values in {"KMIN_MAP": (800, 100), "KMAX_MAP": (3200, 400), "PMAX_MAP": (0.2, 0.2)}.items()
    }
    both = network(4, nodes=6, switches=[4, 5], links=links, CC_MODE=12, ASTRA_SIM_CLOCK=1, **marks)
    model = workload(*[[coll(0, size_bytes, comm_type=kind)]] * 4)
    return simulate(model, "default", both, backend="packet", semantics=semantics)


@pytest.mark.parametrize(("kind", "size_bytes", "expected"), RECORDED)
def test_the_first_to_arrive_is_the_one_awaited_as_in_astra_sim(kind, size_bytes, expected):
    assert run(kind, size_bytes, "astra-sim").ranks["finish_ns"].tolist() == expected


def test_a_captured_collective_waits_for_each_message_in_turn():
    """The same messages, taken in the order of their sending: never earlier than whichever comes first."""
    kind, size_bytes, first_come = RECORDED[1]
    in_turn = run(kind, size_bytes, "trace").ranks["finish_ns"].tolist()
    assert all(own > theirs for own, theirs in zip(in_turn, first_come, strict=True))


def test_collectives_of_two_groups_begun_in_opposite_orders_end():
    one, other = coll(0, 40_000, group=1, stream=1), coll(1, 40_000, group=2, stream=2)
    delay = comp(2, 5000, stream=3)
    ranks = [[one, delay, other | {"after": (2,)}], [other, delay, one | {"after": (2,)}]]
    job = workload(*ranks, groups={1: (0, 1), 2: (0, 1)})
    result = simulate(job, "default", star(2), backend="packet", semantics="trace")
    assert result.provenance["overtaking"] == 1
    assert result.flows["end_ns"].max() <= result.makespan_ns
