"""The choice of a program for a collective: by kind, number of ranks and size."""

import gzip
import json
from dataclasses import replace

import pytest
from program_samples import SAMPLES, changed_plan, changed_xml, path_of, plan, sample, xml

from chakrascope.converter import microbenchmark
from chakrascope.errors import ConfigError
from chakrascope.runner import NetworkConfig, Study, SystemConfig, prepare, run_sweep, simulate
from chakrascope.runner.config import copied_into, digests
from chakrascope.runner.programs import (
    BUILTIN_PROGRAMS,
    Buffer,
    ChannelType,
    Demand,
    Region,
    builtin_program,
    choose_programs,
    named_program,
    parse_program,
    prove,
    read_program,
    readers,
    write_msccl,
)

NETWORK = NetworkConfig(("Switch",), (4,), (100.0,), (500.0,), name="switch")


@pytest.fixture
def files(tmp_path):
    """Programs for up to 64 KiB and for more, among four ranks, and one among eight."""
    small = replace(builtin_program("direct", "all-reduce", 4), most_bytes=1 << 16)
    large = replace(builtin_program("ring", "all-reduce", 4), least_bytes=(1 << 16) + 1)
    programs = {"small": small, "large": large, "eight": builtin_program("ring", "all-reduce", 8)}
    for name, program in programs.items():
        (tmp_path / f"{name}.xml").write_text(write_msccl(program))
    return {name: tmp_path / f"{name}.xml" for name in programs}


def test_by_size(files):
    demands = [Demand("all-reduce", 4, size) for size in (1024, 1 << 16, 1 << 20)]
    found = choose_programs({"all-reduce": [files["small"], files["large"]]}, demands)
    assert [found.programs[demand].name for demand in demands] == [
        "direct_all-reduce",
        "direct_all-reduce",
        "ring_all-reduce",
    ]


def test_by_the_number_of_ranks(files):
    demands = [Demand("all-reduce", 4, 1024), Demand("all-reduce", 2, 1024)]
    found = choose_programs({"all-reduce": [files["eight"], files["small"]]}, demands)
    assert found.programs.keys() == {demands[0]}
    assert any("among 2 ranks ran the system's own algorithm" in remark for remark in found.remarks)


def test_nothing_fits(files):
    with pytest.raises(ConfigError, match=r"small.xml is for 64.0 KiB at most.*'builtin'"):
        choose_programs({"all-reduce": [files["small"]]}, [Demand("all-reduce", 4, 1 << 20)])
    with pytest.raises(ConfigError, match=r"small.xml needs a multiple of 4 bytes"):
        choose_programs({"all-reduce": [files["small"]]}, [Demand("all-reduce", 4, 1001)])
    with pytest.raises(ConfigError, match="the collectives have 4 ranks, and the programs are for 8"):
        choose_programs({"all-reduce": [files["eight"]]}, [Demand("all-reduce", 4, 1024)])


def test_a_size_that_the_executor_of_plans_refuses():
    files = {"all-reduce": [path_of("allreduce_packet")]}
    ranks = sample("allreduce_packet").num_ranks
    found = choose_programs(files, [Demand("all-reduce", ranks, size) for size in (1024, 1002)])
    assert len(found.programs) == 2
    assert any("only for multiples of 64 bytes" in remark for remark in found.remarks)
    assert len(choose_programs(files, [Demand("all-reduce", ranks, 1024)]).remarks) == 1


def test_builtin_program_is_the_fallback(files):
    found = choose_programs({"all-reduce": [files["small"], None]}, [Demand("all-reduce", 4, 1 << 20)])
    assert not found.programs


def test_another_collective(files):
    with pytest.raises(ConfigError, match="is a program for all-reduce, not for all-gather"):
        choose_programs({"all-gather": [files["small"]]}, [Demand("all-gather", 4, 1024)])


def test_a_wrong_program_is_not_simulated(files, tmp_path):
    text = files["small"].read_text().replace('type="rrc"', 'type="r"', 1)
    (tmp_path / "wrong.xml").write_text(text)
    with pytest.raises(ConfigError, match="the program is incorrect, so it is not simulated"):
        choose_programs({"all-reduce": [tmp_path / "wrong.xml"]}, [Demand("all-reduce", 4, 1024)])


def test_a_system_file_names_programs(files, tmp_path):
    (tmp_path / "system.json").write_text(
        '{"scheduling-policy": "LIFO", "all-reduce-implementation": ["ring"], '
        '"all-reduce-programs": ["small.xml", "builtin"]}'
    )
    chosen = {"system": tmp_path / "system.json", "network": NETWORK, "backend": "analytical-aware"}
    small = simulate(microbenchmark("all-reduce", 4, 1 << 14), **chosen)
    assert any("direct_all-reduce (small.xml)" in text for text in small.provenance["assumptions"])
    alone = simulate(microbenchmark("all-reduce", 4, 1 << 14), **chosen | {"backend": "analytical-unaware"})
    assert any("'packet' and 'ns3', messages share links" in text for text in alone.provenance["assumptions"])
    large = simulate(microbenchmark("all-reduce", 4, 1 << 20), **chosen)
    assert not any("small.xml" in text for text in large.provenance["assumptions"])


def test_the_content_of_programs_decides_the_hash(files):
    def experiment():
        chosen = {"algorithms": {"all-reduce": [str(files["small"])]}}
        return prepare(microbenchmark("all-reduce", 4, 1024), "default", NETWORK, **chosen)

    before = experiment().content_hash
    assert experiment().content_hash == before
    files["small"].write_text(files["small"].read_text().replace("Simple", "LL"))
    assert experiment().content_hash != before


def test_a_sweep_over_algorithms_keeps_its_files(files, tmp_path):
    study = Study.create(tmp_path / "study")
    microbenchmark("all-reduce", 4, 1 << 16).save(tmp_path / "w" / "job")
    study.import_workload(tmp_path / "w" / "job")
    points = [{"algorithm.all-reduce": name} for name in ("ring", str(files["small"]), "direct")]
    found = run_sweep(study, points, network=NETWORK, backend="analytical-aware", workers=0)
    assert found.failed == 0
    assert found.points["makespan_ns"].nunique() == 3
    with pytest.raises(ConfigError, match="did you mean"):
        run_sweep(study, [{"algorithm.all-reduc": "ring"}], network=NETWORK, workers=0)


def test_other_simulators_do_not_know_programs(files):
    system = replace(SystemConfig.preset("default"), all_reduce_programs=(str(files["small"]),))
    from chakrascope.runner.config import refuse_programs

    with pytest.raises(ConfigError, match=r"'all-reduce-programs' is an extension.*algorithm export"):
        refuse_programs(system, "astra-sim:analytical")


def test_a_system_with_programs_is_read_as_written(tmp_path):
    system = replace(SystemConfig.preset("default"), all_to_all_programs=("a.json", "builtin"))
    system.save(tmp_path / "system.json")
    assert SystemConfig.load(tmp_path / "system.json") == system


def test_a_job_takes_its_programs_along(files, tmp_path):
    system = replace(SystemConfig.preset("default"), all_reduce_programs=(str(files["small"]), "builtin"))
    copied = copied_into(system, tmp_path / "job")
    assert copied.all_reduce_programs == ("algorithms/all-reduce-0-small.xml", "builtin")
    assert (tmp_path / "job" / copied.all_reduce_programs[0]).read_bytes() == files["small"].read_bytes()


def test_plans_bring_their_own_sizes():
    demand = Demand("all-gather", 8, 1 << 20)
    with pytest.raises(ConfigError, match=r"is for 1.00 MiB at most"):
        choose_programs({"all-gather": [path_of("single_node_allgather_nvls_zero_copy_pkt")]}, [demand])


def test_check_names_programs_that_do_not_fit(files, tmp_path):
    from chakrascope.runner import check_setup
    from chakrascope.runner.analysis import communication_of

    study = Study.create(tmp_path / "study")
    microbenchmark("all-reduce", 4, 1 << 20).save(tmp_path / "w" / "job")
    workload = communication_of(study.import_workload(tmp_path / "w" / "job"))
    system = replace(SystemConfig.preset("default"), all_reduce_programs=(str(files["small"]),))
    found = [each for each in check_setup(NETWORK, system, workload, ["flow"]) if each.severity == "error"]
    assert [each.place for each in found] == ["programs"]
    assert "small.xml is for 64.0 KiB at most" in found[0].cause
    fitting = replace(system, all_reduce_programs=(str(files["large"]),))
    assert not [
        each for each in check_setup(NETWORK, fitting, workload, ["flow"]) if each.severity == "error"
    ]


def test_programs_by_name():
    small, large = Demand("all-reduce", 4, 1 << 12), Demand("all-reduce", 4, 1 << 25)
    found = choose_programs({"all-reduce": ["nccl"]}, [small, large]).programs
    assert found[small].name == "nccl_ring_LL_all-reduce_1"
    assert found[large].name == "nccl_nvls_Simple_all-reduce_16"
    # If a name does not support a case, this is not an error as long as another name does.
    gather = Demand("all-gather", 4, 1 << 12)
    found = choose_programs({"all-gather": ["nccl-tree:LL", "nccl-ring:LL128:3"]}, [gather]).programs
    assert found[gather].name == "nccl_ring_LL128_all-gather_3"
    with pytest.raises(ConfigError, match="NCCL's tree does not support all-gather"):
        choose_programs({"all-gather": ["nccl-tree:LL"]}, [gather])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nccl:b100", "did you mean 'h100'"),
        ("nccl-ring:LL:8:9", "has too many parts"),
        ("nccl-ring:LL:none", "must be a whole number"),
        ("all-pairs-gets", "did you mean 'all-pairs-get'"),
    ],
)
def test_names_that_mean_nothing(name, words):
    with pytest.raises(ConfigError, match=words):
        named_program(name, "all-reduce", 8)


def test_a_run_with_programs_by_name(tmp_path):
    workload = microbenchmark("all-reduce", 4, 3_000_000)
    preset = SystemConfig.preset("default")

    algorithms = {"all-reduce": ["nccl-ring:Simple:24"]}
    # 24 channels of 4 ranks do not divide the size: chunks differ by 16 bytes.
    result = simulate(workload, preset, NETWORK, backend="analytical-aware", algorithms=algorithms)
    # Each rank sends three quarters of the buffer twice.
    assert result.makespan_ns == pytest.approx(1.5 * 3_000_000 / (100 * (1 << 30) / 1e9), rel=0.05)
    system = replace(preset, all_reduce_programs=("nccl", "builtin"))
    assert copied_into(system, tmp_path).all_reduce_programs == ("nccl", "builtin")
    assert digests(system) == {"all-reduce-program-0": "nccl", "all-reduce-program-1": "builtin"}


# Programs read from files: their content, and errors that name the position.


def test_an_xml():
    program = sample("alltoall_a100_three_step")
    assert (program.language, program.collective, program.protocol) == ("msccl", "all-to-all", "Simple")
    assert (program.num_ranks, program.chunks, program.in_place) == (16, 16, False)
    first = program.ranks[0].thread_blocks[0].ops[0]
    assert first.name == "cpy"
    assert first.sources == (Region((0,), Buffer.INPUT, 8, 8),)
    assert first.destinations == (Region((0,), Buffer.SCRATCH, 0, 8),)
    receive = program.ranks[0].thread_blocks[1]
    assert (receive.send, receive.receive, receive.channel) == (-1, 1, 0)


def test_a_plan():
    program = sample("multi_node_allgather")
    assert (program.language, program.collective, program.num_ranks) == ("mscclpp", "all-gather", 8)
    put = next(op for op in program.ranks[5].thread_blocks[0].ops if op.name == "put")
    assert put.sources == (Region((5,), Buffer.OUTPUT, 5, 1),) * 3
    assert [region.ranks for region in put.destinations] == [(4,), (6,), (7,)]
    port = next(op for op in program.ranks[5].thread_blocks[0].ops if op.name == "pwsf")
    assert port.by_port
    assert (port.channels[0].type, port.channels[0].peer) == (ChannelType.PORT, 1)


def test_a_pipeline_and_a_switch():
    program = sample("allreduce_pipeline")
    pipeline = program.ranks[1].thread_blocks[1].ops[0]
    assert (pipeline.name, pipeline.unit_bytes, pipeline.pipeline_chunks) == ("pipeline", 1 << 19, 1)
    reduce = next(op for op in pipeline.body if op.name == "glres")
    assert reduce.place == "0.2"
    assert reduce.sources == (Region((0, 1, 2, 3), Buffer.SCRATCH, 1, 1),)
    assert program.ranks[1].semaphores == (0, 0, 32)


def test_chunks_are_in_whole_units_and_add_up():
    program = sample("multi_node_allgather")
    assert program.chunk_bytes(1000) == [128] * 7 + [104]
    assert sum(program.chunk_bytes(12345)) == 12345


def test_compressed_or_not(tmp_path):
    plain = tmp_path / "program.json"
    plain.write_bytes(gzip.decompress(path_of("allreduce_packet").read_bytes()))
    assert read_program(plain).ranks == sample("allreduce_packet").ranks


@pytest.mark.parametrize(
    "path", [path for path in SAMPLES if ".xml" in path.name], ids=lambda path: path.name
)
def test_an_xml_is_read_back_as_written(path):
    program = read_program(path)
    assert parse_program(write_msccl(program).encode(), program.source) == program


@pytest.mark.parametrize("algorithm", BUILTIN_PROGRAMS)
def test_the_built_in_algorithms_are_read_back_as_written(algorithm):
    for collective in BUILTIN_PROGRAMS[algorithm]:
        program = builtin_program(algorithm, collective, 8)
        read = parse_program(write_msccl(program).encode(), program.source)
        assert read == replace(program, message_chunks=1)  # as an executor runs a file


def test_the_copies_that_taccl_lists_are_ignored_as_the_executor_does():
    def change(root):
        for gpu in root:
            gpu.insert(0, gpu.makeelement("copy", {"i_off": "0", "o_off": "1"}))

    assert changed_xml("allgather_ring", change).ranks == sample("allgather_ring").ranks


def test_a_plan_is_no_xml():
    with pytest.raises(ConfigError, match="MSCCL XML has no steps"):
        write_msccl(sample("allreduce_packet"))


def test_an_interpreter_has_room_for_so_many_steps():
    with pytest.raises(ConfigError, match="rank 0: channel 0 has 63 thread blocks; the limit is 32"):
        write_msccl(builtin_program("direct", "all-gather", 64))


def refused(name, change):
    data = plan(name)
    change(data)
    with pytest.raises(ConfigError) as caught:
        parse_program(json.dumps(data).encode(), "plan.json")
    return caught.value.message


def test_an_unknown_op():
    def change(data):
        data["gpus"][1]["threadblocks"][0]["ops"][0]["name"] = "ppktt"

    message = refused("allreduce_packet", change)
    assert message.startswith("plan.json: rank 1, thread block 0, op 0: there is no op 'ppktt'")
    assert "ppkt" in message


def test_a_channel_that_does_not_pair():
    def change(data):
        gpu = data["gpus"][0]
        gpu["channels"][0]["connected_to"].append(1)
        gpu["threadblocks"][0]["channels"][0]["channel_ids"].append(3)
        gpu["threadblocks"][0]["ops"][1]["channel_ids"].append(3)

    message = refused("multi_node_allgather", change)
    assert "plan.json: rank 0, thread block 0, op 1 (rlxsignal): its memory channel 1 to rank 1" in message
    assert "does not pair" in message


def test_a_channel_without_signals_needs_no_other_end():
    def change(ranks):
        ranks[0]["channels"][0]["connected_to"].append(1)
        ranks[0]["threadblocks"][0]["channels"][0]["channel_ids"].append(3)

    program = changed_plan("multi_node_allgather", change)
    assert [end.number for end in program.ranks[0].channels if end.peer == 1] == [0, 1]
    assert prove(program).holds


def test_the_collective_of_mscclpps_unit_tests_has_no_specified_result():
    data = plan("multi_node_allgather") | {"collective": "test"}
    assert parse_program(json.dumps(data).encode(), "plan.json").collective == "custom"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda data: data["gpus"].pop(),
            "rank 3: 'connected_to' must be a list of whole numbers from 0 to 6",
        ),
        (lambda data: data.pop("gpus"), "'gpus' is missing"),
        (lambda data: data["gpus"][0].update(id=1), "each id must be there once"),
        (lambda data: data.update(collective="allreduces"), "did you mean 'allreduce'"),
        (lambda data: data.update(protocol="LL256"), "'LL256'. Allowed: LL, Simple"),
        (
            lambda data: data["gpus"][0]["threadblocks"][0]["ops"][1].update(channel_ids=[7]),
            "rank 0, thread block 0, op 1 (rlxsignal): it uses memory channel 7, but its thread block has 3",
        ),
        (
            lambda data: data["gpus"][0]["threadblocks"][0]["ops"][5]["dst_buff"][0].update(buffer_id=9),
            "op 5 (put): it uses remote buffer 9",
        ),
        (
            lambda data: data["gpus"][0]["threadblocks"][0]["ops"][5]["src_buff"][0].update(index=8),
            "op 5 (put): it reaches to chunk 8 of the output buffer of rank 0, which has 8 chunks",
        ),
        (
            lambda data: data["gpus"][0]["threadblocks"][0]["ops"][5]["src_buff"].pop(),
            "op 5 (put): it has 2 sources but 3 destinations",
        ),
        (lambda data: data["gpus"][0].update(threadblocks=7), "rank 0: 'threadblocks' must be a list"),
        (lambda data: data["gpus"][0].update(input_chunks="1"), "'input_chunks' must be a whole number"),
    ],
)
def test_a_damaged_plan(change, words):
    assert words in refused("multi_node_allgather", change)


@pytest.mark.parametrize(
    ("place", "attributes", "words"),
    [
        ("algo", {"ngpus": "9"}, "ngpus is 9, but the ranks are [0, 1, 2, 3, 4, 5, 6, 7]"),
        ("algo", {"proto": "LL129"}, "'proto' of <algo> cannot be 'LL129'"),
        ("algo", {"coll": "reduce"}, "'coll' of <algo> cannot be 'reduce'"),
        ("algo", {"coll": ""}, "'coll' of <algo> is missing"),
        ("algo", {"nchunksperloop": "0"}, "'nchunksperloop' of <algo> must be a whole number"),
        ("tb", {"send": "8"}, "rank 0, thread block 0, line 3: 'send' of <tb> must be a whole number"),
        ("tb", {"send": "0"}, "it exchanges with its own rank"),
        ("tb", {"send": "-1"}, "thread block 0, op 0 (s): it sends, but its thread block has no peer"),
        ("tb", {"recv": "-1"}, "op 1 (rcs): it receives, but its thread block has no peer"),
        ("step", {"type": "rss"}, "rank 0, thread block 0, op 0: 'type' of <step> cannot be 'rss'"),
        ("step", {"srcbuf": "x"}, "'srcbuf' must be i, o or s"),
        ("step", {"srcoff": "8"}, "op 0 (s): it reaches to chunk 8 of the output buffer of rank 0"),
        ("step", {"depid": "1", "deps": "0"}, "it waits for step 0 of thread block 1"),
        ("step", {"s": "1"}, "steps must be numbered"),
    ],
)
def test_a_damaged_xml(place, attributes, words):
    from xml.etree import ElementTree

    root = xml("allgather_ring")
    element = {"algo": root, "tb": root[0][0], "step": root[0][0][0]}[place]
    for key, value in attributes.items():
        element.set(key, value)
    with pytest.raises(ConfigError) as caught:
        parse_program(ElementTree.tostring(root), "program.xml")
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'<!DOCTYPE algo [<!ENTITY a "b">]><algo name="&a;"/>', "has no document type"),
        (b"<algo>", "this is not XML"),
        (b"<algo><step/></algo>", "<step> inside <algo> is not part"),
        (
            b"<algo></algo>\nTraceback: no such topology",
            "line 2: text follows </algo>, often an error of the program that wrote the file: "
            "'Traceback: no such topology'",
        ),
        (b'<?xml version="1.0" encoding="big5"?><algo/>', "this encoding is not supported"),
        (b'<?xml version="1.0" encoding="none"?><algo/>', "supported (unknown encoding: none); save it as"),
        (b"{", "this is not JSON"),
        (b"[1]", "neither an MSCCL program"),
        (b"{}", "'gpus' is missing"),
        (b"", "neither an MSCCL program"),
        (b'{"gpus": ' + b"[" * 100_000, "this is not JSON"),
    ],
)
def test_what_is_no_program(content, words):
    with pytest.raises(ConfigError, match=None) as caught:
        parse_program(content, "file")
    assert words in caught.value.message


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_program(tmp_path / "none.xml")
    (tmp_path / "cut.json.gz").write_bytes(path_of("allreduce_packet").read_bytes()[:100])
    with pytest.raises(ConfigError, match="cannot be read"):
        read_program(tmp_path / "cut.json.gz")


def test_too_large_unpacked_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "_MAX_BYTES", 1000)
    with pytest.raises(ConfigError, match="is larger than"):
        read_program(path_of("allreduce_packet"))
