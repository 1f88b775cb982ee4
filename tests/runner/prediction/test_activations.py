"""The activations of PyTorch's own operators: what autograd saves, counted on a small layer."""

from __future__ import annotations

import pytest

from chakrascope.runner.prediction.models import Plan, Transformer, rank_memory

torch = pytest.importorskip("torch")
functional = torch.nn.functional


def normalised(x, weight):
    single = x.float()
    return (single * torch.rsqrt(single.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * weight


def rotated(x, turns):
    """Return *x* turned in single precision, as Llama does by its positions."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(3).type_as(x)


def layer_output(x, weights, heads: int, kv_heads: int, turns):
    """Return the output of a layer of Llama, without a fused kernel but that of attention."""
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
def test_a_layer_keeps_what_autograd_saves(heads: int, kv_heads: int, ffn: int):
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
        saved[tensor.untyped_storage().data_ptr()] = tensor  # as an argument of *saved* its memory stays
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
