"""Every figure that the reference simulator prints, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import reference

DATA = Path(__file__).resolve().parent.parent / "data" / "engine"
CASES = reference.load(DATA / "cases.jsonl.gz")
RANDOM = reference.load(DATA / "random.jsonl.gz")


def _runs(answer: dict) -> bool:
    return answer["exit_code"] == 0 and bool(answer["ranks"])


@pytest.mark.parametrize("backend", ["unaware", "aware"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_hand_made_case(case, backend, tmp_path):
    answer = case[backend]
    if not _runs(answer):
        pytest.skip("the reference simulator itself gives no answer here; see test_extensions")
    if answer["unfinished_ranks"]:
        pytest.skip("ranks never finish here; see test_stalls")
    assert reference.differences(reference.run_case(case, backend, tmp_path), answer) == []


@pytest.mark.parametrize("backend", ["unaware", "aware"])
def test_random_experiments(backend, tmp_path):
    wrong = {}
    compared = 0
    for experiment in RANDOM:
        if not experiment[backend]["ok"]:
            continue
        compared += 1
        folder = tmp_path / experiment["id"]
        folder.mkdir()
        found = reference.differences(reference.run_random(experiment, backend, folder), experiment[backend])
        if found:
            wrong[experiment["id"]] = found[:3]
    assert wrong == {}
    assert compared > 50


@pytest.mark.parametrize("backend", ["unaware", "aware"])
def test_all_random_experiments(backend, shared, tmp_path):
    wrong = {}
    for experiment in reference.load(shared / "reference" / "analytical.jsonl.gz"):
        if experiment[backend]["ok"]:
            folder = tmp_path / experiment["id"]
            folder.mkdir()
            found = reference.differences(
                reference.run_random(experiment, backend, folder), experiment[backend]
            )
            if found:
                wrong[experiment["id"]] = found[:3]
    assert wrong == {}
