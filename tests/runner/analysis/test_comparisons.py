import dataclasses

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from studies import LAYERS, ring_links
from workloads import coll, comp, workload

from chakrascope.converter import CollectiveType, microbenchmark
from chakrascope.errors import ConfigError
from chakrascope.runner import (
    NetworkConfig,
    SystemConfig,
    collective_overview,
    compare,
    critical_path,
    divergence,
    error_distribution,
    flow_differences,
    measured_result,
    simulate,
)
from chakrascope.runner.analysis import (
    COMPARISONS,
    divergence_text,
    link_dimensions,
    link_table,
    packet_facts,
    run_overview,
    switch_loads,
    traffic,
    traffic_table,
    use_over_time,
)
from chakrascope.runner.analysis._differences import (
    collective_differences,
    node_differences,
    rank_differences,
)
from chakrascope.runner.analysis._summary import summarize
from chakrascope.runner.config import PacketPart
from chakrascope.support.table import Table


@pytest.fixture
def other(simulated):
    return simulated


def test_collective_overview_has_a_row_a_collective_with_its_part_of_the_path(run):
    table = run.collectives
    assert table["operation"].tolist() == ["all_reduce"] * LAYERS
    assert table["ranks"].tolist() == [2] * LAYERS
    assert table["on_path_ns"].sum() == LAYERS * 300_000
    # Rank 1 leaves them 100 µs, 200 µs ... later: by their median, its clock is ahead.
    ahead = 100_000 * ((LAYERS + 1) // 2)
    assert table["skew_ns"].tolist() == [abs(100_000 * (layer + 1) - ahead) for layer in range(LAYERS)]
    assert table["rank"].tolist() == [int(100_000 * (layer + 1) > ahead) for layer in range(LAYERS)]


@pytest.mark.parametrize(
    ("comm_type", "algorithm", "bus"),
    [
        (CollectiveType.ALL_REDUCE, 4.0, 6.0),
        (CollectiveType.ALL_GATHER, 16.0, 12.0),
        (CollectiveType.REDUCE_SCATTER, 4.0, 3.0),
        (CollectiveType.ALL_TO_ALL, 4.0, 3.0),
        (CollectiveType.BROADCAST, 4.0, 4.0),
    ],
)
def test_bandwidths_of_four_ranks_moving_4000_bytes_in_1000_ns(run, comm_type, algorithm, bus):
    calls = pd.DataFrame(
        {
            "collective": 0, "comm_type": int(comm_type), "group": 0, "size_bytes": 4000, "rank": range(4),
            "node_id": 2, "start_ns": 0, "end_ns": 1000, "wait_ns": 0, "transfer_ns": 1000,
        }
    )  # fmt: skip
    result = dataclasses.replace(run.result, collectives=calls)
    row = collective_overview(result, run.nodes, run.path).iloc[0]
    assert (row["algorithm_bytes_per_ns"], row["bus_bytes_per_ns"]) == (algorithm, bus)


def test_run_without_collectives_has_an_empty_overview(run):
    result = dataclasses.replace(run.result, collectives=run.result.collectives.head(0))
    assert collective_overview(result, run.nodes, run.path).empty


def test_busiest_link_comes_first_with_its_share_of_the_step(other):
    result = dataclasses.replace(other.result, links=ring_links(8))
    first = link_table(result).iloc[0]
    assert (first["source"], first["target"]) == ("rank 1", "rank 2")
    assert first["share"] == 2_000_000 / result.makespan_ns


def test_switch_links_carry_the_bytes_of_a_ring(other):
    links = link_table(other.result)
    assert set(links["source"]) == {"switch 0", *(f"rank {rank}" for rank in range(8))}
    sent = sum(2 * 7 / 8 * ((layer + 1) << 20) for layer in range(LAYERS))
    assert links["bytes"].tolist() == [sent] * 16


def test_links_belong_to_the_dimension_in_which_their_ends_differ(other):
    links = pd.DataFrame(
        {"src": [0, 0, 3], "dst": [1, 2, 3], "bytes": 1, "busy_ns": 1, "queue_ns": 0, "messages": 1}
    )
    provenance = {"network": {"topology": ["Ring", "Ring"], "npus_count": [2, 4]}}
    result = dataclasses.replace(other.result, links=links, provenance=provenance)
    found = link_table(result).set_index(["src", "dst"])["dimension"]
    assert found.to_dict() == {(0, 1): 1, (0, 2): 2, (3, 3): 1}
    assert link_dimensions(link_table(result))["links"].tolist() == [2, 1]


@pytest.mark.parametrize(
    ("backend", "links"),
    [("analytical-aware", {1: 16, 2: 16}), ("flow", {0: 16, 1: 16, 2: 16})],
)
def test_links_of_switches_belong_to_the_dimension_of_their_switch(backend, links):
    """On ``flow`` each rank has a NIC, whose link to the rank is that of both dimensions."""
    network = NetworkConfig(("Switch", "Switch"), (2, 4), (50.0, 25.0), (500.0, 1000.0))
    job = microbenchmark("all-reduce", 8, 1 << 20)
    table = link_table(simulate(job, "default", network, backend=backend))
    assert table["dimension"].value_counts().to_dict() == links
    # A ring of 2, then one of 4 with half of the data: each link of a dimension carries as many bytes.
    assert (table.groupby("dimension")["bytes"].nunique() == 1).all()


def test_loads_of_a_switch_are_given_by_rank_and_of_a_ring_are_not(other):
    loads = switch_loads(other.result)
    assert loads["rank"].value_counts().to_dict() == dict.fromkeys(range(8), 2)
    assert loads["bytes"].sum() == other.result.links["bytes"].sum()
    assert switch_loads(dataclasses.replace(other.result, links=ring_links(8))) is None


@pytest.mark.parametrize("ranks", [2, 8, 64, 65, 1000])
def test_traffic_keeps_every_byte_in_at_most_64_rows(run, ranks):
    ends = pd.DataFrame({"rank": range(ranks)})
    result = dataclasses.replace(run.result, links=ring_links(ranks), ranks=ends)
    matrix = traffic(result, "bytes")
    assert matrix.values.sum() == ranks * (10 << 20)
    assert matrix.values.shape == (len(matrix.rows), len(matrix.columns))
    assert len(matrix.rows) <= 64


def test_use_over_time_shows_the_links_that_carry_most(run):
    assert use_over_time(run.result) is None
    use = pd.DataFrame(
        {
            "src": [0, 0, 1, 1], "dst": [1, 1, 2, 2], "start_ns": [10, 30, 10, 30],
            "end_ns": [20, 40, 20, 40], "bytes": [5, 0, 20, 40],
        }
    )  # fmt: skip
    found = use_over_time(dataclasses.replace(run.result, link_use=use), most=1)
    assert found.rows == ["rank 1 to switch 0"]
    assert found.starts_ns.tolist() == [0, 10, 20, 30]
    assert found.rates.tolist() == [[0.0, 2.0, 0.0, 4.0]]


def test_comparison_aligns_nodes_of_the_common_ranks(run, other):
    nodes = COMPARISONS["node-differences"](run, other)
    assert sorted(nodes["rank"].unique()) == [0, 1]
    assert len(nodes) == len(run.nodes)
    changed = nodes[nodes["delta_ns"] != 0]
    assert set(changed["kind"]) == {"communication"}
    assert (changed["base_ns"] == 300_000).all()
    assert changed["relative"].isna().all()  # measured among two ranks, simulated among eight
    differences = COMPARISONS["collective-differences"](run, other)
    assert differences["collective"].tolist() == list(range(LAYERS - 1, -1, -1))
    assert len(COMPARISONS["rank-differences"](run, other)) == 2


def test_paths_diverge_where_they_do(run, other):
    assert divergence_text(run.path, other.path) == "Both critical paths go through the same 18 segments."
    segments = run.path.segments
    elsewhere = segments.assign(rank=segments["rank"].where(segments["node_id"] < 12, 0))
    path = dataclasses.replace(run.path, table=Table.of(elsewhere), walk=None)
    text = divergence_text(run.path, path)
    assert "share their first 12 segments, until 3.28 ms" in text
    assert "(node 12 of rank 1), the other with" in text
    assert text.endswith("66.7 % of this run's path is also on the path of the other run.")


def test_packet_facts_are_printed_if_present():
    packets = {"data_packets": 12_345, "drops": 0, "flow_completion_ns": {"count": 2, "median": 1500.0}}
    assert packet_facts({"packets": packets}) == [
        ("Data packets", "12,345"),
        ("Dropped packets", "0"),
        ("Flow completion", "2 flows: median 1.50 µs"),
    ]
    assert packet_facts({}) == []


def test_flows_end_to_end(simulated):
    rows = [(0, 3, 10, 0, 5), (0, 3, 7, 6, 9), (3, 0, 1, 0, 5)]
    flows = pd.DataFrame(rows, columns=["src", "dst", "bytes", "start_ns", "end_ns"])
    result = dataclasses.replace(simulated.result, flows=flows)
    found = traffic(result, "flows")
    assert found.values[0, 3] == 17
    assert found.values.sum() == 18
    table = traffic_table(result, "flows").set_index("from")
    assert table.loc["rank 0", "rank 3"] == 17
    assert traffic_table(simulated.result, "flows").set_index("from").to_numpy().sum() == 0


def test_qualifiers_are_printed_once_with_warnings_first(run):
    told = run.result.provenance | {"warnings": ["w"], "assumptions": ["1 of 2 ranks", "w"]}
    summary = summarize(dataclasses.replace(run.result, provenance=told), run.workload)
    assert summary.qualifiers[:2] == ("w", "1 of 2 ranks")
    assert summary.to_json()["qualifiers"] == list(summary.qualifiers)


@pytest.mark.parametrize(
    ("network", "system", "named"),
    [
        ("hgx-h100-2x8", "default", "one of H100s"),
        ("cpu-cluster-16", "default", ""),
        ("cpu-cluster-16", "roofline-a100", "one of A100s"),
        ("dgx-a100-8x8", "roofline-h100", "one of A100s and H100s"),
    ],
)
def test_cpu_times_on_a_machine_of_accelerators_qualify_the_answer(simulated, network, system, named):
    config = NetworkConfig.preset(network)
    changed = {
        "network": config.to_dict(),
        "system": SystemConfig.preset(system, config.dimensions).to_dict(),
    }
    told = simulated.result.provenance | changed | {"warnings": ["w"], "assumptions": []}
    result = dataclasses.replace(simulated.result, provenance=told)

    def qualifiers(workload):
        return [text for text in summarize(result, workload).qualifiers if "store and forward" not in text]

    first, *others = qualifiers(simulated.workload)
    assert (named in first) if named else first == "w"
    assert others == (["w"] if named else [])
    on_device = [graph.with_columns(stream=graph.node_columns["stream"] + 1007)
                 for graph in simulated.workload.graphs]  # fmt: skip
    workload = dataclasses.replace(simulated.workload, graphs=tuple(on_device))
    assert qualifiers(workload) == ["w"]


def test_ranks_that_stand_for_others_qualify_the_answer_first(run):
    metadata = {**run.workload.metadata, "stand_ins": "1 of 2"}
    workload = dataclasses.replace(run.workload, metadata=metadata)
    told = run.result.provenance | {"warnings": ["w"], "assumptions": ["1 of 2"]}
    result = dataclasses.replace(run.result, provenance=told)
    assert summarize(result, workload).qualifiers == ("1 of 2", "w")


def test_last_arrival_follows_one_rule(simulated):
    """Of replicas that arrive together, the lowest, both in the table of collectives and at every node."""
    nodes = simulated.nodes.merge(
        simulated.result.collectives[["rank", "node_id", "collective"]], on=["rank", "node_id"]
    )
    late = nodes[nodes["origin_rank"] != nodes["rank"]]
    assert len(late)
    table = simulated.collectives.set_index("collective")["rank"]
    assert (late["origin_rank"].to_numpy() == table[late["collective"]].to_numpy()).all()


def test_fewer_measured_ranks_compare_only_computation(run, simulated):
    """Two measured ranks, eight simulated: computations compare, the step and all collectives do not."""
    measured = dataclasses.replace(run.result, backend="replay")
    scaled = measured_result(simulated.workload)
    assert len(scaled.ranks) == 8
    for base in (measured, scaled):
        nodes = node_differences(base, simulated.result, simulated.nodes)
        is_comm = nodes["kind"] == "communication"
        assert nodes["relative"].isna().equals(is_comm)
        table = collective_differences(base, simulated.result, run.collectives)
        assert len(table) == LAYERS
        assert table["relative"].isna().all()
        assert rank_differences(base, simulated.result)["relative"].isna().all()
        assert "communication" not in set(error_distribution(nodes, "kind")["key"])
    comparison = compare([scaled, simulated.result], simulated.workload)
    assert comparison.overview["relative"].isna().tolist() == [False, True]
    assert comparison.errors["key"].tolist() == ["compute", "host"]
    assert "Measured on 2 ranks, simulated on 8" in comparison.notes[0]
    assert compare([scaled, scaled], simulated.workload, ["a", "b"]).notes == []
    assert run_overview([run, simulated])["relative"].isna().tolist() == [False, True]
    assert run_overview([simulated, run])["relative"].isna().tolist() == [False, True]
    assert simulated.measured_among(3, 2) == (2, 8)
    assert simulated.measured_among(3, 1) == (1, 1)
    assert run.measured_among(1, 2) == (2, 2)
    assert "(measured on 2 ranks: 4.92 ms)" in simulated.summary.headline
    assert "takes 4.92 ms (as measured)" in run.summary.headline


def test_errors_against_a_measurement_are_relative_to_it(run, simulated):
    measured = dataclasses.replace(run.result, backend="replay")
    whole = simulated.result
    calls = whole.collectives[whole.collectives["rank"] < 2]
    same = dataclasses.replace(whole, ranks=whole.ranks.head(2), collectives=calls)
    for base, other in ((measured, same), (same, measured)):
        nodes = node_differences(base, other, simulated.nodes)
        reference = nodes["base_ns" if base is measured else "other_ns"].clip(lower=1)
        assert (nodes["relative"] == nodes["delta_ns"] / reference).all()
        ranks = rank_differences(base, other)
        side = "base" if base is measured else "other"
        assert (ranks["relative"] == ranks["delta_ns"] / ranks[f"finish_ns_{side}"]).all()


# Results side by side.


def model():
    return workload(
        *[[comp(0, 1000 * (rank + 1)), coll(1, 1 << 20, (0,)), comp(2, 500, (1,))] for rank in range(8)]
    )


def results(*backends, network="ring-8"):
    return [simulate(model(), "default", network, backend=backend) for backend in backends]


def test_a_result_equals_itself():
    one, same = results("analytical-unaware", "analytical-unaware")
    comparison = compare([one, same], model())
    assert (comparison.overview["delta_ns"] == 0).all()
    assert (comparison.ranks["relative"] == 0).all()
    assert (comparison.collectives["relative"] == 0).all()
    assert (comparison.nodes["delta_ns"] == 0).all()
    assert (comparison.errors[["mean", "p05", "median", "p95", "worst"]] == 0).all(axis=None)
    assert comparison.paths["on_both"].tolist() == [1.0]
    assert comparison.paths["base_goes_to"].tolist() == ["the end"]


def test_differences_are_against_the_first():
    measured, simulated = results("replay", "analytical-unaware")
    comparison = compare([measured, simulated], model(), ["measured", "simulated"])
    assert comparison.overview["result"].tolist() == ["measured", "simulated"]
    assert comparison.overview["delta_ns"].iloc[1] == simulated.makespan_ns - measured.makespan_ns
    only = comparison.collectives.iloc[0]
    assert (only["operation"], only["size_bytes"], only["ranks"]) == ("all_reduce", 1 << 20, 8)
    assert only["relative"] == pytest.approx((only["other_ns"] - only["base_ns"]) / only["base_ns"])
    compute = comparison.errors[comparison.errors["key"] == "compute"]
    assert compute["worst"].tolist() == [0.0]
    worst = comparison.nodes.iloc[0]
    assert worst["delta_ns"] == comparison.nodes["delta_ns"].abs().max()


def test_ranks_of_one_program_are_one_place():
    """A path may pass any of several equal ranks, which is not a divergence."""
    one = model().scale_out(16)
    base = critical_path(simulate(one, "default", "cpu-cluster-16"), one)

    def moved(ranks):
        columns = base.columns | {"rank": (base.columns["rank"] + ranks) % 16}
        return dataclasses.replace(base, table=Table.of(columns))

    found = divergence(base, moved(8))
    assert found.same
    assert found.on_both == 1.0
    assert not divergence(base, moved(1)).same


@pytest.mark.parametrize("count", [0, 1])
def test_one_result_cannot_be_compared(count):
    with pytest.raises(ConfigError, match="at least two"):
        compare(results(*["replay"] * count), model())


def test_other_numbers_of_ranks_cannot_be_aligned():
    small = simulate(workload([comp(0, 1)], [comp(0, 1)]), "default", "ring-2")
    with pytest.raises(ConfigError, match="numbers of ranks"):
        compare([*results("replay"), small], model())


def test_the_times_of_every_result_add_up_to_its_makespan():
    overview = compare(results("replay", "analytical-unaware", "analytical-aware"), model()).overview
    parts = overview["compute_ns"] + overview["exposed_comm_ns"] + overview["idle_ns"]
    assert (parts - overview["makespan_ns"]).abs().max() <= 2


def flows(*rows):
    columns = ["src", "dst", "bytes", "start_ns", "end_ns"]
    frame = pd.DataFrame(rows, columns=columns)
    return dataclasses.replace(results("analytical-unaware")[0], flows=frame)


def test_flows_are_aligned_by_their_ends_size_and_order():
    base = flows((0, 1, 64, 0, 10), (0, 1, 64, 20, 30), (1, 0, 64, 0, 10), (0, 1, 8, 0, 5))
    other = flows((0, 1, 64, 40, 70), (0, 1, 64, 3, 23), (1, 0, 64, 0, 9), (2, 0, 64, 0, 1))
    table = flow_differences(base, other)
    assert table[["src", "dst", "bytes", "turn", "base_ns", "other_ns"]].values.tolist() == [
        [0, 1, 64, 1, 10, 30],
        [0, 1, 64, 0, 10, 20],
        [1, 0, 64, 0, 10, 9],
    ]
    assert table["relative"].tolist() == [2.0, 1.0, -0.1]
    errors = compare([base, other], model()).errors
    (row,) = errors[errors["of"] == "flows"].to_dict("records")
    assert (row["count"], row["unaligned"], row["median"]) == (3, 2, 1.0)
    assert row["worst_is"] == "0 to 1, 64 bytes, number 2"


@given(
    st.lists(
        st.tuples(st.integers(0, 1000), st.integers(0, 1000), st.sampled_from("ab")), min_size=1, max_size=40
    )
)
def test_distributions_are_of_errors_that_occur_and_in_order(pairs):
    table = pd.DataFrame(pairs, columns=["base_ns", "other_ns", "kind"])
    table["relative"] = (table["other_ns"] - table["base_ns"]) / table["base_ns"].clip(lower=1)
    found = error_distribution(table, "kind")
    lasting = table["base_ns"] > 1
    assert found["count"].sum() == lasting.sum()
    for row in found.itertuples():
        own = table.loc[lasting & (table["kind"] == row.key), "relative"]
        assert {row.p05, row.median, row.p95, row.worst} <= set(own)
        assert row.p05 <= row.median <= row.p95
        assert abs(row.worst) == own.abs().max() == abs(table["relative"][row.at])


def test_the_measurement_is_one_more_result():
    captured = dataclasses.replace(model(), metadata={"measured_step_ns": {"0": 1}})
    measured = measured_result(captured)
    assert measured.makespan_ns == 8000 + 1000 + 500
    simulated = simulate(captured, "default", "ring-8")
    assert (
        compare([measured, simulated], captured, ["measured", "simulated"]).overview["relative"].iloc[1] != 0
    )
    with pytest.raises(ConfigError, match="no measured times"):
        measured_result(model())


def test_labels_must_be_distinct():
    with pytest.raises(ConfigError, match="need distinct labels"):
        compare(results("replay", "replay"), model(), ["one", "one"])
    assert compare(results("replay", "replay"), model()).labels == ("replay", "replay (2)")


def test_messages_of_two_packet_level_runs_are_aligned():
    job = workload(*[[coll(0, 1 << 16, comm_type=CollectiveType.ALL_TO_ALL)]] * 8)
    runs = []
    for over in (1, 4):
        fabric = {"fabric": {"hosts_per_leaf": 4, "oversubscription": over}}
        network = NetworkConfig(("Switch",), (8,), (10.0,), (500.0,), packet=PacketPart.from_mapping(fabric))
        runs.append(simulate(job, "default", network, backend="packet"))
    comparison = compare(runs, job)
    assert len(comparison.flows) == len(runs[0].flows) == len(runs[1].flows) > 0
    (row,) = comparison.errors[comparison.errors["of"] == "flows"].to_dict("records")
    assert (row["count"], row["unaligned"]) == (len(runs[0].flows), 0)
    assert row["p95"] > 0
    assert comparison.flows["delta_ns"].abs().is_monotonic_decreasing


def test_tables_have_the_same_types_with_and_without_rows():
    """Columns of numbers stay numeric even if nothing took time or no rank communicated."""
    empty = workload([comp(0, 0)], [comp(0, 0)])
    full = workload(*[[comp(0, 1000), coll(1, 1 << 20, (0,))]] * 2)
    backends = ("analytical-unaware", "analytical-aware")
    made = [
        compare([simulate(model, "default", "ring-2", backend=name) for name in backends], model)
        for model in (empty, full)
    ]
    for name in ("errors", "collectives", "nodes", "flows"):
        without, with_rows = (getattr(comparison, name).dtypes for comparison in made)
        assert without.to_dict() == with_rows.to_dict(), name
    assert made[0].errors.empty
    assert made[1].errors["median"].dtype == "float64"
    assert made[1].errors["count"].dtype == "int64"
