"""The activations of PyTorch's own operators: what autograd saves, counted on a small layer."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from chakrascope.runner.prediction.models import Plan, Transformer, find_model, fullest_memory, rank_memory

torch = pytest.importorskip("torch")
functional = torch.nn.functional
HALF = torch.bfloat16


def normalised(x, weight):
    single = x.float()
    return (single * torch.rsqrt(single.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * weight


def rotated(x, turns):
    """Return *x* with rotary embeddings in single precision, as in Llama."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(3).type_as(x)


def layer_output(x, weights, heads: int, kv_heads: int, turns):
    """Return the output of a layer of Llama, with fused attention but no other fused kernel."""
    batch, tokens, hidden = x.shape
    size = hidden // heads
    inner = normalised(x, weights["norm"])
    query, key, value = (
        functional.linear(inner, weights[name]).view(batch, tokens, -1, size) for name in "qkv"
    )
    query, key = rotated(query, turns), rotated(key, turns)
    if heads > kv_heads:
        key, value = (part.repeat_interleave(heads // kv_heads, dim=2) for part in (key, value))
    parts = (part.transpose(1, 2) for part in (query, key, value))
    attention = functional.scaled_dot_product_attention(*parts, is_causal=True)
    x = x + functional.linear(attention.transpose(1, 2).reshape(batch, tokens, hidden), weights["o"])
    inner = normalised(x, weights["norm2"])
    gate = functional.silu(functional.linear(inner, weights["gate"]))
    return x + functional.linear(gate * functional.linear(inner, weights["up"]), weights["down"])


@pytest.mark.parametrize(("heads", "kv_heads", "ffn"), [(8, 8, 692), (8, 2, 896), (4, 4, 512)])
def test_layer_activations_match_autograd(heads: int, kv_heads: int, ffn: int):
    hidden, tokens = 256, 64
    kv_size = hidden // heads * kv_heads
    shapes = {
        "norm": (hidden,), "norm2": (hidden,), "q": (hidden, hidden), "k": (kv_size, hidden),
        "v": (kv_size, hidden), "o": (hidden, hidden), "gate": (ffn, hidden), "up": (ffn, hidden),
        "down": (hidden, ffn),
    }  # fmt: skip
    weights = {
        name: torch.randn(shape, dtype=torch.bfloat16, requires_grad=True) for name, shape in shapes.items()
    }
    turns = torch.polar(torch.ones(tokens, 1, hidden // heads // 2), torch.randn(1, 1, hidden // heads // 2))
    others = {tensor.untyped_storage().data_ptr() for tensor in (*weights.values(), turns)}
    saved = {}

    def record(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor  # as an argument, its memory would stay
        return tensor

    x = torch.randn(1, tokens, hidden, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        layer_output(x, weights, heads, kv_heads, turns)
    kept = sum(tensor.untyped_storage().nbytes() for place, tensor in saved.items() if place not in others)
    model = Transformer(
        name="layer", layers=1, hidden=hidden, heads=heads, kv_heads=kv_heads, ffn=ffn, vocab=64,
        sequence=tokens, gated=True,
    )  # fmt: skip
    memory = rank_memory(model, Plan(zero=3, eager=True), 0)
    # Sums of rows, of attention and the norms, are not counted: less than 1 %.
    assert memory.activations == pytest.approx(kept, rel=0.01)


def vgg16():
    """Return VGG16 as its paper describes it, with in-place activations."""
    blocks = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
    layers, inputs = [], 3
    for outputs, count in blocks:
        for _ in range(count):
            layers += [
                torch.nn.Conv2d(inputs, outputs, 3, padding=1, dtype=HALF),
                torch.nn.ReLU(inplace=True),
            ]
            inputs = outputs
        layers.append(torch.nn.MaxPool2d(2))
    layers.append(torch.nn.Flatten())
    for inputs in (512 * 49, 4096):
        layers += [torch.nn.Linear(inputs, 4096, dtype=HALF), torch.nn.ReLU(inplace=True), torch.nn.Dropout()]
    return torch.nn.Sequential(*layers)


def test_convolutions_keep_what_autograd_saves():
    from torch._subclasses.fake_tensor import FakeTensorMode

    images, kept = 4, {}

    def note(tensor):
        kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        alive.append(tensor)
        return tensor

    alive: list[object] = []
    with FakeTensorMode():
        model = vgg16()
        loaded = torch.randn(images, 3, 224, 224)
        weights = {weight.untyped_storage()._cdata for weight in model.parameters()}
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            model(loaded.to(HALF))
    saved = sum(size for storage, size in kept.items() if storage not in weights)
    plan = Plan(micro_batch=images, global_batch=images)
    predicted = rank_memory(find_model("vgg16"), plan, 0).activations
    assert predicted == pytest.approx(saved + loaded.untyped_storage().nbytes(), rel=0.001)


@pytest.mark.parametrize(("images", "mib"), [(8, 1131), (32, 2123), (128, 6092)])
def test_memory_of_sharded_convolutions_matches_pytorch(images: int, mib: int):
    # torch.distributed._tools.FSDPMemTracker 2.13, each layer sharded on 8 ranks, BF16 reduced in FP32, Adam.
    plan = Plan(dp=8, micro_batch=images, global_batch=8 * images, zero=3, eager=True)
    memory = rank_memory(find_model("vgg16"), plan, 0)
    gradients = memory.gradients * 0.85  # of layers that have no gradient yet at the peak
    assert (memory.total - memory.buffers - gradients) / 2**20 == pytest.approx(mib, rel=0.01)
    assert memory.buffers == 2 * (512 * 49 * 4096 + 4096 + 4096 * 4096 + 4096)


@pytest.mark.parametrize("model", ["llama3-8b", "gpt3-13b", "mixtral-8x7b", "deepseek-v3", "vit-l16"])
def test_more_recomputation_needs_no_more_memory(model: str):
    sizes, both = find_model(model), (False, True)
    options = itertools.product((1, 4), both, both, both, both, ("bf16", "fp8", "fp32"))
    for tp, sequence_parallel, fused, eager, frozen, precision in options:
        plan = Plan(
            tp=tp, sequence_parallel=sequence_parallel, fused_attention=fused, eager=eager, frozen=frozen,
            precision=precision,
        )  # fmt: skip
        modes = ("full", "selective", "none")
        needed = [fullest_memory(sizes, replace(plan, recompute=mode)).total for mode in modes]
        assert needed == sorted(needed), plan
