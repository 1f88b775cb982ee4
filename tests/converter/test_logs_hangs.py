"""What production logs say went wrong in a job: hangs, and ranks that disagree."""

import pytest
from log_files import Job

from chakrascope.converter import convert_logs, doctor, match_logs, read_logs
from chakrascope.errors import TraceError

# What went wrong in the job


def test_a_hang_names_who_is_missing(tmp_path):
    job = Job(4)
    job.collective()
    job.collective("broadcast")
    job.collective(missing=(1,))
    with pytest.raises(TraceError, match=r"rank 1 never did\. Rank 1 last issued broadcast 2 there") as error:
        convert_logs([job.write(tmp_path / "logs")])
    assert "All_reduce 3 of world did not complete: ranks 0, 2, 3 issued it" in error.value.message
    (finding,) = [found for found in doctor(tmp_path / "logs") if found.severity == "error"]
    assert finding.cause in error.value.message
    cut = convert_logs([tmp_path / "logs"], cut_unfinished=True)
    assert cut.graphs[0].nodes["name"].tolist() == ["all_reduce", "broadcast"]
    assert "3 records of operations that had not completed were left out" in cut.metadata["assumptions"]


def test_a_hang_in_one_group_is_told_before_those_that_follow_from_it(tmp_path):
    job = Job(4, {"tp-1": [2, 3], "dp-0": [0, 2]})
    job.collective(group="tp-1")
    job.collective(group="dp-0")
    job.collective(group="tp-1", missing=(3,))  # rank 2 waits for rank 3
    job.collective(group="dp-0", missing=(2,))  # rank 0 waits for rank 2
    matched = match_logs(read_logs([job.write(tmp_path / "logs")]))
    causes = [found.cause for found in doctor(tmp_path / "logs") if found.severity == "error"]
    assert len(matched.unfinished) == 2
    assert causes[0].startswith("All_reduce 2 of tp-1 did not complete: rank 2 issued it, rank 3 never did.")
    assert "Rank 2 waits in all_reduce 2 of tp-1." in causes[1]


def test_a_hang_with_a_rank_without_log_says_so(tmp_path):
    job = Job(3)
    job.collective()
    job.collective(missing=(2,))
    with pytest.raises(TraceError, match="ranks 0, 1 issued it, there is no log of rank 2"):
        convert_logs([job.write(tmp_path / "logs", ranks=(0, 1))])


def test_all_issued_and_none_completed_blames_the_network(tmp_path):
    job = Job(2)
    job.collective()
    for records in job.records.values():
        records[0].end_ns = None
    with pytest.raises(TraceError, match="so did all others, so the network or a rank's device"):
        convert_logs([job.write(tmp_path / "logs")])


@pytest.mark.parametrize("kind", ["flight", "inspector"])
def test_ranks_that_disagree_are_named_with_what_each_says(tmp_path, kind):
    job = Job(3)
    job.collective(floats=1024)
    job.collective(floats=1024, sizes={2: 1000})
    folder = job.write(tmp_path / kind, kind)
    with pytest.raises(TraceError, match=r"ranks 0, 1 say .*4,096 bytes.*; rank 2 says .*4,000 bytes"):
        convert_logs([folder], back_to_back=True)
    assert "Ranks disagree about collective" in doctor(folder)[0].cause


def test_another_collective_at_the_same_place_is_a_disagreement(tmp_path):
    job = Job(2)
    job.collective()
    job.records[1][0].name = "broadcast"
    with pytest.raises(TraceError, match=r"rank 0 says all_reduce .*; rank 1 says broadcast"):
        convert_logs([job.write(tmp_path / "logs")])
