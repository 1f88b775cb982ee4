"""Uneven collectives are folded where ranks have the same for the members at the same distance."""

from __future__ import annotations

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import build

COLUMNS = ["rank_finish_ns", "rank_exposed_comm_ns", "rank_compute_ns", "rank_comm_ns", "rank_overlap_ns"]
KINDS = ["ALL_TO_ALL", "ALL_GATHER", "REDUCE_SCATTER"]
ALGORITHMS = ["ring", "direct", "direct2"]


def expert_groups(ranks, size, *, strided=False):
    """Return groups of *size* ranks, next to each other or as far apart as there are groups."""
    count = ranks // size
    return {
        1 + group: [group + count * i for i in range(size)]
        if strided
        else [*range(group * size, (group + 1) * size)]
        for group in range(count)
    }


def uneven(node_id, kind, rows, place, after=(), **facts):
    """Return what the member at *place* of a group does, whose member i has rows[i][j] for member j."""
    own = rows[place] if kind == "ALL_TO_ALL" else rows[0]
    size = own[place] if kind == "ALL_GATHER" else sum(own)
    splits = {} if kind == "ALL_GATHER" else {"comm_splits": own}
    return build.coll(node_id, size, after, kind, **splits, **facts)


@st.composite
def jobs(draw):
    """Draw repeated groups of experts that exchange uneven amounts, beside computation and all-reduces."""
    size = draw(st.sampled_from([2, 3, 4]))
    count = draw(st.integers(2, 4))
    ranks = size * count
    groups = expert_groups(ranks, size, strided=draw(st.booleans()))
    amounts = st.sampled_from([0, 1, 1024, 4096, 100_003])
    steps = []
    for _ in range(draw(st.integers(1, 4))):
        rows = [[draw(amounts) for _ in range(size)] for _ in range(size)]
        shifted = draw(st.booleans())
        if shifted:  # every member has as much for the next one as the others have for theirs
            rows = [[rows[0][(j - i) % size] for j in range(size)] for i in range(size)]
        steps.append((draw(st.sampled_from([*KINDS, "ALL_REDUCE", "COMP"])), rows, draw(st.booleans())))
    odd = draw(st.sampled_from([None, None, None, 0, ranks - 1]))
    programs = []
    for rank in range(ranks):
        group, place = next((g, m.index(rank)) for g, m in groups.items() if rank in m)
        nodes = []
        for i, (kind, rows, chained) in enumerate(steps):
            after = (i - 1,) if chained and i else ()
            if kind == "COMP":
                nodes.append(build.comp(i, 3 + (rank == odd), after))
            elif kind == "ALL_REDUCE":
                nodes.append(build.coll(i, 4096, after))
            else:
                nodes.append(uneven(i, kind, rows, place, after, pg_name=str(group), stream=i % 3))
        programs.append(nodes)
    dimensions = draw(st.sampled_from([[ranks], [size, count]]))
    algorithms = draw(st.lists(st.sampled_from(ALGORITHMS), min_size=3, max_size=3))
    lists = [[name] * len(dimensions) for name in algorithms]
    settings = build.config(
        npus_count=dimensions,
        topology=[draw(st.sampled_from(["Ring", "Switch", "FullyConnected"])) for _ in dimensions],
        bandwidth=[draw(st.sampled_from([0.9313225746154785, 93.13225746154785])) for _ in dimensions],
        latency=[draw(st.sampled_from([0.0, 10.0, 500.0])) for _ in dimensions],
        endpoint_delay=draw(st.sampled_from([0, 10])),
        local_mem_bw=draw(st.sampled_from([0.0, 50.0])),
        preferred_dataset_splits=draw(st.integers(1, 4)),
        active_chunks_per_dimension=draw(st.integers(1, 3)),
        num_queues_per_dim=draw(st.integers(1, 3)),
        all_reduce_implementation=["ring"] * len(dimensions),
        all_gather_implementation=lists[0],
        reduce_scatter_implementation=lists[1],
        all_to_all_implementation=lists[2],
        semantics="trace",
        native_collectives=True,
        groups=groups,
    )
    return programs, settings


@given(jobs())
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
def test_folding_uneven_collectives_is_exact(job):
    programs, chosen = job
    folded = build.run(programs, chosen)
    chosen.fold = False
    plain = build.run(programs, chosen)
    event(f"folded: {folded.folded}")
    for name in COLUMNS:
        assert getattr(folded, name).tolist() == getattr(plain, name).tolist(), name
    assert folded.nodes_executed == plain.nodes_executed
    assert len(folded.unfinished) == len(plain.unfinished)
    assert folded.overtaking == plain.overtaking


def experts(ranks, size, rows, **settings):
    groups = expert_groups(ranks, size)
    programs = [
        [uneven(0, "ALL_TO_ALL", rows, rank % size, pg_name=str(1 + rank // size))] for rank in range(ranks)
    ]
    return build.run(
        programs,
        build.config(
            npus_count=[ranks],
            topology=["Switch"],
            semantics="trace",
            groups=groups,
            all_to_all_implementation=["halvingDoubling"],
            **settings,
        ),
    )


def test_each_place_of_repeated_expert_groups_is_simulated_once():
    rows = [[0, 100, 200, 300], [400, 0, 500, 600], [1, 2, 0, 3], [7, 7, 7, 0]]
    output = experts(64, 4, rows)
    assert output.folded
    assert output.rank_representative.tolist() == [0, 1, 2, 3] * 16
    assert output.rank_finish_ns.tolist() == experts(64, 4, rows, fold=False).rank_finish_ns.tolist()


def test_members_with_the_same_for_those_at_the_same_distance_are_one():
    rows = [[[0, 10, 2000, 30][(j - i) % 4] for j in range(4)] for i in range(4)]
    output = experts(16, 4, rows)
    assert set(output.rank_representative.tolist()) == {0}


def test_groups_that_exchange_other_amounts_are_not_alike():
    programs = [
        [
            uneven(
                0, "ALL_TO_ALL", [[0, 100 + 50 * (rank // 4)], [10, 0]], rank % 2, pg_name=str(1 + rank // 2)
            )
        ]
        for rank in range(8)
    ]
    groups = expert_groups(8, 2)
    output = build.run(
        programs, build.config(npus_count=[8], topology=["Switch"], semantics="trace", groups=groups)
    )
    assert output.rank_representative.tolist() == [0, 1, 0, 1, 4, 5, 4, 5]
