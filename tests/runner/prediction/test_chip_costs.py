"""Costs on chips without measured steps, collectives that matmuls overlap, and launches of experts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from command_line import script

from chakrascope.converter import CollectiveType
from chakrascope.errors import ConfigError
from chakrascope.runner import NetworkConfig
from chakrascope.runner.chips import chip_of_device, find_chip, list_chips, load_chip, save_chip
from chakrascope.runner.prediction import Setting, estimated_ns, parts_of, predict, uncertainty
from chakrascope.runner.prediction._predict import assumptions
from chakrascope.runner.prediction.models import Exchange, Operator, Plan, find_model, pass_over_layer

ROOT = Path(__file__).resolve().parents[3]
LLAMA = replace(find_model("llama3-70b"), layers=4)
MIXTRAL = replace(find_model("mixtral-8x7b"), layers=4)
HGX = NetworkConfig.preset("hgx-h100-8")


def setting(model: object, **options: object) -> Setting:
    plan = Plan(**{"zero": 1, "global_batch": 32, **options})  # type: ignore[arg-type]
    return Setting(model, plan, find_chip("h100"), HGX, "megatron")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for name in list_chips() if find_chip(name).like])
def test_matmul_times_follow_measured_matmuls(name: str):
    chip = find_chip(name)
    for software, other_name in chip.like.items():
        other, mine = find_chip(other_name), chip.costs_of(software)
        for precision, share in other.costs_of(software).gemm.items():
            ratio = 1.0
            if precision in chip.products and precision in other.products:
                ratio = chip.products[precision] / other.products[precision]
            assert mine.gemm[precision] == pytest.approx(min(1.0, share * ratio))
        for precision in chip.products.keys() - other.costs_of(software).gemm.keys():
            if "fp8" in other.products and "fp8" in other.costs_of(software).gemm:
                ratio = chip.products[precision] / other.products["fp8"]
                assert mine.gemm[precision] == pytest.approx(other.costs_of(software).gemm["fp8"] * ratio)


@pytest.mark.parametrize("name", [name for name in list_chips() if find_chip(name).like])
def test_attention_times_follow_measured_attention(name: str):
    chip = find_chip(name)
    for software, other_name in chip.like.items():
        other = find_chip(other_name)
        shares = other.costs_of(software).attention
        ratio = (chip.attention_share or 1.0) / (other.attention_share or 1.0)
        if not (chip.attention_share and other.attention_share):
            ratio = 1.0
        assert chip.costs_of(software).attention == pytest.approx(
            {key: min(1.0, share * ratio) for key, share in shares.items()}
        )


def test_attention_is_faster_on_blackwell_ultra():
    """Tables have attention of 8,192 tokens at 0.44 of the peak on GB200, and at 0.55 on GB300."""
    shares = [find_chip(name).costs_of("megatron").attention["default"] for name in ("gb200", "gb300")]
    assert 1.15 < shares[1] / shares[0] < 1.4


def test_nvfp4_reaches_a_smaller_share_of_its_peak_than_fp8():
    """Tables have 0.51 of the peak for NVFP4 on GB200 and on GB300, and 0.64 and 0.75 for FP8."""
    for name in ("gb200", "gb300"):
        shares = find_chip(name).costs_of("megatron").gemm
        assert 0.6 < shares["nvfp4"] / shares["fp8"] < 0.9


@pytest.mark.parametrize(
    ("device", "name", "precision", "flops", "gb_per_s"),
    [
        ("NVIDIA GeForce RTX 2080 Ti", "rtx-2080-ti", "fp16", 53.8, 616),
        ("GeForce RTX 2080 Ti", "rtx-2080-ti", "fp32", 13.4, 616),
        ("NVIDIA GeForce RTX 3090", "rtx-3090", "bf16", 71, 936),
        ("NVIDIA GeForce RTX 4090", "rtx-4090", "fp8", 330.3, 1008),
        ("NVIDIA A40", "a40", "tf32", 74.8, 696),
        ("NVIDIA L40S", "l40s", "bf16", 362.05, 864),
        ("AMD Instinct MI250X", "mi250x", "bf16", 191.5, 1600),
    ],
)
def test_devices_of_traces_have_chips(device: str, name: str, precision: str, flops: float, gb_per_s: float):
    chip = chip_of_device(device)
    assert chip is not None
    assert (chip.name, chip.memory_bytes_per_s) == (name, gb_per_s * 1e9)
    assert chip.peak(precision) == pytest.approx(flops * 1e12)


def test_no_two_chips_have_a_device_in_common():
    devices = [device for name in list_chips() for device in find_chip(name).devices]
    assert len(devices) == len(set(devices))


@pytest.mark.parametrize(
    ("bandwidth", "words"),
    [
        ((450.0, 50.0), ""),
        ((350.0, 50.0), ""),
        ((450.0, 12.5), "links with 12.5 GB/s between nodes instead of 50"),
        ((100.0, 12.5), "100 GB/s within a node instead of 450 and 12.5 GB/s between nodes instead of 50"),
        ((900.0, 50.0), "links with 900 GB/s within a node instead of 450"),
    ],
)
def test_links_other_than_those_of_usual_nodes_widen_the_interval(bandwidth: tuple[float, ...], words: str):
    usual = replace(setting(find_model("llama3-8b")), network=NetworkConfig.preset("hgx-h100-2x8"))
    gib_per_s = tuple(each * 1e9 / 2**30 for each in bandwidth)
    other = replace(usual, network=replace(usual.network, bandwidth=gib_per_s))
    low, high = uncertainty(usual)
    changed_low, changed_high = uncertainty(other)
    line = next((each for each in assumptions(other) if each.startswith("No measured step has")), "")
    assert words in line
    assert (changed_low < low and changed_high > high) == bool(words)


def test_a_chip_file_keeps_its_products(tmp_path: Path):
    chip = replace(find_chip("gb300"), products={"default": 0.5})
    save_chip(chip, tmp_path / "mine.yml")
    assert load_chip(tmp_path / "mine.yml").products == {"default": 0.5}
    text = (tmp_path / "mine.yml").read_text(encoding="utf-8").replace("default: 0.5", "default: 1.5")
    (tmp_path / "mine.yml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="products"):
        load_chip(tmp_path / "mine.yml")


def test_own_costs_take_precedence_over_scaled_costs(tmp_path: Path):
    chip = find_chip("gb200")
    save_chip(chip, tmp_path / "mine.yml")
    text = (tmp_path / "mine.yml").read_text(encoding="utf-8").replace("like:\n", "like:\n  megatron: h100\n")
    (tmp_path / "mine.yml").write_text(text, encoding="utf-8")
    mine = load_chip(tmp_path / "mine.yml")
    save_chip(mine, tmp_path / "saved.yml")
    saved = load_chip(tmp_path / "saved.yml")
    assert chip.costs["megatron"] == mine.costs["megatron"] == saved.costs["megatron"]


def test_large_whole_numbers_of_a_chip_are_rounded(tmp_path: Path):
    save_chip(find_chip("t4"), tmp_path / "t4.yml")
    text = (tmp_path / "t4.yml").read_text(encoding="utf-8")
    (tmp_path / "t4.yml").write_text(
        text.replace("65000000000000.0", "65000000000000000001"), encoding="utf-8"
    )
    assert load_chip(tmp_path / "t4.yml").peak("fp16") == 6.5e19


@pytest.mark.parametrize(("eager", "gathers"), [(False, 4), (True, 2)])
def test_a_rank_gathers_its_sharded_inputs_again_unless_they_are_stored_whole(eager: bool, gathers: int):
    """Megatron keeps a rank's part of the input of two matmuls; PyTorch keeps the gathered input."""
    plan = Plan(tp=4, sequence_parallel=True, eager=eager)
    backward = [item for item in pass_over_layer(LLAMA, plan, 0, backward=True) if isinstance(item, Exchange)]
    kinds = [item.kind for item in backward]
    assert kinds.count(CollectiveType.ALL_GATHER) == gathers
    assert kinds.count(CollectiveType.REDUCE_SCATTER) == 2


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_overlapped_collectives_cost_their_share(precision: str):
    base = setting(LLAMA, tp=4, dp=2, sequence_parallel=True, tensor_overlap=True, precision=precision)
    costs = base.costs
    times = []
    for exposed in (0.0, 1.0):
        chip = replace(base.chip, costs={"megatron": replace(costs, tensor_exposed=exposed)})
        other = replace(base, chip=chip)
        assert predict(other).step_ns == pytest.approx(estimated_ns(other), rel=0.03)
        times.append(estimated_ns(other))
    assert times[1] > times[0] * 1.02


def test_parts_of_overlapped_products_take_time():
    """Ten collectives overlap matmuls in a layer, and one overlaps those of the output."""
    base = setting(LLAMA, tp=4, dp=2, sequence_parallel=True, tensor_overlap=True)
    chip = replace(base.chip, costs={"megatron": replace(base.costs, part_ns=1e4)})
    other = replace(base, chip=chip)
    more = (10 * LLAMA.layers + 1) * base.plan.micro_batches * 4 * 1e4
    assert estimated_ns(other) - estimated_ns(base) == pytest.approx(more, rel=0.01)
    assert predict(other).step_ns - predict(base).step_ns == pytest.approx(more, rel=0.01)


@pytest.mark.parametrize(("precision", "launches"), [("bf16", 4), ("fp8", 11)])
@pytest.mark.parametrize("overlaps", [False, True])
def test_the_chip_waits_for_launches_of_experts(precision: str, launches: int, overlaps: bool):
    """It waits in forward passes only; with overlapping exchanges, for all launches of both passes."""
    plan = {"dp": 8, "ep": 1 + overlaps, "precision": precision, "overlap": False}
    base = setting(MIXTRAL, **plan, expert_overlap=overlaps)
    graphs = replace(base, plan=replace(base.plan, cuda_graphs=True))
    count = launches * MIXTRAL.experts / base.plan.ep
    count = 3 * (count + 45) if overlaps else count
    price = base.costs.host_ns / 15
    waited = count * MIXTRAL.layers * base.plan.micro_batches * price
    assert estimated_ns(base) - estimated_ns(graphs) == pytest.approx(waited, rel=0.01)
    assert predict(base).step_ns - predict(graphs).step_ns == pytest.approx(waited, rel=0.1)


def test_launches_bound_a_backward_pass_over_many_small_experts():
    """The chip waits for the experts of a forward pass, and for all launches of a backward pass."""
    model = replace(MIXTRAL, hidden=512, heads=8, ffn=256, expert_ffn=256, experts=64, sequence=512)
    base = setting(model, dp=8, overlap=False)
    price, of_experts = base.costs.host_ns / 15, 4 * 64
    launches = (of_experts + 2 * 15 * round((of_experts + 45) / 15)) * model.layers * base.plan.micro_batches
    for time in (estimated_ns(base), predict(base).step_ns):
        assert launches * price < time - base.costs.step_ns < launches * price * 1.35
    assert predict(base).step_ns == pytest.approx(estimated_ns(base), rel=0.08)


def test_clamped_inputs_of_activations_move_more_bytes():
    """Megatron-LM clamps two halves and joins them: 16 bytes of each number going forward, 32 going back."""
    plain = setting(MIXTRAL, dp=8, cuda_graphs=True, overlap=False)
    clamped = replace(plain, model=replace(MIXTRAL, clamped=True))
    numbers = MIXTRAL.sequence * MIXTRAL.top_k * MIXTRAL.expert_ffn * MIXTRAL.layers
    moved = 48 * numbers * plain.plan.micro_batches
    expected = moved / (plain.chip.memory_bytes_per_s / 1e9 * plain.costs.pointwise)
    assert estimated_ns(clamped) - estimated_ns(plain) == pytest.approx(expected, rel=1e-3)


def test_the_plain_dispatcher_pads_rows_of_experts_in_a_low_precision():
    def permuted(precision: str, deduplicates: bool) -> float:
        plan = Plan(dp=8, ep=8, precision=precision, deduplicate=deduplicates)
        items = pass_over_layer(MIXTRAL, plan, MIXTRAL.layers - 1)
        operators = [item for item in items if isinstance(item, Operator)]
        return next(item.moved_bytes for item in operators if item.name == "permute")

    rows = MIXTRAL.sequence * MIXTRAL.top_k * MIXTRAL.hidden * 2  # bytes
    assert permuted("fp8", False) - permuted("bf16", False) == 4 * rows
    assert permuted("fp8", True) == permuted("bf16", True)


def test_the_plain_dispatcher_of_experts_takes_longer():
    base = setting(MIXTRAL, dp=8, ep=8)
    plain = replace(base, plan=replace(base.plan, deduplicate=False))
    assert estimated_ns(plain) > estimated_ns(base) * 1.01


def test_overlapped_experts_cost_the_share_of_any_collective_and_not_that_of_tensor_parallelism():
    base = setting(MIXTRAL, dp=8, ep=8, cuda_graphs=True)
    overlapped = replace(base, plan=replace(base.plan, expert_overlap=True))
    for costs, cheaper in (({"tensor_exposed": 1.0}, True), ({"exposed": 1.0}, False)):
        chip = replace(base.chip, costs={"megatron": replace(base.costs, **costs)})  # type: ignore[arg-type]
        apart, together = (estimated_ns(replace(each, chip=chip)) for each in (base, overlapped))
        assert (together < apart * 0.99) == cheaper
        both = replace(overlapped, chip=chip)
        assert predict(both).step_ns == pytest.approx(estimated_ns(both), rel=0.03)


@pytest.mark.parametrize("deduplicate", [False, True])
def test_the_exchange_of_experts_overlaps_the_passes_of_another_micro_batch(deduplicate: bool):
    """A forward pass is shorter than its exchange between nodes here, and a backward pass is longer."""
    model = replace(MIXTRAL, experts=16)
    options = {"overlap": False, "cuda_graphs": True, "deduplicate": deduplicate}
    base = setting(model, dp=16, ep=16, global_batch=256, **options)
    costs = replace(base.costs, exposed=0.0)
    chip = replace(base.chip, costs={"megatron": costs})
    alone = replace(base, chip=chip, network=NetworkConfig.preset("hgx-h100-2x8"))
    overlapped = replace(alone, plan=replace(base.plan, expert_overlap=True))
    assert predict(overlapped).step_ns == pytest.approx(estimated_ns(overlapped), rel=0.03)
    assert predict(alone).step_ns == pytest.approx(estimated_ns(alone), rel=0.03)
    assert predict(overlapped).step_ns < predict(alone).step_ns * 0.9


def test_tokens_are_forwarded_within_nodes_while_they_are_sent_between_nodes():
    """DeepEP reaches the bandwidth between nodes, although it also forwards tokens within nodes."""
    model = replace(MIXTRAL, experts=16)
    base = setting(model, dp=16, ep=16, cuda_graphs=True, global_batch=16, frozen=True)
    network = NetworkConfig.preset("hgx-h100-2x8")

    def step_ns(within: float) -> float:
        link = replace(base.costs.within_node, share=within)
        costs = replace(base.costs, within_node=link, exposed=0.0)
        other = replace(base, network=network, chip=replace(base.chip, costs={"megatron": costs}))
        assert predict(other).step_ns == pytest.approx(estimated_ns(other), rel=0.03)
        return estimated_ns(other)

    # A faster link within nodes has no effect as long as the links between nodes are slower.
    assert step_ns(0.5) == pytest.approx(step_ns(1.0), rel=1e-3)


@pytest.mark.parametrize(
    ("name", "speed"), [("a100-80", 0.97), ("h100", 0.80), ("b200", 0.62), ("gb200", 0.60)]
)
def test_small_heads_are_slower_where_exponentials_are_scarce(name: str, speed: float):
    """Measured tables have 0.60 to 0.69 for heads of 64 on Blackwell, and 0.76 to 0.82 on H100."""
    chip = find_chip(name)
    prices = replace(setting(LLAMA), chip=chip).prices
    times = {
        size: sum(
            prices.operator_ns(item)
            for item in pass_over_layer(replace(LLAMA, head_size=size, heads=8192 // size), Plan(), 0)
            if isinstance(item, Operator) and item.kind == "flash"
        )
        for size in (64, 128, 256)
    }
    assert times[128] / times[64] == pytest.approx(speed, abs=0.01)
    assert times[256] == pytest.approx(times[128])


def test_latent_attention_multiplies_its_positions_too():
    latent = find_model("deepseek-v3")
    plain = replace(latent, rope_size=0)
    flops = [
        next(item.flops for item in pass_over_layer(model, Plan(), 0) if item.name == "attention")  # type: ignore[union-attr]
        for model in (latent, plain)
    ]
    assert flops[0] / flops[1] == 1 + 64 / 2 / 128


def test_biases_of_experts_take_time_and_are_a_part_of_a_job():
    """TEGroupedMLP._apply_bias moves 64 bytes of each number that an expert puts out."""
    plain = setting(MIXTRAL, dp=8, cuda_graphs=True, overlap=False)
    costs = replace(plain.costs, layer_ns=0.0)
    plain = replace(plain, chip=replace(plain.chip, costs={"megatron": costs}))
    biased = replace(plain, model=replace(MIXTRAL, expert_bias=True))
    numbers = MIXTRAL.sequence * MIXTRAL.top_k * MIXTRAL.hidden * MIXTRAL.layers * plain.plan.micro_batches
    expected = 64 * numbers / (plain.chip.memory_bytes_per_s / 1e9 * plain.costs.pointwise)
    assert estimated_ns(biased) - estimated_ns(plain) == pytest.approx(expected, rel=1e-3)
    assert "biases of experts" in set(parts_of(biased)) - set(parts_of(plain))


def test_a_new_fit_replaces_costs_of_another_chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fit_chips = script(ROOT / "scripts" / "fit_chips.py")
    shipped, chips = fit_chips.CHIPS, tmp_path / "chips.yml"
    chips.write_text(shipped.read_text())
    monkeypatch.setattr(fit_chips, "CHIPS", chips)
    chip = find_chip("b200")
    own = replace(chip.costs_of("megatron"), layer_ns=12345.0)
    fit_chips._save(chip, "megatron", own)
    blocks = yaml.safe_load(chips.read_text())
    (tmp_path / "b200.yml").write_text(yaml.safe_dump(blocks.pop("b200")))
    saved = load_chip(tmp_path / "b200.yml")
    assert saved.costs_of("megatron").layer_ns == 12345.0
    assert saved.like == {"fsdp": "h100"}
    assert blocks == {key: kept for key, kept in yaml.safe_load(shipped.read_text()).items() if key != "b200"}


@pytest.mark.parametrize("key", ["exposed", "tensor_exposed"])
def test_no_more_than_a_collective_is_exposed(tmp_path: Path, key: str):
    chip = find_chip("gb200")
    costs = replace(chip.costs_of("megatron"), **{key: 1.01})  # type: ignore[arg-type]
    save_chip(replace(chip, costs={"megatron": costs}), tmp_path / "mine.yml")
    with pytest.raises(ConfigError, match=f"'{key}' must be a number of 0 or more and at most 1"):
        load_chip(tmp_path / "mine.yml")
