"""Layers that predictions by sizes do not model, by the key of a config.json that decides it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....errors import UsageError

__all__ = ["refuse_unmodelled"]

_LINEAR, _STATE_SPACE = "linear attention", "state-space layers"
_SPARSE, _CONVOLUTION = "sparse attention", "short convolutions"
_SHARED_KEYS = "keys and values that layers share"
_RESIDUAL = "a feed-forward part next to the experts"
_STATE_KEYS = ("mamba_d_state", "mamba_d_ssm", "mamba_d_conv", "mamba_expand", "ssm_state_size", "state_size",
               "ssm_cfg", "attn_layer_period", "hybrid_override_pattern", "hybrid_layer_ids")  # fmt: skip
# Any value but nothing, zero or false means that some layers are of this kind.
_KEYS = {
    "full_attention_interval": _LINEAR,
    "linear_attn_config": _LINEAR,
    "linear_num_value_heads": _LINEAR,
    "attention_hidden_size": _LINEAR,
    **dict.fromkeys(_STATE_KEYS, _STATE_SPACE),
    **dict.fromkeys(("index_topk", "index_topk_blocks", "index_n_heads", "num_landmarks"), _SPARSE),
    "compress_ratios": _SPARSE,
    "sparse_config": _SPARSE,
    "sparse_attention_config": _SPARSE,
    "blocksparse_block_size": _SPARSE,
    "attention_window": _SPARSE,
    "conv_L_cache": _CONVOLUTION,
    "conv_kernel_size": _CONVOLUTION,
    "num_kv_shared_layers": _SHARED_KEYS,
    "use_cla": _SHARED_KEYS,
    "cross_attention_layers": "layers that attend to an image",
    "block_configs": "layers of different sizes",
    "parallel_attn_mlp_res": _RESIDUAL,
    "residual_moe": _RESIDUAL,
    "hidden_size_per_layer_input": "embeddings of each layer",
    "altup_num_inputs": "several predictions of a layer",
    "zero_expert_num": "experts without computation",
    "num_hidden_groups": "weights that layers share",
    "H_cycles": "layers that run several times",
    "num_loops": "layers that run several times",
}
_ATTENTION = ("sliding_attention", "full_attention", "chunked_attention", "attention")
_EMBEDDINGS = ("embedding_size", "input_embedding_size", "word_embed_proj_dim")
_NEXT = "Next: predict its script with `chakrascope predict --script`."


def refuse_unmodelled(data: Mapping[str, Any], kind: str, misread: Mapping[str, str], file: Path) -> None:
    """Raise `UsageError` for a model whose layers are not all of attention and a feed-forward part.

    The message names the key that decides it. *misread* are model types whose sizes are not read right, with
    the reason.
    """
    reason = _reason(data)
    if not reason and kind in misread:
        reason = f"'model_type: {kind}' means {misread[kind]}"
    if reason:
        raise UsageError(
            f"{file}: {reason}. Predictions by sizes know one stack of layers of attention and a "
            f"feed-forward part. {_NEXT}"
        )


def _reason(data: Mapping[str, Any]) -> str:
    """Return the key and the value that decide that some layers are not modelled, ``""`` if none does."""
    if data.get("is_encoder_decoder"):
        return "'is_encoder_decoder: true' means an encoder and a decoder"
    for key in ("layer_types", "layers_block_type", "block_types"):
        types = data.get(key)
        if not isinstance(types, (list, tuple)):
            continue
        others = sorted({str(each) for each in types} - set(_ATTENTION))
        if others:
            return f"'{key}' has layers of another kind ({', '.join(others)})"
    for key, what in _KEYS.items():
        if data.get(key):
            return f"'{key}: {_short(data[key])}' means {what}"
    types = data.get("attn_type_list") or []
    if isinstance(types, list) and any(each != 1 for each in types):  # MiniMax: 0 is linear, 1 is softmax
        return f"'attn_type_list: {_short(types)}' means {_LINEAR}"
    if data.get("attention_type") == "block_sparse":
        return "'attention_type: block_sparse' means sparse attention"
    hidden = data.get("hidden_size")
    for key in _EMBEDDINGS:
        if data.get(key) and hidden is not None and data[key] != hidden:
            return (
                f"'{key}: {_short(data[key])}' means embeddings of another width than the layers ({hidden})"
            )
    return ""


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LENGTH else text[: _LENGTH - 3] + "..."


_LENGTH = 40
