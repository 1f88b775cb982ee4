"""Chip files: what ships can be read, is written as it was read, and wrong files are told."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from chakrascope.errors import ConfigError
from chakrascope.runner.chips import find_chip, list_chips, load_chip, save_chip


@pytest.mark.parametrize("name", list_chips())
def test_shipped_chips_survive_being_written(name: str, tmp_path: Path):
    chip = find_chip(name)
    save_chip(chip, tmp_path / f"{name}.yml")
    assert load_chip(tmp_path / f"{name}.yml") == chip
    assert chip.source
    assert chip.costs


def test_a_misspelt_chip_is_told_the_closest():
    with pytest.raises(ConfigError, match=r"h100"):
        find_chip("h10")


def changed(tmp_path: Path, **changes: object) -> Path:
    data = yaml.safe_load((Path(find_chip.__code__.co_filename).parent / "h100.yml").read_text())
    data.update(changes)
    path = tmp_path / "mine.yml"
    path.write_text(yaml.safe_dump(data))
    return path


def test_a_chip_without_measured_steps_has_the_costs_of_another_one():
    ours, measured = find_chip("b200").costs_of("megatron"), find_chip("gb200").costs_of("megatron")
    assert (ours.gemm, ours.fit.covers) == (measured.gemm, measured.fit.covers)
    assert (ours.fit.rows, ours.fit.families) == (0, measured.fit.families)
    assert "as on gb200" in ours.fit.data


def test_low_precisions_have_the_share_of_fp8_and_attention_in_half_precision():
    chip = find_chip("gb200")
    costs = chip.costs_of("megatron")
    assert costs.share("gemm", "nvfp4") == costs.share("gemm", "mxfp8") == costs.share("gemm", "fp8")
    assert chip.flops_per_s(costs, "gemm", "nvfp4") == chip.peak("nvfp4") * costs.share("gemm", "fp8")
    attention = {precision: chip.flops_per_s(costs, "attention", precision) for precision in chip.peak_flops}
    assert attention["fp8"] == attention["nvfp4"] == attention["bf16"]


GOOD = {"gemm": {"default": 0.5}, "attention": {"default": 0.5}, "pointwise": 0.5}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"peak_flop": {"bf16": 1e15}}, "unknown key 'peak_flop'"),
        ({"memory_bytes": "80GB"}, "'memory_bytes' must be a number above 0"),
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
def test_what_is_wrong_with_a_file_is_told(changes: dict[str, object], words: str, tmp_path: Path):
    with pytest.raises(ConfigError) as caught:
        load_chip(changed(tmp_path, **changes))
    assert words in str(caught.value)


def test_a_file_that_is_none_is_told(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"cannot be read"):
        load_chip(tmp_path / "none.yml")
    (tmp_path / "list.yml").write_text("[1, 2]")
    with pytest.raises(ConfigError, match=r"must be a mapping"):
        load_chip(tmp_path / "list.yml")
