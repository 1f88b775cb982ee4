"""Stragglers, skew and speeds from production logs: golden numbers of a job with a known straggler."""

import pytest
from log_files import MS, US, Job, straggling_job

from chakrascope.converter import match_logs, read_logs
from chakrascope.runner.analysis import (
    ALL_GROUPS,
    logged_speeds,
    logged_stragglers,
    logged_table,
    straggler_texts,
)


def matched(job, folder, kind="flight", **options):
    return match_logs(read_logs([job.write(folder, kind, **options)]))


def uneven_job(times=10, late_us=4200, **options):
    """Return a job of four ranks in which rank 3 comes last, by 4.2 ms, to six all-reduces of ten."""
    job = Job(4, **options)
    for step in range(times):
        straggler = 3 if step % 5 < 3 else 1
        job.compute({rank: 100 + (late_us if rank == straggler else 0) for rank in range(4)})
        job.collective(floats=1 << 20, transfer_us=200)
    return job


@pytest.mark.parametrize(
    ("kind", "options", "source"),
    [
        ("flight", {}, "duration"),
        ("flight", {"timed": False}, "enqueue"),
        ("flight", {"timed": False, "backend": "gloo"}, "enqueue"),
        ("inspector", {}, "duration"),
        ("inspector", {"verbose": True}, "duration"),
    ],
)
def test_the_straggler_is_named_with_share_and_median(tmp_path, kind, options, source):
    found = matched(uneven_job(), tmp_path / "logs", kind, **options)
    assert set(logged_table(found)["source"]) == {source}
    table = logged_stragglers(found)
    assert table["rank"].tolist() == [3, 1]
    assert table["last"].tolist() == [6, 4]
    assert table["share"].tolist() == [0.6, 0.4]
    assert table["median_behind_ns"].tolist() == [4200 * US] * 2
    assert table["total_behind_ns"].tolist() == [25_200 * US, 16_800 * US]
    assert straggler_texts(table) == [
        "Rank 3 comes last in 60.0 % of the collectives, with a median delay of 4.20 ms after the first rank."
    ]


def test_wrong_clocks_do_not_make_a_straggler(tmp_path):
    wrong = {1: 5 * MS, 2: -(10**15), 3: 700 * MS}
    right = logged_stragglers(matched(uneven_job(), tmp_path / "right", timed=False))
    found = matched(uneven_job(ahead_ns=wrong), tmp_path / "wrong", timed=False)
    assert found.clocks.corrected == wrong
    assert logged_stragglers(found).equals(right)


def test_unknown_clocks_yield_no_arrivals(tmp_path):
    job = uneven_job(times=2, ahead_ns={1: 10**12})
    found = matched(job, tmp_path / "logs", timed=False)
    assert found.clocks.source == "nothing"
    assert set(logged_table(found)["source"]) == {""}
    assert set(logged_table(found)["last_rank"]) == {-1}
    assert logged_stragglers(found).empty
    assert straggler_texts(logged_stragglers(found)) == []


def test_groups_are_listed_separately_and_together(tmp_path):
    table = logged_stragglers(matched(straggling_job(), tmp_path / "logs"))
    assert table["group"].unique().tolist() == [ALL_GROUPS, "dp-0", "dp-1", "tp-0", "tp-1", "world"]
    worst = table.groupby("group", sort=False)["rank"].first()
    assert worst.to_dict() == {ALL_GROUPS: 3, "dp-0": 2, "dp-1": 3, "tp-0": 1, "tp-1": 3, "world": 0}
    texts = straggler_texts(table)
    assert texts[0].startswith("Rank 3 comes last in ")
    # The message between ranks 0 and 1 comes right before: both are last, the lower one is named.
    assert texts[-1] == (
        "Rank 0 comes last in 100.0 % of the collectives of world, "
        "with a median delay of 50.0 µs after the first rank."
    )


def test_ranks_that_come_together_are_no_stragglers(tmp_path):
    job = Job(3)
    for _ in range(4):
        job.compute(100)
        job.collective()
    found = matched(job, tmp_path / "logs")
    assert logged_table(found)["skew_ns"].tolist() == [0] * 4
    assert logged_table(found)["last_rank"].tolist() == [-1] * 4
    assert logged_stragglers(found).empty


def test_broadcast_arrivals_come_from_enqueue_times(tmp_path):
    job = Job(3)
    for _ in range(4):
        job.compute({2: 1000})
        job.collective("broadcast")
        job.collective()
    table = logged_table(matched(job, tmp_path / "logs"))
    assert table["source"].tolist() == ["enqueue", "duration"] * 4
    assert table["last_rank"].tolist() == [2, -1] * 4


@pytest.mark.parametrize("kind", ["flight", "inspector"])
def test_speeds_come_from_the_rank_without_wait(tmp_path, kind):
    job = uneven_job()
    job.compute({2: 50})
    job.collective("all_gather", floats=1000, transfer_us=10)
    job.collective("reduce_scatter", floats=4000, transfer_us=20)
    speeds = logged_speeds(matched(job, tmp_path / "logs", kind)).set_index("operation")
    reduced = speeds.loc["all_reduce"]
    assert reduced[["ranks", "size_bytes", "count"]].tolist() == [4, 1 << 22, 10]
    assert reduced[["transfer_ns", "fastest_ns", "slowest_ns", "longest_ns"]].tolist() == [
        200 * US, 200 * US, 200 * US, 4400 * US,
    ]  # fmt: skip
    assert reduced["algorithm_bytes_per_ns"] == pytest.approx((1 << 22) / 200_000)
    assert reduced["bus_bytes_per_ns"] == pytest.approx(1.5 * (1 << 22) / 200_000)
    assert speeds.loc["all_gather", "bus_bytes_per_ns"] == pytest.approx(0.75 * 16_000 / 10_000)
    assert speeds.loc["reduce_scatter", "bus_bytes_per_ns"] == pytest.approx(0.75 * 16_000 / 20_000)


def test_speeds_agree_with_what_inspector_itself_computes(tmp_path):
    """The bus bandwidth of its own example: 17.2 GB on 8 ranks in 61.974 ms are 485.119 GB/s."""
    header = '"header":{"id":"0x7f","rank":%d,"n_ranks":8,"nnodes":1}'
    perf = '"coll_perf":{"coll":"AllReduce","coll_sn":1407,"coll_msg_size_bytes":17179869184,'
    for rank in range(8):
        line = f'{{{header % rank},"metadata":{{"pid":{rank}}},{perf}"coll_exec_time_us":61974}}}}\n'
        (tmp_path / f"{rank}.log").write_text(line)
    speeds = logged_speeds(match_logs(read_logs([tmp_path])))
    assert speeds["algorithm_bytes_per_ns"][0] == pytest.approx(277.210914, abs=1e-6)
    assert speeds["bus_bytes_per_ns"][0] == pytest.approx(485.119099, abs=1e-6)


def test_logs_without_durations_have_no_speeds(tmp_path):
    assert logged_speeds(matched(uneven_job(), tmp_path / "logs", timed=False)).empty
