"""Merging the trace sets of several hosts."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakrascope.errors import CaptureError, TraceError, UsageError
from chakrascope.tracer import TraceSet, collect
from chakrascope.tracer._merge import merge


def write(folder, ranks, world_size=4, host="a", **changes):
    folder.mkdir(parents=True)
    entries = []
    for rank in ranks:
        files = {key: f"rank{rank}.{key}.json.gz" for key in ("host_trace", "device_trace")}
        for name in files.values():
            (folder / name).write_text(f"{name} of {host}")
        entries.append({"rank": rank, **files, "flight_record": None, "hostname": host, "complete": True})
    missing = sorted(set(range(world_size)) - set(ranks))
    reasons = [f"nothing was captured of rank {', '.join(map(str, missing))}"] if missing else []
    manifest = {
        "format": "chakrascope-trace-set",
        "version": 1,
        "created": f"2026-01-01T00:00:0{len(ranks)}+00:00",
        "partial": bool(reasons),
        "reasons": reasons,
        "notes": [],
        "command": ["torchrun", "train.py"],
        "exit_code": 0,
        "torch_version": "2.13.0",
        "world_size": world_size,
        "ranks": entries,
        "options": {"warmup": 3, "steps": 3},
        **changes,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_two_hosts_make_one_whole_trace_set(tmp_path):
    folders = [write(tmp_path / "b", [2, 3], host="b"), write(tmp_path / "a", [0, 1])]
    merged = collect(folders, tmp_path / "all")
    assert merged == TraceSet.load(tmp_path / "all")
    assert (merged.partial, merged.reasons, merged.world_size) == (False, [], 4)
    assert [rank.rank for rank in merged.ranks] == [0, 1, 2, 3]
    assert (merged.path / "rank3.device_trace.json.gz").read_text() == "rank3.device_trace.json.gz of b"
    assert merged.notes == [
        "the ranks ran on 2 hosts (a, b): times of different hosts compare only as well as their clocks agree"
    ]


def test_a_missing_host_and_what_went_wrong_on_the_others_are_named(tmp_path):
    died = "rank 0 died while it was recorded"
    failed = write(tmp_path / "a", [0], exit_code=3, reasons=[died], partial=True)
    merged = collect([failed, write(tmp_path / "b", [2])], tmp_path / "all")
    assert merged.reasons == [died, "nothing was captured of rank 1, 3"]
    assert (merged.partial, merged.exit_code) == (True, 3)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"world_size": 8}, "world_size is 8, not 4"),
        ({"torch_version": "2.4.0"}, "torch_version is 2.4.0"),
        ({"options": {"warmup": 9, "steps": 3}}, "warmup is 9, not 3"),
    ],
)
def test_folders_of_different_jobs_are_refused(tmp_path, change, named):
    with pytest.raises(TraceError, match=named):
        collect([write(tmp_path / "a", [0]), write(tmp_path / "b", [1], **change)], tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_a_rank_found_twice_is_named_with_both_places(tmp_path):
    with pytest.raises(TraceError, match=r"Rank 1 is in .*/a and in .*/b"):
        collect([write(tmp_path / "a", [0, 1]), write(tmp_path / "b", [1])], tmp_path / "all")


def test_nothing_to_collect_no_trace_set_and_a_taken_output_are_refused(tmp_path):
    with pytest.raises(UsageError, match="nothing to collect"):
        collect([], tmp_path / "all")
    with pytest.raises(TraceError, match="holds no trace set"):
        collect([tmp_path], tmp_path / "all")
    folder = write(tmp_path / "a", [0])
    with pytest.raises(CaptureError, match="already holds a trace set"):
        collect([folder], folder)


@settings(deadline=None)
@given(hosts=st.lists(st.integers(0, 2), min_size=1, max_size=8))
def test_every_partition_of_the_ranks_over_hosts_merges_to_the_same_ranks(tmp_path_factory, hosts):
    root = tmp_path_factory.mktemp("hosts")
    folders = [
        write(root / str(host), [rank for rank, where in enumerate(hosts) if where == host], len(hosts))
        for host in set(hosts)
    ]
    merged = collect(folders, root / "all")
    assert not merged.partial
    assert [rank.rank for rank in merged.ranks] == list(range(len(hosts)))


def test_hosts_that_share_a_folder_and_end_at_once_get_the_same_trace_set(tmp_path):
    for host, rank in (("a", 0), ("b", 1)):
        names = {key: f"rank{rank}.{key}.json.gz" for key in ("host_trace", "device_trace")}
        for name in names.values():
            (tmp_path / name).write_text("trace")
        entry = {"rank": rank, **names, "flight_record": None, "complete": True, "trigger": "optimizer"}
        entry |= {"world_size": 2, "torch_version": "2.13.0", "notes": []}
        entry["steps"] = [{"index": index, "start_ns": 1, "end_ns": 2} for index in (3, 4, 5)]
        status = {"host": host, "pid": 1, "steps_seen": 9, "reasons": [], "notes": [], "closed": True}
        (tmp_path / "status").mkdir(exist_ok=True)
        rank_entry = {**entry, "raw_host_trace": ".gone"}
        (tmp_path / "status" / f"{host}.1.json").write_text(json.dumps({**status, "rank": rank_entry}))
    options = {"warmup": 3, "steps": 3}
    with ThreadPoolExecutor(2) as hosts:
        sets = list(hosts.map(lambda _: merge(tmp_path, ["torchrun"], 0, options), range(2)))
    assert sets[0] == sets[1]
    assert (sets[0].partial, len(sets[0].ranks)) == (False, 2)
