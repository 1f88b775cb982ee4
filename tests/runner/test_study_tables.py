"""The runs and the imports of a study as tables."""

import pytest
from studies import make_study

from chakrascope.runner import ImportItem
from chakrascope.runner.study import compared, item_table, proposed_name, run_table


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("tables") / "study")


def test_table_lists_the_newest_first(made):
    table = run_table(made.study.runs())
    assert table["id"].tolist() == [made.run_b, made.run_a]
    assert table["label"].tolist() == ["run-b", "run-a"]
    assert run_table([]).columns.tolist() == table.columns.tolist()


def test_measurement_is_the_base_of_a_comparison(made):
    assert compared(made.study.runs(), [made.run_b, made.run_a]) == (made.run_a, [made.run_b])
    assert compared(made.study.runs(), [made.run_b]) == (made.run_b, [])


def test_a_run_that_is_asked_for_again_is_the_newest_and_unchanged(tmp_path):
    made = make_study(tmp_path / "study")
    study, before = made.study, made.study.run_info(made.run_a)
    assert study.run_info().id == made.run_b
    again = study.add_run(study.experiment(made.run_a), study.result(made.run_a))
    assert again == made.run_a
    assert study.run_info() == before
    assert [info.id for info in study.runs()] == [made.run_b, made.run_a]
    study.delete_run(made.run_a)
    assert study.run_info().id == made.run_b


@pytest.mark.parametrize(
    ("kind", "place", "name"),
    [
        ("trace set", "runs/llama 7b", "llama 7b"),
        ("traces", "dlrm/kineto_{rank}.json.gz", "dlrm"),
        ("traces", "kineto_{rank}.json.gz", "kineto_-rank"),
        ("graphs", "a/<b>", "b"),
        ("trace set", ".", "imported"),
        ("graphs", "x" * 300, "x" * 80),
    ],
)
def test_name_is_proposed_from_the_place(kind, place, name):
    assert proposed_name(ImportItem("1", kind, place, 2, ("a",), 1)) == name


def test_table_counts_the_files_of_both_sides():
    item = ImportItem("1", "traces", "p", 2, ("a", "b"), 7, ("c", "d"))
    assert item_table([item])["files"].tolist() == [4]
    assert item_table([]).empty
