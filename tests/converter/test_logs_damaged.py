"""Files of production logs: detection by content, archives, damage, hostile pickles, bombs."""

import gzip
import json
import os
import pickle
import tarfile

import pytest
from log_files import Job, straggling_job

from chakrascope.converter import convert_logs, doctor, match_logs, read_logs
from chakrascope.converter.readers import kind_and_tool, kind_of
from chakrascope.errors import TraceError, TraceFormatError, UsageError


@pytest.fixture
def job():
    return straggling_job()


# Files of any kind


def test_archives_compressed_files_and_lists_of_files_are_the_same(tmp_path, job):
    folder = job.write(tmp_path / "logs")
    expected = read_logs([folder])
    with tarfile.open(tmp_path / "logs.tar.gz", "w:gz") as archive:
        archive.add(folder, "logs")
    (tmp_path / "packed").mkdir()
    for path in folder.iterdir():
        (tmp_path / "packed" / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    for given_ in ([tmp_path / "logs.tar.gz"], [tmp_path / "packed"], sorted(folder.iterdir())):
        found = read_logs(given_)
        assert [log.ops for log in found.ranks.values()] == [log.ops for log in expected.ranks.values()]
    place = read_logs([tmp_path / "logs.tar.gz"]).ranks[0].place
    assert place.startswith(str(tmp_path / "logs.tar.gz"))
    assert doctor(tmp_path / "logs.tar.gz")[0].severity != "error"


def test_kinds_are_told_by_content(tmp_path, job):
    dump = job.flight(0)
    files = {
        "flight": json.dumps(dump).encode(),
        "inspector": job.inspector(0).encode(),
    }
    for kind, data in files.items():
        (tmp_path / "x").write_bytes(data)
        assert kind_and_tool(tmp_path / "x") == ("log", kind)
    (tmp_path / "x").write_bytes(pickle.dumps(dump, protocol=2))
    assert kind_and_tool(tmp_path / "x") == ("log", "flight")
    (tmp_path / "x").write_bytes(pickle.dumps({"weights": 1}))
    assert kind_of(tmp_path / "x") == "other"
    with pytest.raises(UsageError, match=r"no logs of collectives\. Logs can be read from: PyTorch"):
        read_logs([tmp_path / "x"])


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_says_the_same_as_json(tmp_path, job, protocol):
    for rank in range(4):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(job.flight(rank), protocol=protocol))
    expected = read_logs([job.write(tmp_path.with_name("json"))])
    assert [log.ops for log in read_logs([tmp_path]).ranks.values()] == [
        log.ops for log in expected.ranks.values()
    ]


class Hostile:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return (open, (str(self.target), "w"))


def test_a_hostile_pickle_calls_nothing(tmp_path):
    target = tmp_path / "made"
    bad = {"entries": [], "pg_config": {"0": Hostile(target)}}
    marker = b"\x8c\x09pg_config0"  # makes the file look like a dump
    attacks = [
        pickle.dumps(bad, protocol=4),
        pickle.dumps(bad, protocol=2),
        b"\x80\x02X\x09\0\0\0pg_config0r\xff\xff\xff\x7f.",  # a memo number of two billion
        b"\x80\x05" + marker + b"\x96\xff\xff\xff\xff\xff\xff\xff\x0f.",  # a byte array of an exbibyte
        b"\x80\x04" + marker + b"\x82\x01.",  # a registered extension
        b"\x80\x02X\x09\0\0\0pg_config" + b"(" * 50 + b".",
        pickle.dumps({"pg_config": {}}, protocol=4)[:-3],
    ]
    for number, data in enumerate(attacks):
        path = tmp_path / f"rank_{number}"
        path.write_bytes(data)
        with pytest.raises(TraceFormatError, match=f"rank_{number}"):
            read_logs([path])
    assert not target.exists()


def _nested(key, value):
    """Return a function that changes the third entry of a dump."""

    def change(dump):
        dump["entries"][2][key] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _nested("time_created_ns", "soon"),
        _nested("time_created_ns", -5),
        _nested("time_created_ns", 2**63 - 1),
        _nested("duration_ms", 1e300),
        _nested("input_sizes", [[2**60]]),
        _nested("input_sizes", [[-1]]),
        _nested("input_sizes", [[2**30, 2**30, 2**30]]),
        _nested("input_dtypes", ["\x1b[31mred"]),
        _nested("process_group", ["0"]),
        _nested("process_group", None),
        _nested("profiling_name", 7),
    ],
)
def test_an_entry_that_cannot_be_is_named_with_file_and_rank(tmp_path, job, change):
    folder = job.write(tmp_path / "logs")
    dump = job.flight(3)
    change(dump)
    (folder / "nccl_trace_rank_3.json").write_text(json.dumps(dump))
    with pytest.raises(TraceFormatError, match=r"nccl_trace_rank_3\.json \(rank 3\), entry 2: "):
        read_logs([folder])


def test_every_type_of_pytorch_has_a_size(tmp_path, job):
    """The names are those of ``c10::toString``, which the flight recorder writes."""
    widths = {
        "Float4_e2m1fn_x2": 1, "Float8_e8m0fnu": 1, "Float8_e4m3fn": 1, "QInt8": 1, "QUInt8": 1, "QInt32": 4,
        "QUInt4x2": 1, "Bits8": 1, "Bits16": 2, "UInt4": 1, "Int4": 1, "UInt16": 2, "UInt64": 8,
        "ComplexHalf": 4, "BFloat16": 2,
    }  # fmt: skip
    for dtype, width in widths.items():
        dump = job.flight(3)
        for entry in dump["entries"]:
            entry["input_dtypes"] = entry["output_dtypes"] = [dtype]
        (tmp_path / "rank_3.json").write_text(json.dumps(dump))
        ops = read_logs([tmp_path / "rank_3.json"]).ranks[3].ops
        assert [op.size_bytes for op in ops[:3]] == [512 * width, 4096 * width, 2048 * width], dtype


@pytest.mark.parametrize("ranks", ["[0, 0]", "[5]", "nobody", "[-1, 3]", "__import__('os')", "[99999999999]"])
def test_groups_of_impossible_ranks_are_refused(tmp_path, job, ranks):
    dump = job.flight(3)
    for config in dump["pg_config"].values():
        config["ranks"] = ranks
    (tmp_path / "rank_3.json").write_text(json.dumps(dump))
    with pytest.raises(TraceFormatError, match=r"\(rank 3\)"):
        read_logs([tmp_path / "rank_3.json"])


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("inspector", '"n_ranks": 4', '"n_ranks": 0'),
        ("inspector", '"n_ranks": 2', '"n_ranks": "two"'),
        ("inspector", '"rank": 0', '"rank": 17'),
        ("inspector", '"coll_msg_size_bytes": 2048', '"coll_msg_size_bytes": -1'),
        ("inspector", '"coll_msg_size_bytes": 2048', '"coll_msg_size_bytes": 99999999999999999999'),
        ("inspector", '"coll_sn": 0', '"coll_sn": 1e999'),
        ("inspector", '"coll_perf": {', '"coll_perf": [{'),
        ("inspector", '"header": ', '"heading": '),
    ],
)
def test_a_line_that_cannot_be_is_named_with_its_file(tmp_path, job, kind, old, new):
    folder = job.write(tmp_path / kind, kind)
    path = sorted(folder.iterdir())[0]
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(TraceFormatError, match=rf"{path.name}, line \d+: "):
        read_logs([folder])


def test_a_last_line_that_is_cut_off_is_left_out_with_a_note(tmp_path, job):
    """The log is of a process that is still writing, or was killed while writing."""
    folder = job.write(tmp_path / "logs", "inspector")
    path = folder / "host0-pid100.log"
    whole = read_logs([folder])
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    for cut in (text[: text.rindex("coll_sn")], text[:-1] + '\n{"header": {"id": "0x1'):
        path.write_text(cut)
        logs = read_logs([folder])
        number = cut.count("\n") + 1
        assert f"line {number} of host0-pid100.log is cut off: its record was left out (rank 0)" in logs.notes
        assert logs.ranks[0].ops == whole.ranks[0].ops[: number - 1]
    path.write_text("".join([*lines[:3], lines[3][:-20], "\n", *lines[4:]]))
    with pytest.raises(TraceFormatError, match=r"host0-pid100\.log, line 4: "):
        read_logs([folder])  # a line in the middle is damaged
    path.write_text(lines[0][:-20])
    with pytest.raises(TraceFormatError, match=r"host0-pid100\.log, line 1: "):
        read_logs([folder])  # nothing is left


def test_a_job_whose_log_is_cut_off_is_converted(tmp_path, job):
    folder = job.write(tmp_path / "logs", "inspector", verbose=True)
    path = folder / "host0-pid100.log"
    text = path.read_text()
    path.write_text(text[: text.rindex("coll_sn")])
    assumptions = " ".join(convert_logs([folder]).metadata["assumptions"])
    assert "line 16 of host0-pid100.log is cut off" in assumptions
    assert "3 records of collectives after the end of some rank's log were left out" in assumptions


@pytest.mark.parametrize("content", [b"", b"{}", b"-1", bytes(500), b"PK", None])
def test_a_damaged_log_among_others_is_named(tmp_path, job, content):
    file = job.write(tmp_path / "logs") / "nccl_trace_rank_2.json"
    file.unlink()
    os.mkfifo(file) if content is None else file.write_bytes(content)
    with pytest.raises(TraceFormatError, match=r"nccl_trace_rank_2\.json is named like the file of a rank"):
        read_logs([tmp_path / "logs"])


def test_a_record_without_an_operation_is_counted(tmp_path, job):
    log = next((job.write(tmp_path / "logs", "inspector")).iterdir())
    log.write_text(log.read_text().replace('"coll_perf"', '"coll_pref"', 1))
    notes = " ".join(read_logs([tmp_path / "logs"]).notes)
    assert "records of unknown kinds were ignored: neither collective nor message (1)" in notes


def test_truncated_flight_record_is_recognised_as_a_log(tmp_path, job):
    path = tmp_path / "fr_0.json"
    path.write_text(json.dumps(job.flight(0))[:-40])
    with pytest.raises(TraceFormatError, match=r"fr_0\.json: it is not a flight record .*copy the log again"):
        read_logs([path])


# Failures of a job in its production logs: hangs, and ranks that disagree.


# Failures of the job


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


def test_first_hang_is_listed_before_its_consequences(tmp_path):
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
    with pytest.raises(TraceError, match="issued it as well, so the network or a rank's device"):
        convert_logs([job.write(tmp_path / "logs")])


@pytest.mark.parametrize("kind", ["flight", "inspector"])
def test_disagreeing_ranks_are_named_with_their_records(tmp_path, kind):
    job = Job(3)
    job.collective(floats=1024)
    job.collective(floats=1024, sizes={2: 1000})
    folder = job.write(tmp_path / kind, kind)
    with pytest.raises(TraceError, match=r"ranks 0, 1 have .*4,096 bytes.*; rank 2 has .*4,000 bytes"):
        convert_logs([folder], back_to_back=True)
    assert "Ranks disagree about collective" in doctor(folder)[0].cause


def test_another_collective_at_the_same_place_is_a_disagreement(tmp_path):
    job = Job(2)
    job.collective()
    job.records[1][0].name = "broadcast"
    with pytest.raises(TraceError, match=r"rank 0 has all_reduce .*; rank 1 has broadcast"):
        convert_logs([job.write(tmp_path / "logs")])
