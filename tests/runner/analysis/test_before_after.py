"""Two sides of steps: their exact difference, its noise, and limits on it."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from studies import make_study

from chakrascope.converter import CollectiveType, Graph, NodeType, Workload
from chakrascope.errors import ConfigError, StudyError, UsageError
from chakrascope.runner import measured_result
from chakrascope.runner.analysis import (
    PARTS,
    Side,
    diff_steps,
    judge,
    parse_limit,
    read_side,
    read_step,
    side_of,
)
from chakrascope.runner.analysis.before_after._diff import path_legs, paths_side_by_side
from chakrascope.runner.analysis.before_after._noise import Layout, differences, rank_cut

KIND_OF = {"Memset": "copy", "Memcpy": "copy", "python": "host"}
MODULES = ("", "layers.0", "layers.1", "head")


def step_of(ranks, *, name="step", start="start", exact=False):
    """Make a measured step; *ranks* hold pairs of a module, or "all_reduce", and its ns."""
    graphs = []
    for rank, pieces in enumerate(ranks):
        rows, now = [], 0
        for node, (module, duration) in enumerate(pieces):
            row = {
                "node_id": node,
                "name": f"aten::op{len(module)}",
                "type": NodeType.COMP,
                "kind": "compute",
            }
            row |= {"module": module, "operator": f"aten::op{len(module)}", "phase": "forward"}
            if module == "all_reduce":
                row |= {"type": NodeType.COMM_COLL, "kind": "communication", "module": "", "stream": 1}
                row |= {"comm_type": CollectiveType.ALL_REDUCE, "comm_size_bytes": 1 << 20}
            rows.append(row | {"duration_ns": duration, "measured_start_ns": now, "step": 0})
            now += duration
        edges = [(node, node + 1, 1) for node in range(len(rows) - 1)]
        graphs.append(Graph.build(rank, rows, edges))
    told = {"captured": True, "measured_step_ns": {str(rank): 1 for rank in range(len(graphs))}}
    workload = Workload(tuple(graphs), np.arange(len(graphs), dtype=np.int32), metadata=told)
    return read_step(measured_result(workload), workload, name=name, start=start, exact=exact)


def side(*steps, name="side"):
    return Side(name, tuple(steps))


@cache
def _plain(layer, *, exact):
    pieces = [("layers.0", 1_000), ("layers.1", layer), ("all_reduce", 500), ("head", 200)]
    return step_of([pieces, pieces], exact=exact)


def plain(layer, *, start="start", exact=False):
    """Make a step of two ranks whose module layers.1 takes *layer* ns."""
    return replace(_plain(layer, exact=exact), start=start)


@pytest.fixture(scope="module")
def doubled():
    """A difference of one measured step: a module takes 500 ns instead of 250."""
    return diff_steps(side(plain(250, exact=True)), side(plain(500, exact=True)))


pieces = st.lists(st.tuples(st.sampled_from(MODULES), st.integers(0, 10**6)), min_size=1, max_size=6)
programs = st.tuples(pieces, pieces, pieces, pieces)


@settings(max_examples=6)
@given(first=programs, second=programs, meets=st.booleans())
def test_every_waterfall_sums_to_the_difference_exactly(first, second, meets):
    tail = [("all_reduce", 700), ("head", 3)] if meets else []
    base, other = ([p + tail for p in ranks[:2]] for ranks in (first, second))
    found = diff_steps(side(step_of(base), step_of(first[2:])), side(step_of(other)))
    assert found.delta_ns == found.other.median.makespan_ns - found.base.median.makespan_ns
    for by in PARTS:
        rows = found.waterfall(by)
        assert rows["delta_ns"].sum() == found.delta_ns
        assert rows["base_ns"].sum() == found.base.median.makespan_ns
        assert rows["other_ns"].sum() == found.other.median.makespan_ns
        if len(rows):
            assert rows["from_ns"].iloc[0] == found.base.median.makespan_ns
            assert rows["to_ns"].iloc[-1] == found.other.median.makespan_ns
    for rows in (found.operators, found.classes):
        assert rows["delta_ns"].sum() == found.delta_ns
        assert rows["base_ns"].sum() == found.base.median.makespan_ns
    assert found.paths["delta_ns"].sum() == found.delta_ns
    assert found.paths["base_ns"].sum() == found.base.median.makespan_ns


def test_new_removed_and_longer_operators_are_named():
    base = step_of([[("layers.0", 1_000), ("head", 400), ("all_reduce", 500)]] * 2, exact=True)
    other = step_of([[("layers.0", 1_000), ("layers.1", 250), ("all_reduce", 900)]] * 2, exact=True)
    found = diff_steps(side(base), side(other))
    modules = found.modules.set_index("key")
    assert modules.loc["layers.1", ["change", "delta_ns", "verdict"]].tolist() == ["new", 250, "more"]
    assert modules.loc["head", ["change", "delta_ns", "verdict"]].tolist() == ["gone", -400, "less"]
    assert modules.loc["layers.0", ["change", "verdict"]].tolist() == ["", "same"]
    rows = found.waterfall().set_index("key")["delta_ns"].to_dict()
    assert rows["communication: all_reduce of 1.00 MiB, all ranks"] == 400
    assert rows["compute: layers.1"] == 250
    assert "all_reduce of 1.00 MiB, all ranks, +400 ns" in found.headline
    assert found.headline.endswith("the class of operators that changes most is communication, +400 ns.")
    figures = found.figures.set_index("quantity")
    assert figures.loc["step", ["base", "other", "delta"]].tolist() == [1_900, 2_150, 250]
    assert figures.loc["bytes", "verdict"] == "same"
    collective = found.collectives.iloc[0]
    assert (collective["size_bytes"], collective["group"]) == (1 << 20, "all ranks")
    assert (collective["transfer_base_ns"], collective["transfer_other_ns"]) == (500, 900)


def device_step(works):
    """Make a measured step of one rank; *works* are operator, kernel, stream, ns, and the previous work."""
    rows = [
        {"node_id": node, "name": kernel, "operator": name, "type": NodeType.COMP, "stream": stream}
        | {"kind": KIND_OF.get(kernel, "compute"), "duration_ns": duration, "measured_start_ns": 0, "step": 0}
        for node, (name, kernel, stream, duration, _) in enumerate(works)
    ]
    edges = [(work[-1], node, 1) for node, work in enumerate(works) if work[-1] >= 0]
    told = {"captured": True, "measured_step_ns": {"0": 1}}
    workload = Workload((Graph.build(0, rows, edges),), np.zeros(1, dtype=np.int32), metadata=told)
    return read_step(measured_result(workload), workload, name="step", start="", exact=True)


def test_the_axis_of_equal_steps_begins_at_0():
    """Otherwise, the two bars would be left of the axis."""
    step = side(step_of([[("layers.0", 1000)]], exact=True))
    rows, low = diff_steps(step, step).waterfall_bars("part", 12)
    assert [(row.label, row.start, row.end) for row in rows] == [("before", 0, 1000), ("after", 0, 1000)]
    assert low == 0


def test_operators_of_two_chips_are_matched_and_sum_to_the_difference():
    base = device_step(
        [
            ("aten::mm", "cutlass", 0, 100, -1),
            ("aten::mm", "Memset", 0, 10, 0),
            ("aten::cudnn_convolution", "implicit_gemm", 0, 100, 1),
            ("aten::copy_", "Memcpy", 1, 140, 1),
            ("aten::item", "python", 0, 90, 3),
        ]
    )
    other = device_step(
        [
            ("aten::mm", "Cijk", 0, 150, -1),
            ("aten::miopen_convolution", "Im2d2Col", 0, 20, 0),
            ("aten::tanh", "vectorized", 1, 110, 0),
        ]
    )
    found = diff_steps(side(base), side(other))
    rows = found.operators.set_index("key")
    times = rows[["class", "base_ns", "other_ns"]].T.to_dict("list")
    assert times == {
        "aten::mm": ["gemm", 110, 150],
        "aten::cudnn_convolution → aten::miopen_convolution": ["convolution", 100, 20],
        "aten::copy_": ["copy", 40, 0],
        "aten::tanh": ["elementwise", 0, 90],
        "idle": ["idle", 90, 0],
    }
    assert rows["delta_ns"].sum() == found.delta_ns == -80
    assert rows.loc["aten::copy_", ["total_base_ns", "change"]].tolist() == [140, "gone"]
    assert rows.loc["aten::mm", ["kernel_base", "kernel_other"]].tolist() == ["cutlass", "Cijk"]
    assert found.classes.set_index("key").loc["elementwise", "delta_ns"] == 90
    assert found.waterfall("class")["delta_ns"].sum() == -80


def test_waiting_for_the_last_rank_is_not_transfer():
    late = [[("layers.0", 100), ("all_reduce", 500)], [("layers.0", 400), ("all_reduce", 200)]]
    even = [[("layers.0", 400), ("all_reduce", 200)]] * 2
    row = diff_steps(side(step_of(even)), side(step_of(late))).collectives.iloc[0]
    assert (row["wait_base_ns"], row["wait_other_ns"]) == (0, 150)
    assert (row["transfer_base_ns"], row["transfer_other_ns"]) == (200, 200)


@pytest.mark.parametrize(
    ("sizes", "cut", "confidence"),
    [
        ((3, 3), 0, 0.9),
        ((4, 4), 0, 1 - 2 / 70),
        ((5, 5), 2, 1 - 2 * 4 / 252),
        ((1, 1), 0, 0.0),
        ((10, 10), 23, 0.956743),
    ],
)
def test_the_rank_interval_is_as_published(sizes, cut, confidence):
    """Critical values of Mann and Whitney's U: 0, 2 and 23 for 4, 5 and 10 samples each, two-sided, 5 %."""
    assert rank_cut(*sizes) == (cut, pytest.approx(confidence, abs=1e-6))


@pytest.mark.parametrize("count", [4, 6, 10])
def test_false_alarm_rate_is_as_documented(count):
    """Starts differ by a third, steps of one by a tenth; few of 4,000 comparisons without change alarm."""
    draw = np.random.default_rng(count)
    starts = draw.lognormal(0, 0.3, (4_000, 2 * count, 1))
    steps = (1e7 * starts * draw.lognormal(0, 0.1, (4_000, 2 * count, 5))).astype(np.int64)
    base, other = (steps[:, half].reshape(4_000, -1) for half in (slice(count), slice(count, None)))
    places = tuple(tuple(range(5 * start, 5 * start + 5)) for start in range(count))
    layout = Layout(places, places)
    assert layout.by_starts
    assert layout.decides
    found = differences(base, other, layout)
    wrong = np.mean((found.low > 0) | (found.high < 0))
    assert wrong <= 0.05 + 0.01
    # If steps were compared as if all starts were equal, the same steps would alarm frequently.
    alike = Layout((tuple(range(5 * count)),), (tuple(range(5 * count)),), between_starts=0.0)
    found = differences(base, other, alike)
    assert np.mean((found.low > 0) | (found.high < 0)) > 0.2


def test_a_change_beyond_the_noise_is_found():
    base = side(*(plain(1_000 + 7 * i, start=f"a{i}") for i in range(4)))
    other = side(*(plain(1_500 + 9 * i, start=f"b{i}") for i in range(4)))
    found = diff_steps(base, other)
    assert found.modules.set_index("key").loc["layers.1", "verdict"] == "more"
    assert found.modules.set_index("key").loc["head", "verdict"] == "same"
    assert [one.outcome for one in judge(found, [parse_limit("step > +3%"), parse_limit("step > +60%")])] == [
        "failed",
        "kept",
    ]


def test_a_gain_that_is_demanded_is_missing_even_within_the_noise():
    base, other = (side(*(plain(1_000 + 9 * i, start=f"{name}{i}") for i in range(4))) for name in "ab")
    limits = [parse_limit(f"{what} > -{least}%") for what in ("step", "module:layers.1") for least in (50, 0)]
    outcomes = [one.outcome for one in judge(diff_steps(base, other), limits)]
    assert outcomes == ["failed", "kept"] * 2
    limits = [parse_limit("step > -0.1%"), parse_limit("step < +50%")]
    assert [one.outcome for one in judge(diff_steps(base, other), limits)] == ["undecided", "failed"]


@pytest.mark.parametrize(("percent", "outcome"), [(0.5, "undecided"), (10, "kept")])
def test_noise_that_is_wider_than_the_limit_decides_nothing(percent, outcome):
    """The medians are equal, and the interval of their difference is about ±5 %."""
    base, other = (side(*(plain(900 + 50 * i, start=f"{name}{i}") for i in range(5))) for name in "ab")
    (found,) = judge(diff_steps(base, other), [parse_limit(f"step > +{percent}%")])
    assert found.outcome == outcome
    assert ("is wider than the limit" in found.text) is (outcome == "undecided")


def test_one_start_is_undecided_without_between_starts():
    sides = [side(*(plain(layer + i) for i in range(5))) for layer in (1_000, 1_300)]
    limit = [parse_limit("step > +3%")]
    unknown = diff_steps(*sides)
    assert set(unknown.waterfall()["verdict"]) <= {"undecided", "same"}
    assert "--between-starts" in unknown.noise
    assert judge(unknown, limit)[0].outcome == "undecided"
    assert judge(diff_steps(*sides, between_starts=0.05), limit)[0].outcome == "failed"
    wide = diff_steps(*sides, between_starts=0.5)
    assert judge(wide, limit)[0].outcome == "undecided"
    (found,) = judge(wide, [parse_limit("step > +12%")])
    assert "is wider than the limit. Next: capture more steps" in found.text


def test_noise_of_the_steps_wider_than_the_limit_leaves_it_undecided():
    """The medians are equal, but the steps of each side vary by up to 60 %."""
    sides = [side(*(plain(1_000 + 250 * (i % 5)) for i in range(9))) for _ in range(2)]
    limits = [parse_limit("step > +3%"), parse_limit("step > +90%"), parse_limit("step < +0%")]
    for between_starts in (None, 0.02):
        found = judge(diff_steps(*sides, between_starts=between_starts), limits)
        assert [one.outcome for one in found] == ["undecided", "kept", "kept"]


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("step > +3%", "failed"),
        ("step >= +250ns", "failed"),
        ("step > +250ns", "kept"),
        ("step > 2.1us", "failed"),
        ("step > 1ms", "kept"),
        ("step < -1%", "kept"),
        ("bytes > +0", "kept"),
        ("nodes > +0", "kept"),
        ("module:layers.1 > +10%", "failed"),
        ("operator:aten::op8 > +100ns", "failed"),
        ("collective:all_reduce of 1.00 MiB, all ranks > +1%", "kept"),
        ("kind:compute > +10%", "failed"),
    ],
)
def test_limits(doubled, text, outcome):
    assert judge(doubled, [parse_limit(text)])[0].outcome == outcome


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("step", "not a limit"),
        ("step > 3%", "+3%"),
        ("step > +-3%", "cannot be read"),
        ("step > +3 miles", "cannot be read"),
        ("bytes > +3ms", "cannot be read"),
        ("step > +3", "write +3ms or +3%"),
        ("step > 5", "write 5ms or +5%"),
        ("bytes > +1.5", "write +1.5MiB or +1.5%"),
        ("steps > +3%", "did you mean 'step'"),
        ("memory > +1GiB", "no capture records it"),
        ("module:layers.7 > +1%", "layers.1"),
    ],
)
def test_impossible_limits_are_errors(doubled, text, hint):
    with pytest.raises(UsageError) as error:
        judge(doubled, [parse_limit(text)])
    assert hint in error.value.message


@pytest.mark.parametrize(("place", "hint"), [(0, "missing in a (before)"), (1, "missing in b (after)")])
def test_a_limit_on_a_figure_of_one_side_names_the_other_side(place, hint):
    step = plain(250, exact=True)
    steps = [replace(step, figures={**step.figures, "memory": 1 << 30}), step]
    found = diff_steps(side(steps[1 - place], name="a"), side(steps[place], name="b"))
    with pytest.raises(UsageError) as error:
        judge(found, [parse_limit("memory > +1GiB")])
    assert hint in error.value.message
    assert "no capture" not in error.value.message


def test_sides_are_read_from_studies(tmp_path):
    made = make_study(tmp_path / "study")
    name = str(made.study.path)
    newest = read_side(name)
    assert [step.exact for step in newest.steps] == [True]
    assert newest.median.makespan_ns == made.study.run_info(made.run_b).makespan_ns
    measured = read_side(f"{name}@{made.run_a[:8]}")
    assert not measured.steps[0].exact
    # Ranks have separate clocks, which do not show waits.
    calls = made.study.result(made.run_a).collectives
    for figure in ("wait", "transfer"):
        assert measured.steps[0].figures[figure] == round(calls[f"{figure}_ns"].sum() / 2)
    assert measured.steps[0].collectives["transfer_ns"].sum() == calls["transfer_ns"].sum() / 2
    assert len(side_of(made.study, f"{made.run_a},{made.run_b}").steps) == 2
    for what, hint in (("capture-1", "hand-made"), ("all", "chakrascope trace")):
        with pytest.raises(StudyError) as error:
            read_side(f"{name}@{what}")
        assert hint in error.value.message


def test_several_steps_are_not_held_against_one():
    one, three = plain(250, exact=True), replace(plain(750, exact=True), covers=3)
    with pytest.raises(ConfigError, match=r"1 step \(.*\) and 3 steps"):
        diff_steps(side(one), side(three))
    found = diff_steps(side(three), side(replace(three, makespan_ns=three.makespan_ns)))
    assert found.headline.startswith("The 3 steps take ")


def test_different_programs_are_named_before_they_are_compared():
    first = step_of([[("layers.0", 1_000), ("layers.1", 900), ("all_reduce", 500)]], name="first")
    other = step_of([[("a", 1_000), ("bb", 900), ("layers.1", 500)]], name="other")
    notes = diff_steps(side(first), side(other)).other.notes
    assert notes == (
        "first and other look like different programs: 20.0 % of the operator calls of a rank occur in both "
        "(3 and 3 calls).",
    )
    for alike in (first, step_of([[("layers.0", 10), ("layers.2", 9), ("head", 9), ("all_reduce", 1)]])):
        assert diff_steps(side(first), side(alike)).other.notes == ()


def test_a_path_of_very_many_pieces_stays_readable_and_whole():
    names = [f"compute: m{i % 977}" for i in range(20_000)]
    durations = np.arange(20_000) % 5_003
    segments = pd.DataFrame({"part": names, "rank": 0, "node_id": range(20_000), "duration_ns": durations})
    segments["start_ns"] = segments["duration_ns"].cumsum() - segments["duration_ns"]
    legs = path_legs(segments)
    assert len(legs) <= 801
    assert legs["duration_ns"].sum() == durations.sum()
    assert legs["segments"].sum() == 20_000
    assert (legs["start_ns"].diff().iloc[1:] == legs["duration_ns"].iloc[:-1].to_numpy()).all()
    same = paths_side_by_side(legs, legs)
    assert set(same["change"]) == {""}
    assert (same["delta_ns"] == 0).all()
