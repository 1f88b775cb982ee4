"""Chips from what operators took, and captures carried over to other chips."""

from __future__ import annotations

import numpy as np
import pytest
from command_line import run

from chakrascope.converter import Graph, NodeType, Workload
from chakrascope.errors import ConfigError
from chakrascope.runner import Study
from chakrascope.runner.calibration import calibrated_chip, compute_fits, operator_table, rescaled
from chakrascope.runner.calibration._compute import class_of
from chakrascope.runner.chips import Chip, Costs, find_chip, load_chip

from .known import node

COSTS = {"x": Costs({"default": 0.9}, {"default": 0.3}, 0.7)}
CHIP = Chip("c", "A chip", "made up", {"fp32": 1e12}, 1 << 30, 1e11, "fp32", COSTS)
START_NS = 5_000


def captured(gemm_share=0.5, memory_share=0.8, *, sizes=range(8, 28, 2), repeats=4, noise=0.0, speed=1.0):
    """Return a captured workload on `CHIP`: matrix products and additions of so many sizes."""
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


def test_operators_too_small_to_tell_a_speed_are_no_chip():
    fits = compute_fits(operator_table(captured(sizes=range(2, 8, 2), noise=0.1)))
    with pytest.raises(ConfigError, match="large enough to tell a speed"):
        calibrated_chip(CHIP, fits, "a test")


def test_a_chip_that_is_beaten_by_its_operators_is_another_one():
    with pytest.raises(ConfigError, match=r"Name the right --chip"):
        calibrated_chip(CHIP, compute_fits(operator_table(captured(gemm_share=3.0))), "a test")


def test_operators_are_carried_over_as_measured_there_or_by_their_class():
    slow, fast = captured(), captured(sizes=range(8, 26, 2), speed=4.0)
    changed, said = rescaled(slow, fast, "fast")
    before, after = (work.graphs[0].nodes["duration_ns"].to_numpy() for work in (slow, changed))
    assert before / after == pytest.approx(4.0, rel=0.03)
    assert "72 of 80 operators as measured there" in said
    assert said in changed.metadata["assumptions"]
    assert slow.metadata.get("assumptions") is None


def test_captures_without_a_common_class_are_refused():
    few = captured(sizes=range(20, 22, 2))
    with pytest.raises(ConfigError, match="no class of operators in common"):
        rescaled(captured(), few, "few")


def test_a_workload_that_nobody_measured_has_no_operator_times():
    made = captured()
    with pytest.raises(ConfigError, match="does not come from a measurement"):
        operator_table(Workload(made.graphs, made.program_of_rank, {}, {}))


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("aten::addmm", "gemm"),
        ("aten::mkldnn_convolution", "gemm"),
        ("aten::convolution_backward", "gemm"),
        ("aten::_scaled_dot_product_flash_attention", "attention"),
        ("aten::gelu", "pointwise"),
        ("aten::addcmul_", "pointwise"),
    ],
)
def test_operators_have_a_class(operator, kind):
    assert class_of(operator) == kind


def test_the_command_writes_a_chip_file_and_carries_a_capture_over(tmp_path, capsys):
    for name, speed in (("own", 1.0), ("other", 2.0)):
        Study.create(tmp_path / name).add_workload(captured(0.01, 0.01, speed=speed), "job")
    path = tmp_path / "chip.yml"
    assert not run("calibrate", tmp_path / "own", "--chip", "v100", "-o", path)
    assert "Not determined: attention" in capsys.readouterr().out
    assert load_chip(path).costs["measured"].gemm["default"] < 0.1
    assert load_chip(path).peak_flops == find_chip("v100").peak_flops
    assert not run("calibrate", tmp_path / "own", "--compute-from", tmp_path / "other")
    assert "as measured there" in capsys.readouterr().out
    assert "job-on-other" in Study.open(tmp_path / "own").workloads()


def test_chips_and_hosts_do_not_go_together(tmp_path, capsys):
    Study.create(tmp_path / "own").add_workload(captured(), "job")
    assert run("calibrate", "--hosts", "loopback", "--chip", "v100") == 2
    assert run("calibrate", tmp_path / "own", "--compute-from", tmp_path / "own") == 2
    assert "another study" in " ".join(capsys.readouterr().err.split())
