"""The manifest's reader against damaged, foreign and incomplete trace sets."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakrascope.converter import convert, doctor
from chakrascope.errors import CaptureError, TraceError, TraceFormatError, UsageError
from chakrascope.tracer import TraceSet, collect
from chakrascope.tracer._merge import merge

MANIFEST = {
    "format": "chakrascope-trace-set",
    "version": 1,
    "created": "2026-01-01T00:00:00+00:00",
    "partial": False,
    "reasons": [],
    "command": ["python", "train.py"],
    "exit_code": 0,
    "torch_version": "2.13.0",
    "world_size": 1,
    "ranks": [{"rank": 0, "host_trace": "rank0.host.json.gz", "device_trace": None, "flight_record": None}],
    "options": {"warmup": 3, "steps": 3},
}


ESCAPES = ["../x", "/etc/passwd", "..", ".", "a/b", "x\0y", "./x"]


def entry(**changes):
    return {"rank": 0, **changes}


def write(folder, manifest=MANIFEST):
    (folder / "rank0.host.json.gz").write_bytes(b"")
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_save_then_load_gives_the_same_trace_set(tmp_path):
    write(tmp_path)
    loaded = TraceSet.load(tmp_path)
    loaded.save()
    assert TraceSet.load(tmp_path) == loaded
    written = json.loads((tmp_path / "manifest.json").read_text())
    assert {key: written[key] for key in MANIFEST if key != "ranks"} == {
        key: value for key, value in MANIFEST.items() if key != "ranks"
    }
    assert written["ranks"][0].items() >= MANIFEST["ranks"][0].items()
    assert "path" not in written
    assert (loaded.exit_code, loaded.partial, loaded.world_size, loaded.reasons) == (0, False, 1, [])


def test_ranks_are_sorted(tmp_path):
    write(tmp_path, {**MANIFEST, "world_size": 3, "ranks": [{"rank": rank} for rank in (2, 0, 1)]})
    assert [entry.rank for entry in TraceSet.load(tmp_path).ranks] == [0, 1, 2]


def test_folder_without_manifest_gets_a_next_step(tmp_path):
    with pytest.raises(TraceError, match=r"holds no trace set.*chakrascope trace"):
        TraceSet.load(tmp_path)


def test_a_missing_rank_file_is_named(tmp_path):
    write(tmp_path)
    (tmp_path / "rank0.host.json.gz").unlink()
    with pytest.raises(TraceError, match=r"rank0\.host\.json\.gz is missing.*rank 0"):
        TraceSet.load(tmp_path)


@pytest.mark.parametrize("key", ["partial", "reasons", "command", "exit_code", "world_size", "ranks"])
def test_a_manifest_without_a_required_key_names_it(tmp_path, key):
    write(tmp_path, {name: value for name, value in MANIFEST.items() if name != key})
    with pytest.raises(TraceFormatError, match=key):
        TraceSet.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 9}, "version 9; this chakrascope reads version 1"),
        ({"version": 10**30}, "version 1000"),
        ({"version": True}, "version True"),
        ({"version": 99, "format": "something-else"}, "format"),
        ({"path": "/etc", "format": None}, "format"),
        ({"ranks": [{}]}, r"required field `rank` - at `\$\.ranks\[0\]`"),
        ({"ranks": [7]}, r"\$\.ranks\[0\]"),
        ({"ranks": {}}, r"Expected `array`, got `object` - at `\$\.ranks`"),
        ({"ranks": [{"rank": 0}, {"rank": 0}]}, "rank 0 is listed twice"),
        ({"ranks": [{"rank": 1}]}, "rank 1 of a job of 1 ranks"),
        ({"ranks": [{"rank": -1}]}, ">= 0"),
        ({"ranks": [{"rank": 10**30}]}, "damaged"),
        ({"ranks": [{"rank": True}]}, "got `bool`"),
        ({"world_size": 0}, ">= 1"),
        ({"world_size": 10**15}, "<= 1000000"),
        ({"world_size": "1"}, r"Expected `int`, got `str` - at `\$\.world_size`"),
        ({"ranks": [entry(steps=[{"index": 0, "start_ns": 0, "end_ns": 10**30}])]}, "end_ns"),
        ({"ranks": [entry(steps=[{"index": 0, "start_ns": 0, "end_ns": 2**63}])]}, "end_ns"),
        ({"ranks": [entry(steps=[{"index": 0, "start_ns": -1, "end_ns": 1}])]}, "start_ns"),
        ({"ranks": [entry(steps=[{"index": 0, "start_ns": 0.5, "end_ns": 1}])]}, "start_ns"),
        ({"ranks": [entry(process_groups=[{"name": "0", "ranks": [0, 1]}])]}, "has rank 1 of 1 ranks"),
        ({"ranks": [entry(all_groups=[[0, 4]])]}, "has rank 4 of 1 ranks"),
        *(({"ranks": [entry(host_trace=name)]}, "not the name of a file") for name in ESCAPES),
        ({"ranks": [entry(flight_record="a/../b")]}, "not the name of a file"),
        ({"ranks": [entry(host_trace=1)]}, r"Expected `str \| null`, got `int`"),
    ],
)
def test_a_foreign_manifest_is_refused(tmp_path, change, message):
    write(tmp_path, {**MANIFEST, **change})
    with pytest.raises(TraceFormatError, match=message):
        TraceSet.load(tmp_path)
    with pytest.raises(TraceFormatError, match=message):
        convert(tmp_path)
    (finding,) = doctor(tmp_path)
    assert (finding.severity, finding.place) == ("error", str(tmp_path / "manifest.json"))


def test_a_path_in_the_manifest_is_not_the_trace_sets(tmp_path):
    write(tmp_path, {**MANIFEST, "path": "/etc"})
    assert TraceSet.load(tmp_path).path == tmp_path


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[" * 100_000, b"[1]", b"7", b'"x"', b"{}", b"null"])
def test_what_is_no_manifest_is_refused(tmp_path, content):
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(TraceFormatError, match=r"manifest\.json"):
        TraceSet.load(tmp_path)


def test_a_huge_file_is_refused_unread(tmp_path):
    with (tmp_path / "manifest.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(TraceFormatError, match="1048576 MiB"):
        TraceSet.load(tmp_path)


def test_a_manifest_that_is_a_folder_is_refused(tmp_path):
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(TraceError, match="cannot be read"):
        TraceSet.load(tmp_path)


@settings(deadline=None)
@given(length=st.integers(0, len(json.dumps(MANIFEST)) - 1))
def test_every_truncation_of_a_manifest_is_a_format_error(tmp_path_factory, length):
    folder = tmp_path_factory.mktemp("truncated")
    (folder / "manifest.json").write_text(json.dumps(MANIFEST)[:length])
    with pytest.raises(TraceFormatError, match="damaged or truncated"):
        TraceSet.load(folder)


# Merging the trace sets of several hosts.


def write_host(folder, ranks, world_size=4, host="a", **changes):
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
    folders = [write_host(tmp_path / "b", [2, 3], host="b"), write_host(tmp_path / "a", [0, 1])]
    merged = collect(folders, tmp_path / "all")
    assert merged == TraceSet.load(tmp_path / "all")
    assert (merged.partial, merged.reasons, merged.world_size) == (False, [], 4)
    assert [rank.rank for rank in merged.ranks] == [0, 1, 2, 3]
    assert (merged.path / "rank3.device_trace.json.gz").read_text() == "rank3.device_trace.json.gz of b"
    assert merged.notes == [
        "the ranks ran on 2 hosts (a, b): comparisons between hosts are only as accurate as the hosts' clocks"
    ]


def test_missing_host_and_failures_of_others_are_named(tmp_path):
    died = "rank 0 died while it was recorded"
    failed = write_host(tmp_path / "a", [0], exit_code=3, reasons=[died], partial=True)
    merged = collect([failed, write_host(tmp_path / "b", [2])], tmp_path / "all")
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
        collect(
            [write_host(tmp_path / "a", [0]), write_host(tmp_path / "b", [1], **change)], tmp_path / "all"
        )
    assert not (tmp_path / "all").exists()


def test_a_rank_found_twice_is_named_with_both_places(tmp_path):
    with pytest.raises(TraceError, match=r"Rank 1 is in .*/a and in .*/b"):
        collect([write_host(tmp_path / "a", [0, 1]), write_host(tmp_path / "b", [1])], tmp_path / "all")


def test_nothing_to_collect_no_trace_set_and_a_taken_output_are_refused(tmp_path):
    with pytest.raises(UsageError, match="nothing to collect"):
        collect([], tmp_path / "all")
    with pytest.raises(TraceError, match="holds no trace set"):
        collect([tmp_path], tmp_path / "all")
    folder = write_host(tmp_path / "a", [0])
    with pytest.raises(CaptureError, match="already contains a trace set"):
        collect([folder], folder)


@settings(deadline=None)
@given(hosts=st.lists(st.integers(0, 2), min_size=1, max_size=8))
def test_every_partition_of_the_ranks_over_hosts_merges_to_the_same_ranks(tmp_path_factory, hosts):
    root = tmp_path_factory.mktemp("hosts")
    folders = [
        write_host(root / str(host), [rank for rank, where in enumerate(hosts) if where == host], len(hosts))
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
