"""Which program runs which collective: by kind, number of ranks and size."""

from __future__ import annotations

from dataclasses import replace

import pytest
from program_samples import path_of

from chakrascope.converter import microbenchmark
from chakrascope.errors import ConfigError
from chakrascope.runner import NetworkConfig, Study, SystemConfig, prepare, run_sweep, simulate
from chakrascope.runner.config import copied_into, digests
from chakrascope.runner.programs import (
    Demand,
    builtin_program,
    choose_programs,
    named_program,
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
    with pytest.raises(ConfigError, match="they are among 4 ranks, the programs for 8"):
        choose_programs({"all-reduce": [files["eight"]]}, [Demand("all-reduce", 4, 1024)])


def test_what_fits_nothing_may_be_built_in(files):
    found = choose_programs({"all-reduce": [files["small"], None]}, [Demand("all-reduce", 4, 1 << 20)])
    assert not found.programs


def test_another_collective(files):
    with pytest.raises(ConfigError, match="is a program for all-reduce, not for all-gather"):
        choose_programs({"all-gather": [files["small"]]}, [Demand("all-gather", 4, 1024)])


def test_a_wrong_program_is_not_simulated(files, tmp_path):
    text = files["small"].read_text().replace('type="rrc"', 'type="r"', 1)
    (tmp_path / "wrong.xml").write_text(text)
    with pytest.raises(ConfigError, match="the program is wrong, so it is not simulated"):
        choose_programs({"all-reduce": [tmp_path / "wrong.xml"]}, [Demand("all-reduce", 4, 1024)])


def test_a_system_file_names_programs(files, tmp_path):
    (tmp_path / "system.json").write_text(
        '{"scheduling-policy": "LIFO", "all-reduce-implementation": ["ring"], '
        '"all-reduce-programs": ["small.xml", "builtin"]}'
    )
    chosen = {"system": tmp_path / "system.json", "network": NETWORK, "backend": "analytical-aware"}
    small = simulate(microbenchmark("all-reduce", 4, 1 << 14), **chosen)
    assert any("direct_all-reduce (small.xml)" in text for text in small.provenance["assumptions"])
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

    with pytest.raises(ConfigError, match=r"'all-reduce-programs' is a key of ours.*algorithm export"):
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


def test_the_check_says_what_does_not_fit(files, tmp_path):
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
    # What a name does not do is no error while another one fits.
    gather = Demand("all-gather", 4, 1 << 12)
    found = choose_programs({"all-gather": ["nccl-tree:LL", "nccl-ring:LL128:3"]}, [gather]).programs
    assert found[gather].name == "nccl_ring_LL128_all-gather_3"
    with pytest.raises(ConfigError, match="NCCL's tree has no program here for all-gather"):
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
