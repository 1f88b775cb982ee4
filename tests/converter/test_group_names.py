"""Process groups: those of the same ranks stay apart, and have the names that the script gives them."""

import pytest
from gloo_thread import Thread, write_trace_set

from chakrascope.converter import convert
from chakrascope.converter.building import group_name
from chakrascope.converter.readers import group_labels
from chakrascope.runner import REPLAY, get_backend, prepare
from chakrascope.runner.analysis import critical_path

STEP = (1_000, 41_000)  # microseconds
EVERYONE = [0, 1, 2, 3]
MESH = [
    ("0", "default_pg", EVERYONE), ("1", "mesh_dp", EVERYONE), ("2", "mesh_tp", [0, 1]),
    ("3", "mesh_cp", [0, 1]), ("4", "mesh_tp", [2, 3]), ("5", "mesh_cp", [2, 3]),
]  # fmt: skip


def converted(folder, groups, used):
    """Return the workload of four ranks that reduce in those of their groups whose names are in *used*."""
    entries = []
    for rank in EVERYONE:
        thread, own = Thread(rank), [group for group in groups if rank in group[2]]
        names = [name for name, *_ in own if name in used]
        for number, name in enumerate(names):
            start = STEP[0] + 2_000 * number
            thread.op("aten::mm", start + rank, start + 500, 10 * number + 1)
            thread.all_reduce(start + 500, start + 600, 10 * number + 2, start + 1_500, group=name)
        thread.op("aten::add_", STEP[1] - 1_000, STEP[1], 900)
        listed = [{"name": name, "description": text, "ranks": ranks} for name, text, ranks in own]
        entries.append(thread.write(folder, [STEP]) | {"process_groups": listed})
    write_trace_set(folder, entries)
    return convert(folder)


def names_of(workload, rank):
    """Return the groups of the collectives of *rank*, in order, in words."""
    nodes = workload.graphs[rank].nodes
    issued = nodes[nodes["comm_size_bytes"] > 0].sort_values("measured_start_ns")
    return [group_name(workload.metadata, number) for number in issued["group"]]


def test_groups_of_the_same_ranks_have_numbers_and_names_of_their_own(tmp_path):
    workload = converted(tmp_path, MESH, "012345")
    assert names_of(workload, 1) == ["all ranks", "group 3 (dp)", "group 2 (tp)", "group 1 (cp)"]
    assert names_of(workload, 3) == ["all ranks", "group 3 (dp)", "group 5 (tp)", "group 4 (cp)"]
    assert workload.groups == {1: (0, 1), 2: (0, 1), 3: (0, 1, 2, 3), 4: (2, 3), 5: (2, 3)}


def test_the_critical_path_names_groups(tmp_path):
    workload = converted(tmp_path, MESH, "2345")
    experiment = prepare(workload, "default", None, backend=REPLAY)
    path = critical_path(get_backend(REPLAY).run(experiment), workload)
    named = {text for text in path.segments["collective"] if text}
    assert named
    names = ("1 (cp)", "2 (tp)", "4 (cp)", "5 (tp)")
    assert named <= {f"all_reduce of 4.00 KiB, group {name}" for name in names}


@pytest.mark.parametrize("used", ["0", "1"])
def test_the_only_group_of_all_ranks_is_that_of_all_ranks(tmp_path, used):
    workload = converted(tmp_path, MESH, used)
    assert workload.groups == {}
    assert names_of(workload, 0) == ["all ranks"]


def test_groups_without_a_description_are_numbered():
    listed = [("0", "default_pg", (0, 1)), ("7", "undefined", (0, 1)), ("9", "", (0,)), ("12", "", (0, 1))]
    assert group_labels(listed) == {"0": "", "7": "no. 2", "9": "", "12": "no. 3"}
    assert group_labels([("a", "mesh_dp", (0, 1)), ("b", "mesh_dp", (0, 1))]) == {"a": "dp", "b": "dp no. 2"}
