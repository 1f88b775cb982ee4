"""Uneven collectives run as their messages, with equal ranks simulated once or separately."""

from random import Random

import et
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import build
from chakrascope.runner import simulate

KINDS = ("ALL_TO_ALL", "ALL_GATHER", "REDUCE_SCATTER")
E, LATENCY, BANDWIDTH = 10, 500, 50 * 1.073741824
LINKS = {"aware": True, "record_links": True}


def uneven_settings(ranks, algorithm="direct", **more):
    names = ("all_to_all", "all_gather", "reduce_scatter", "all_reduce")
    lists = {f"{name}_implementation": [algorithm] for name in names}
    chosen = {"topology": ["FullyConnected"], "npus_count": [ranks], "semantics": "trace"}
    return build.config(**(chosen | lists | more))


def message_ns(size):
    return int(LATENCY + size / BANDWIDTH)


def collective(rank, splits, kind="ALL_TO_ALL", **facts):
    size = splits[rank] if kind == "ALL_GATHER" else sum(splits)
    return [build.coll(0, size, comm_type=kind, comm_splits=splits, **facts)]


def test_an_all_to_all_sends_each_pair_its_own_bytes():
    matrix = [[0, 3_000_000, 10], [1000, 7, 500_000], [0, 0, 1]]
    ranks = [collective(rank, row) for rank, row in enumerate(matrix)]
    output = build.run(ranks, uneven_settings(3, **LINKS))
    links = zip(output.link_src.tolist(), output.link_dst.tolist(), output.link_bytes.tolist(), strict=True)
    sent = {(source, target): size for source, target, size in links if size}
    assert sent == {(0, 1): 3_000_000, (0, 2): 10, (1, 0): 1000, (1, 2): 500_000}
    # A rank ends when it has sent all its data and received all data for it.
    ends = [2 * E + message_ns(size) for size in (1000, 3_000_000, 500_000)]
    assert output.rank_finish_ns.tolist() == ends


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("algorithm", ["direct", "ring"])
@pytest.mark.parametrize("splits", [1, 4])
def test_hardly_uneven_takes_as_long_as_even(kind, algorithm, splits):
    """One more byte for one rank changes only one byte; all-to-alls send directly at any rate."""
    chosen = uneven_settings(4, algorithm, preferred_dataset_splits=splits, local_mem_bw=50.0)
    even = uneven_settings(
        4, "direct" if kind == "ALL_TO_ALL" else algorithm, preferred_dataset_splits=splits, local_mem_bw=50.0
    )
    size = 1 << 22
    uneven = [[size] * 4 for _ in range(4)]
    if kind == "ALL_GATHER":
        uneven[2] = [size + 1] * 4
    else:
        for row in uneven:
            row[2] += 1
    ranks = [collective(rank, row, kind) for rank, row in enumerate(uneven)]
    whole = size if kind == "ALL_GATHER" else 4 * size
    expected = build.run([[build.coll(0, whole, comm_type=kind)]] * 4, even).makespan_ns
    assert build.run(ranks, chosen).makespan_ns == pytest.approx(expected, abs=12 * splits)


@pytest.mark.parametrize("kind", KINDS)
def test_equal_splits_are_the_collective_without_them(kind):
    size = 1 << 20
    plain = [[build.coll(0, size if kind == "ALL_GATHER" else 4 * size, comm_type=kind)]] * 4
    split = [collective(rank, [size] * 4, kind) for rank in range(4)]
    for algorithm in ("ring", "direct"):
        assert build.finish(split, uneven_settings(4, algorithm)) == build.finish(
            plain, uneven_settings(4, algorithm)
        )


@pytest.mark.parametrize("aware", [False, True])
@pytest.mark.parametrize("algorithm", ["ring", "direct", "halvingDoubling"])
def test_any_sizes_end_on_any_network(aware, algorithm):
    for seed in range(40):
        random = Random(seed)
        ranks, kind = random.randint(2, 6), random.choice(KINDS)
        rows = [[random.choice((0, 0, 1, 3, 1000, 1 << 20)) for _ in range(ranks)] for _ in range(ranks)]
        if kind == "REDUCE_SCATTER":
            rows = [rows[0]] * ranks
        elif kind == "ALL_GATHER":
            rows = [[row[0]] * ranks for row in rows]
        nodes = [collective(rank, row, kind) for rank, row in enumerate(rows)]
        chosen = uneven_settings(ranks, all_gather_implementation=[algorithm], aware=aware, record_links=True)
        chosen.reduce_scatter_implementation = [algorithm]
        chosen.preferred_dataset_splits = random.choice((1, 3))
        if algorithm == "halvingDoubling" and ranks & (ranks - 1):
            continue
        output = build.run(nodes, chosen)
        assert output.unfinished == [], seed
        if aware and (len({tuple(row) for row in rows}) > 1 or len(set(rows[0])) > 1):
            assert sum(output.link_bytes.tolist()) == expected_bytes(kind, rows, ranks), seed


def expected_bytes(kind, rows, ranks):
    """Return the bytes on all links: every byte crosses one link per receiver."""
    if kind == "ALL_TO_ALL":
        return sum(size for rank, row in enumerate(rows) for to, size in enumerate(row) if rank != to)
    own = rows[0] if kind == "REDUCE_SCATTER" else [row[0] for row in rows]
    return sum(own) * (ranks - 1)


def test_totals_without_splits_are_spread_evenly():
    """Other tools write workloads in this form: each member states the total size that it sends."""
    sizes = [300, 3_000_000, 60]
    ranks = [[build.coll(0, size, comm_type="ALL_TO_ALL")] for size in sizes]
    output = build.run(ranks, uneven_settings(3, **LINKS))
    assert sorted(size for size in output.link_bytes.tolist() if size) == [20, 20, 100, 100, 10**6, 10**6]
    assert output.unfinished == []


def test_a_group_of_the_ranks_takes_its_own_order():
    matrix = {2: [5, 600_000], 0: [7000, 9]}  # listed as 2, 0
    nodes = {rank: collective(0, row, pg_name="1") for rank, row in matrix.items()}
    ranks = [nodes[0], [build.comp(0)], nodes[2]]
    output = build.run(ranks, uneven_settings(3, groups={1: [2, 0]}, **LINKS))
    links = zip(output.link_src.tolist(), output.link_dst.tolist(), output.link_bytes.tolist(), strict=True)
    assert {(source, target): size for source, target, size in links if size} == {
        (2, 0): 600_000,
        (0, 2): 7000,
    }


def test_ranks_with_different_amounts_are_not_folded():
    row = [0, 1 << 20, 0, 0]
    output = build.run([collective(0, row)] * 4, uneven_settings(4))
    assert not output.folded
    # Rank 1 receives from all others in parallel, because nothing queues.
    assert output.rank_finish_ns.tolist() == [E, 2 * E + message_ns(1 << 20), E, E]


def test_astra_sim_has_one_size_for_all():
    rows = [[100, 900], [400, 50]]
    ranks = [collective(rank, row) for rank, row in enumerate(rows)]
    equal = [[node | {"comm_size": 1000} for node in nodes] for nodes in ranks]
    literal = uneven_settings(2, semantics="astra-sim")
    assert len(build.run(ranks, literal).unfinished) == 2
    plain = [[build.coll(0, 1000, comm_type="ALL_TO_ALL")]] * 2
    assert build.finish(equal, literal) == build.finish(plain, literal)


def test_uneven_all_reduces_stay_a_mistake():
    output = build.run([[build.coll(0, 100)], [build.coll(0, 200)]], uneven_settings(2))
    assert "all_reduce (node 0) of 200 bytes instead" in output.unfinished[0]["waits_for"]


def test_blocks_of_an_all_gather_travel_round_the_ring_at_their_own_pace():
    blocks = [10_000, 2_000_000, 30]
    ranks = [collective(rank, [block] * 3, "ALL_GATHER") for rank, block in enumerate(blocks)]
    first, second, third = map(message_ns, blocks)
    # Each rank ends when the slower of the other two blocks has arrived: one step away, or two.
    ends = [max(2 * E + third, 3 * E + 2 * second), max(2 * E + first, 3 * E + 2 * third)]
    ends.append(max(2 * E + second, 3 * E + 2 * first))
    assert build.finish(ranks, uneven_settings(3, "ring")) == ends


def test_evened_collectives_yield_a_note(tmp_path):
    """Uneven sizes with equal sums run as even ones in ASTRA-sim's semantics, with a warning."""
    uneven = [collective(rank, row) for rank, row in enumerate([[0, 3 << 20], [1 << 20, 2 << 20]])]
    even = [collective(rank, [3 << 19] * 2) for rank in range(2)]
    results = []
    for name, ranks in (("uneven", uneven), ("even", even)):
        for rank, nodes in enumerate(ranks):
            (tmp_path / f"{name}.{rank}.et").write_bytes(et.program(nodes))
        results += [
            simulate(str(tmp_path / name), "default", "ring-2", semantics=semantics)
            for semantics in ("astra-sim", "trace")
        ]
    astra, trace, even_astra, even_trace = results
    assert astra.makespan_ns == even_astra.makespan_ns == even_trace.makespan_ns < trace.makespan_ns
    assert (
        "In some collectives (at most 1 on a rank), members have unequal amounts"
        in astra.provenance["warnings"][0]
    )
    assert trace.provenance["warnings"] == even_astra.provenance["warnings"] == []
    emulated = simulate(
        str(tmp_path / "uneven"), "default", "ring-2", backend="emulation:loopback", semantics="astra-sim"
    )
    assert any("unequal amounts" in line for line in emulated.provenance["warnings"])


# Equal ranks of uneven collectives are simulated once if sizes depend only on the distance of members.

COLUMNS = ["rank_finish_ns", "rank_exposed_comm_ns", "rank_compute_ns", "rank_comm_ns", "rank_overlap_ns"]
UNEVEN_FOLD_KINDS = ["ALL_TO_ALL", "ALL_GATHER", "REDUCE_SCATTER"]
ALGORITHMS = ["ring", "direct", "direct2"]


def expert_groups(ranks, size, *, strided=False):
    """Return groups of *size* ranks, adjacent or with a stride of the number of groups."""
    count = ranks // size
    return {
        1 + group: [group + count * i for i in range(size)]
        if strided
        else [*range(group * size, (group + 1) * size)]
        for group in range(count)
    }


def uneven(node_id, kind, rows, place, after=(), **facts):
    """Return the node of the member at *place* of a group, whose member i has rows[i][j] for member j."""
    own = rows[place] if kind == "ALL_TO_ALL" else rows[0]
    size = own[place] if kind == "ALL_GATHER" else sum(own)
    splits = {} if kind == "ALL_GATHER" else {"comm_splits": own}
    return build.coll(node_id, size, after, kind, **splits, **facts)


@st.composite
def jobs(draw):
    """Draw repeated expert groups that exchange uneven sizes, with computation and all-reduces."""
    size = draw(st.sampled_from([2, 3, 4]))
    count = draw(st.integers(2, 4))
    ranks = size * count
    groups = expert_groups(ranks, size, strided=draw(st.booleans()))
    amounts = st.sampled_from([0, 1, 1024, 4096, 100_003])
    steps = []
    for _ in range(draw(st.integers(1, 4))):
        rows = [[draw(amounts) for _ in range(size)] for _ in range(size)]
        shifted = draw(st.booleans())
        if shifted:  # each member has as much for the next one as the others
            rows = [[rows[0][(j - i) % size] for j in range(size)] for i in range(size)]
        steps.append(
            (draw(st.sampled_from([*UNEVEN_FOLD_KINDS, "ALL_REDUCE", "COMP"])), rows, draw(st.booleans()))
        )
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
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
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


def test_members_with_equal_distances_are_folded():
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
