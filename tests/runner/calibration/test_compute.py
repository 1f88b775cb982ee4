"""Chips: their files, fits to operators, and captures scaled to other chips."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from command_line import run

from chakrascope.converter import Graph, NodeType, Workload
from chakrascope.errors import ConfigError
from chakrascope.runner import Study
from chakrascope.runner.calibration import calibrated_chip, compute_fits, operator_table, rescaled
from chakrascope.runner.calibration._compute import cost_class
from chakrascope.runner.chips import Chip, Costs, find_chip, list_chips, load_chip, save_chip

from .known import node

COSTS = {"x": Costs({"default": 0.9}, {"default": 0.3}, 0.7)}
CHIP = Chip("c", "A chip", "made up", {"fp32": 1e12}, 1 << 30, 1e11, "fp32", COSTS)
START_NS = 5_000


def captured(gemm_share=0.5, memory_share=0.8, *, sizes=range(8, 28, 2), repeats=4, noise=0.0, speed=1.0):
    """Return a captured workload on `CHIP`: matmuls and additions of these sizes."""
    random = np.random.default_rng(3)
    nodes = []
    for power in sizes:
        work = 1 << power
        for _ in range(repeats):
            for operator, ops, moved, pace in (
                ("aten::mm", 64 * work, work, 64e9 / (1e12 * gemm_share)),
                ("aten::add", work, work, 1e9 / (1e11 * memory_share)),
            ):
                took = (START_NS + work * pace) * random.lognormal(0, noise) / speed
                nodes.append(
                    node(
                        len(nodes), NodeType.COMP, duration_ns=round(took), num_ops=ops,
                        tensor_size_bytes=moved,
                    ) | {"operator": operator, "kind": "compute"}
                )  # fmt: skip
    graph = Graph.build(0, nodes, [])
    return Workload((graph,), np.zeros(1, dtype=np.int32), {}, {"measured_step_ns": {}})


def test_shares_of_the_peaks_come_back():
    fits = compute_fits(operator_table(captured(noise=0.02)))
    chip, notes = calibrated_chip(CHIP, fits, "a test")
    measured = chip.costs["measured"]
    assert measured.gemm["default"] == pytest.approx(0.5, rel=0.03)
    assert measured.pointwise == pytest.approx(0.8, rel=0.03)
    assert fits["gemm"].fit.latency_ns.value == pytest.approx(START_NS, rel=0.03)
    assert measured.fit.rows == 80
    assert measured.fit.median < 0.05
    assert measured.attention == {"default": 0.3}
    assert any("attention" in text for text in notes)


def test_too_small_operators_fit_no_chip():
    fits = compute_fits(operator_table(captured(sizes=range(2, 8, 2), noise=0.1)))
    with pytest.raises(ConfigError, match="large enough to determine a speed"):
        calibrated_chip(CHIP, fits, "a test")


def test_operators_above_the_peak_indicate_another_chip():
    with pytest.raises(ConfigError, match=r"Name the right --chip"):
        calibrated_chip(CHIP, compute_fits(operator_table(captured(gemm_share=3.0))), "a test")


def test_operators_are_carried_over_as_measured_there_or_by_their_class():
    slow, fast = captured(), captured(sizes=range(8, 26, 2), speed=4.0)
    changed, note = rescaled(replace(slow, metadata=slow.metadata | {"accounting": {"0": {}}}), fast, "fast")
    assert "accounting" not in changed.metadata
    before, after = (work.graphs[0].nodes["duration_ns"].to_numpy() for work in (slow, changed))
    assert before / after == pytest.approx(4.0, rel=0.03)
    assert "72 of 80 operators have times measured there" in note
    assert note in changed.metadata["assumptions"]
    assert slow.metadata.get("assumptions") is None


def test_captures_without_a_common_class_are_refused():
    few = captured(sizes=range(20, 22, 2))
    with pytest.raises(ConfigError, match="no common class of operators"):
        rescaled(captured(), few, "few")


def test_unmeasured_workload_has_no_operator_times():
    made = captured()
    with pytest.raises(ConfigError, match="does not come from a measurement"):
        operator_table(Workload(made.graphs, made.program_of_rank, {}, {}))


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("aten::addmm", "gemm"),
        ("aten::mv", "gemm"),
        ("aten::mkldnn_convolution", "gemm"),
        ("aten::convolution_backward", "gemm"),
        ("aten::_scaled_dot_product_flash_attention", "attention"),
        ("aten::gelu", "pointwise"),
        ("aten::addcmul_", "pointwise"),
    ],
)
def test_operators_have_a_class(operator, kind):
    assert cost_class(operator) == kind


def test_the_command_writes_a_chip_file_and_carries_a_capture_over(tmp_path, capsys):
    for name, speed in (("own", 1.0), ("other", 2.0)):
        Study.create(tmp_path / name).add_workload(captured(0.01, 0.01, speed=speed), "job")
    path = tmp_path / "chip.yml"
    assert not run("calibrate", tmp_path / "own", "--chip", "v100", "-o", path)
    assert "Not determined: attention" in capsys.readouterr().out
    assert load_chip(path).costs["measured"].gemm["default"] < 0.1
    assert load_chip(path).peak_flops == find_chip("v100").peak_flops
    assert not run("calibrate", tmp_path / "own", "--compute-from", tmp_path / "other")
    assert "have times measured there" in capsys.readouterr().out
    assert "job-on-other" in Study.open(tmp_path / "own").workloads()


def test_chips_and_hosts_do_not_go_together(tmp_path, capsys):
    Study.create(tmp_path / "own").add_workload(captured(), "job")
    assert run("calibrate", "--hosts", "loopback", "--chip", "v100") == 2
    assert run("calibrate", tmp_path / "own", "--compute-from", tmp_path / "own") == 2
    assert "another study" in " ".join(capsys.readouterr().err.split())


# Chip files: those that ship can be read and are written unchanged, and invalid files are errors.


@pytest.mark.parametrize("name", list_chips())
def test_shipped_chips_survive_being_written(name, tmp_path):
    chip = find_chip(name)
    save_chip(chip, tmp_path / f"{name}.yml")
    assert load_chip(tmp_path / f"{name}.yml") == chip
    assert chip.source
    assert chip.costs


def test_a_misspelt_chip_is_told_the_closest():
    with pytest.raises(ConfigError, match=r"h100"):
        find_chip("h10")


def changed(tmp_path: Path, **changes: object) -> Path:
    path = tmp_path / "mine.yml"
    save_chip(find_chip("h100"), path)
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes))
    return path


def test_a_chip_without_measured_steps_has_the_costs_of_another_one():
    chips = find_chip("b200"), find_chip("gb200")
    ours, measured = (chip.costs_of("megatron") for chip in chips)
    alone = {key: chips[0].products[key] / chips[1].products[key] for key in measured.gemm}
    assert {key: ours.gemm[key] / measured.gemm[key] for key in alone} == pytest.approx(alone)
    assert ours.fit.covers == measured.fit.covers
    assert (ours.fit.rows, ours.fit.families) == (0, measured.fit.families)
    assert "as on gb200" in ours.fit.data


def test_unmeasured_low_precisions_have_the_share_of_fp8_and_attention_in_half_precision():
    chip = find_chip("gb200")
    costs = chip.costs_of("megatron")
    assert costs.share("gemm", "nvfp4") < costs.share("gemm", "mxfp8") == costs.share("gemm", "fp8")
    assert chip.flops_per_s(costs, "gemm", "mxfp8") == chip.peak("mxfp8") * costs.share("gemm", "fp8")
    attention = {precision: chip.flops_per_s(costs, "attention", precision) for precision in chip.peak_flops}
    assert attention["fp8"] == attention["nvfp4"] == attention["bf16"]


GOOD = {"gemm": {"default": 0.5}, "attention": {"default": 0.5}, "pointwise": 0.5}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"peak_flop": {"bf16": 1e15}}, "there is no key 'peak_flop'"),
        ({"memory_bytes": "80GB"}, "'memory_bytes' must be a whole number"),
        ({"memory_bytes_per_s": -1.0}, "'memory_bytes_per_s'"),
        ({"precision": "fp4"}, "no peak for the precision 'fp4'"),
        ({"costs": {"mine": {"gemm": {"default": 1.5}, "attention": {}, "pointwise": 1}}}, "at most 1"),
        ({"costs": {"mine": {"gemm": {"default": 0.5}}}}, "is missing"),
        ({"costs": []}, "'costs' must be a mapping"),
        ({"like": ["h100"]}, "'like' must be a mapping"),
        ({"like": {"mine": "h10"}}, "h100"),
        ({"like": {"mine": "h100"}}, "no costs for the software 'mine'"),
        ({"costs": {"mine": {**GOOD, "grad_bytes": 3}}}, "'grad_bytes' must be 2 or 4"),
        ({"costs": {"mine": {**GOOD, "tensor_overlap": 1}}}, "'tensor_overlap' must be true or false"),
        ({"costs": {"mine": {**GOOD, "exposed": -0.1}}}, "'exposed'"),
        ({"costs": {"mine": {**GOOD, "fit": {"data": "mine", "covers": "experts"}}}}, "a list of words"),
    ],
)
def test_errors_of_a_measurement_file_are_named(changes, words, tmp_path):
    with pytest.raises(ConfigError) as caught:
        load_chip(changed(tmp_path, **changes))
    assert words in str(caught.value)


def test_missing_measurement_file_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot be read"):
        load_chip(tmp_path / "none.yml")
    (tmp_path / "list.yml").write_text("[1, 2]")
    with pytest.raises(ConfigError, match=r"must be a mapping"):
        load_chip(tmp_path / "list.yml")
