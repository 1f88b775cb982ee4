"""Steps recorded from scripts, with the costs of a chip."""

from pathlib import Path

import pytest

from chakrascope.converter import NodeType
from chakrascope.errors import UsageError
from chakrascope.runner import NetworkConfig, script_workload
from chakrascope.runner.chips import find_chip
from chakrascope.runner.prediction import predict_recorded
from chakrascope.tracer import Recording

DATA = Path(__file__).parents[2] / "data" / "converter" / "rescaling"


def predicted(layers, chip="h100", network="hgx-h100-2x8"):
    recordings = [Recording.load(path) for path in sorted((DATA / f"layers_{layers}").iterdir())]
    workload = script_workload(recordings).scale_out(16)
    return predict_recorded(workload, find_chip(chip), NetworkConfig.find(network), software="fsdp")


def test_operators_take_what_their_class_costs_on_the_chip():
    prediction = predicted(4)
    chip = prediction.chip
    costs = chip.costs_of("fsdp")
    nodes = prediction.workload.graphs[0].nodes
    product = nodes[nodes["operator"] == "aten::mm"].iloc[0]
    peak, memory = chip.peak("bf16") / 1e9, chip.memory_bytes_per_s / 1e9
    work = product.num_ops / (peak * costs.share("gemm", "bf16"))
    assert product.duration_ns == max(1, round(work + product.tensor_size_bytes * costs.gemm_memory / memory))
    pointwise = nodes[nodes["operator"] == "aten::silu"].iloc[0]
    assert pointwise.duration_ns == max(1, round(pointwise.tensor_size_bytes / (memory * costs.pointwise)))
    assert (nodes["duration_ns"][nodes["type"] != NodeType.COMP] == 0).all()


def test_a_prediction_says_what_a_deeper_one_exceeds():
    one, other = predicted(4), predicted(7)
    assert one.step_ns < other.step_ns
    document = one.to_json()
    assert document["step_low_ns"] < document["step_ns"] < document["step_high_ns"]
    assert document["memory_bytes_per_rank"] == one.memory_bytes > 0
    assert document["fits"] is True
    assert "of the critical path" in document["bound_by"]
    assert any("by class" in line for line in document["assumptions"])


def test_the_network_needs_the_ranks_of_the_job():
    with pytest.raises(UsageError, match=r"recorded as 16 ranks, and the network 'hgx-h100-8' has 8"):
        predicted(4, network="hgx-h100-8")
