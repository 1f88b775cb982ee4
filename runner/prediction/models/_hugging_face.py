"""Read the sizes of a model from a Hugging Face config.json, and report its unsupported parts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ....errors import UsageError

_LINEAR, _STATE_SPACE = "linear attention", "state-space layers"
_SPARSE, _CONVOLUTION = "sparse attention", "short convolutions"
_SHARED_KEYS = "keys and values that layers share"
_RESIDUAL = "a feed-forward part next to the experts"
_STATE_KEYS = ("mamba_d_state", "mamba_d_ssm", "mamba_d_conv", "mamba_expand", "ssm_state_size", "state_size",
               "ssm_cfg", "attn_layer_period", "hybrid_override_pattern", "hybrid_layer_ids")  # fmt: skip
_LOOPS = ("num_loops", "loop_num", "total_ut_steps", "mean_recurrence")  # 1: each layer runs once
# Any value of these keys except null, zero, false or an empty list or object means that some layers are of
# the given kind.
_REFUSED_KEYS = {
    "full_attention_interval": _LINEAR,
    "linear_attn_config": _LINEAR,
    **dict.fromkeys(("linear_num_value_heads", "attention_hidden_size", "layer_group_size"), _LINEAR),
    **dict.fromkeys(("attn_mode", "expand_v", "qk_dim_factor"), _LINEAR),
    **dict.fromkeys(_STATE_KEYS, _STATE_SPACE),
    **dict.fromkeys(("index_topk", "index_topk_blocks", "index_n_heads", "num_landmarks"), _SPARSE),
    "compress_ratios": _SPARSE,
    "sparse_config": _SPARSE,
    "sparse_attention_config": _SPARSE,
    "blocksparse_block_size": _SPARSE,
    "attention_window": _SPARSE,
    **dict.fromkeys(("conv_L_cache", "conv_kernel_size", "conv_window"), _CONVOLUTION),
    **dict.fromkeys(("num_conv_pos_embeddings", "hyena_layer_idxs"), "convolutions"),
    "depths": "layers of different sizes",
    **dict.fromkeys(("num_kv_shared_layers", "num_kv_reuse_layers", "num_key_value_layers"), _SHARED_KEYS),
    "use_cla": _SHARED_KEYS,
    "n_shared_head": "fewer heads of keys and values than queries",
    **dict.fromkeys(("num_values", "mova_num_experts"), "experts of values"),
    "hybrid_layers_types_block": "blocks of layers with and without a window",
    "cross_attention_layers": "layers that attend to an image",
    "block_configs": "layers of different sizes",
    "attention_other_setting": "attention of different sizes",
    "moe_layers_enum": "a list of the layers with experts",
    "parallel_attn_mlp_res": _RESIDUAL,
    "parallel_ffn_intermediate_size": "a second feed-forward part",
    "residual_moe": _RESIDUAL,
    "hidden_size_per_layer_input": "embeddings of each layer",
    "altup_num_inputs": "several predictions of a layer",
    "zero_expert_num": "experts without computation",
    **dict.fromkeys(("num_hidden_groups", "layer_sharing"), "weights that layers share"),
    **dict.fromkeys(("H_cycles", *_LOOPS), "layers that run several times"),
    "position_encoding_2d": "positions in two dimensions",
}
_UNUSED: tuple[Any, ...] = (None, False, 0, "", [], {})
_HYBRID = "granitemoehybrid"  # Granite 4.0 Micro and 350M have attention layers only
_ELECTRA = "electra"  # its base and large models have embeddings as wide as the layers
_ATTENTION = ("sliding_attention", "full_attention", "chunked_attention", "attention")
_EMBEDDINGS = ("embedding_size", "input_embedding_size", "word_embed_proj_dim")
_NEXT = "Next: predict its script with `chakrascope predict --script`."


def refuse_unmodelled(data: Mapping[str, Any], kind: str, misread: Mapping[str, str], file: Path) -> None:
    """Raise `UsageError` for a model with layers other than attention and a feed-forward part.

    The message names the key that shows the unsupported layer. *misread* maps model types with sizes that
    would be misread to the reasons.
    """
    reason = _reason(data)
    decided = (kind == _HYBRID and _has_attention_only(data)) or (
        kind == _ELECTRA and bool(data.get("embedding_size"))
    )
    if not reason and kind in misread and not decided:
        reason = f"'model_type: {kind}' means {misread[kind]}"
    if reason:
        raise UsageError(
            f"{file}: {reason}. Predictions by sizes support one stack of layers of attention and a "
            f"feed-forward part. {_NEXT}"
        )


def _reason(data: Mapping[str, Any]) -> str:
    """Return the key and the value that show unsupported layers, or ``""`` without unsupported layers."""
    if data.get("is_encoder_decoder"):
        return "'is_encoder_decoder: true' means an encoder and a decoder"
    for key in ("layer_types", "layers_block_type", "block_types", "mixer_types"):
        types = data.get(key)
        if not isinstance(types, (list, tuple)):
            continue
        others = sorted({str(each) for each in types} - set(_ATTENTION))
        if others:
            return f"'{key}' has layers of another kind ({', '.join(others)})"
    unused = _STATE_KEYS if _has_attention_only(data) else ()
    for key, what in _REFUSED_KEYS.items():
        is_single = key in _LOOPS and data.get(key) == 1
        is_mamba = key == "ssm_cfg" and data.get(key) == {}  # an empty object means Mamba's defaults
        if is_mamba or (data.get(key) not in _UNUSED and key not in unused and not is_single):
            return f"'{key}: {_short(data[key])}' means {what}"
    types = data.get("attn_type_list") or []
    if isinstance(types, list) and any(each != 1 for each in types):  # MiniMax: 0 is linear, 1 is softmax
        return f"'attn_type_list: {_short(types)}' means {_LINEAR}"
    if data.get("attention_type") == "block_sparse":
        return "'attention_type: block_sparse' means sparse attention"
    hidden = next((data[key] for key in _KEYS["hidden"] if data.get(key) is not None), None)
    for key in _EMBEDDINGS:
        size = data.get(key)
        if size and hidden is not None and size != hidden and not _is_vocabulary(size, data):
            return f"'{key}: {_short(size)}' means embeddings of another width than the layers ({hidden})"
    return ""


def _is_vocabulary(size: Any, data: Mapping[str, Any]) -> bool:
    """Return whether *size* is the vocabulary, which may be padded (OLMo 7B: 50304 for 50280 tokens)."""
    vocab = data.get("vocab_size")
    return isinstance(size, int) and isinstance(vocab, int) and 0 <= size - vocab < _PADDED


def _has_attention_only(data: Mapping[str, Any]) -> bool:
    """Return whether a hybrid model lists its layers, and all listed layers are attention."""
    types = data.get("layer_types")
    return isinstance(types, list) and bool(types) and set(map(str, types)) <= {*_ATTENTION}


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LENGTH else text[: _LENGTH - 3] + "..."


_LENGTH = 40
_PADDED = 128  # vocabularies are padded to a multiple of this


_KEYS = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "n_embed", "dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": (
        "num_key_value_heads",
        "kv_n_heads",
        "n_kv_heads",
        "n_head_kv",
        "num_kv_heads",
        "multi_query_group_num",
        "num_query_groups",
        "num_attention_groups",
        "num_key_value_heads_per_layer",
    ),
    "ffn": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "hidden_dim", "mlp_hidden_size"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "sequence": (
        "max_position_embeddings",
        "n_positions",
        "max_seq_len",
        "seq_length",
        "n_ctx",
        "max_sequence_length",
        "model_max_length",
    ),
    "head_size": ("head_dim", "v_head_dim", "attention_v_dim"),
    "experts": (
        "num_local_experts",
        "n_routed_experts",
        "num_routed_experts",
        "num_experts",
        "moe_num_experts",
        "moe_num_primary_experts",
    ),
    "top_k": (
        "num_experts_per_tok",
        "experts_per_token",
        "num_experts_per_token",
        "moe_k",
        "moe_top_k",
        "moe_topk",
        "moe_num_active_primary_experts",
    ),
    "expert_ffn": ("moe_intermediate_size", "moe_ffn_hidden_size"),
    "shared_experts": (
        "n_shared_experts",
        "num_shared_experts",
        "num_shared_expert",
        "moe_num_shared_experts",
    ),
    "dense_layers": ("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers"),
    "expert_every": ("interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq"),
    "expert_groups": ("n_group",),
    "top_groups": ("topk_group",),
    "kv_rank": ("kv_lora_rank", "attention_kv_lora_dim"),
    "query_rank": ("q_lora_rank", "attention_q_lora_dim"),
    "rope_size": ("qk_rope_head_dim", "attention_qk_rope_dim"),
    "tied": ("tie_word_embeddings", "weight_tying"),
}
_OF_LAYERS = ("moe_layer_freq",)  # keys with a list of one value per layer
_TEXT_PARTS = ("text_config", "language_config", "llm_config")
_NEEDED = ("layers", "hidden", "heads", "vocab", "sequence")
_OF_EXPERTS = (
    "experts", "top_k", "expert_ffn", "shared_experts", "dense_layers", "expert_every", "expert_groups",
    "top_groups",
)  # fmt: skip
_SHARED_WIDTHS = ("shared_expert_intermediate_size", "shared_intermediate_size")
# Model types with three matrices per feed-forward part, regardless of the activation function.
_GATED = (
    "llama", "mistral", "mixtral", "qwen", "deepseek", "olmo", "phi3", "modernbert", "chatglm",
    "dbrx", "bitnet", "internlm", "baichuan", "granitemoehybrid", "step3", "hf_olmo", "molmo", "llada",
    "grok", "telechat", "motif", "smallthinker", "spark",
)  # fmt: skip
_GATES = ("silu", "swish", "swiglu", "geglu", "reglu")
_ACTIVATIONS = ("hidden_act", "activation_function", "feed_forward_type")
_BOTH_HALVES = ("qwen", "molmo", "hf_olmo")  # the width of their feed-forward parts includes the gate
_LEARNED_POSITIONS = (
    "gpt2",
    "gpt-sw3",
    "gpt_bigcode",
    "opt",
    "bert",
    "roberta",
    "xlm-roberta",
    "distilbert",
    "electra",
)
_ENCODERS = (
    "bert", "roberta", "xlm-roberta", "distilbert", "electra", "deberta", "modernbert", "camembert", "esm",
    "llada", "dream",
)  # fmt: skip
_COMPUTED_POSITIONS = ("alibi", "rotary", "rope")
_IMAGES = ("vit", "deit", "dinov2", "dinov3")
# Model types without defaults in the table. The sizes that are read for these types agree with published
# parameter counts.
_UNTIED = (
    "chatglm", "internlm", "internlm2", "baichuan", "qwen", "deepseek", "yi", "hunyuan", "hunyuan_v1_moe",
    "dbrx", "nemotron", "kimi_k2", "bailing_moe", "dots1",
)  # fmt: skip
_FALCON = ("falcon", "refinedweb")
_TIED = ("bloom", "minicpm", "granitemoehybrid")
_NO_SIZES = (
    "window", "token", "rope", "rotary", "norm", "dropout", "pdrop", "eps", "scal", "init", "coef", "index",
    "_id", "quant", "cache", "interval", "parallel", "dtype", "temperature", "limit", "offset", "length",
    "architectures", "vision", "image", "audio", "max_", "pretraining_tp", "ep_size", "group", "labels",
    "layer_types", "mask", "version", "bias", "theta", "loss", "logit", "alibi", "base",
)  # fmt: skip
_FURTHER_TOKENS = ("num_nextn_predict_layers", "num_mtp_modules")
_RATIOS = ("expansion_ratio", "mlp_ratio")
_PATTERNS = ("sliding_window_pattern", "global_attn_every_n_layers", "no_rope_layer_interval")


def of_hugging_face(data: Mapping[str, Any], file: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the model sizes in a config.json, and remarks on unsupported parts.

    For a model with several parts, the sizes of its text part are returned. Unsupported layers and missing
    sizes raise `UsageError`.
    """
    remarks: list[str] = []
    given = _text_part(data, remarks)
    parts = ("ffn_config", "attn_config", "moe_config")
    nested = [given[key] for key in parts if isinstance(given.get(key), Mapping)]
    given = {key: value for part in (*nested, given) for key, value in part.items()}
    kind = str(given.get("model_type", "")).lower()
    usual = _defaults()
    data = {**usual["types"].get(kind, {}), **given}
    refuse_unmodelled(data, kind, usual["misread"], file)
    found: dict[str, Any] = {}
    for ours, theirs in _KEYS.items():
        # Keys in the file have precedence over defaults, which may have another name for the same size.
        values = [(key, part[key]) for part in (given, data) for key in theirs if part.get(key) is not None]
        if values:
            found[ours] = _one_value(*values[0], file)
    _of_kind(found, data, kind, remarks)
    _attention(found, data, kind, remarks)
    if kind.startswith(_IMAGES):
        _image(found, data, remarks)
    _feed_forward(found, data, kind, remarks, file)
    missing = next((key for key in _NEEDED if key not in found), None)
    if missing is not None:
        raise UsageError(
            f"{file}: there is no '{_KEYS[missing][0]}', which the sizes of a model need. Next: add it, or "
            "write the sizes into a YAML."
        )
    remarks += _left_out(data)
    name = str(data.get("_name_or_path") or file.parent.name or file.stem)
    return {"name": name, **found}, remarks


@cache
def _defaults() -> dict[str, Any]:
    """Return the output of `scripts/config_defaults.py`: default values by type of configuration.

    ``types`` lists the model types with sizes that are read correctly. ``misread`` maps each model type with
    sizes that would be misread to the reason. ``text_parts`` maps other types to the type of their text part.
    """
    file = Path(__file__).with_name("config_defaults.json")
    loaded: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return loaded


def _text_part(data: Mapping[str, Any], remarks: list[str]) -> dict[str, Any]:
    """Return the configuration of the text part of a model with several parts."""
    thinker = data.get("thinker_config")  # key in models that also generate speech
    data = thinker if isinstance(thinker, Mapping) else data
    kind = str(data.get("model_type", "")).lower()
    key = next((key for key in _TEXT_PARTS if isinstance(data.get(key), Mapping)), "text_config")
    part = data.get(key)
    if not isinstance(part, Mapping) and kind not in _defaults()["text_parts"]:
        return dict(data)
    others = [key for key in ("vision_config", "audio_config") if data.get(key)]
    if others:
        remarks.append(f"Only the text part of the model is predicted, without {' and '.join(others)}")
    usual = _defaults()["text_parts"].get(kind, kind)
    return {**data, "model_type": usual, **(part if isinstance(part, Mapping) else {})}


def _one_value(key: str, value: Any, file: Path) -> Any:
    """Return *value*, or its common element if it is a list with one element per layer."""
    if isinstance(value, str):
        what = "true or false" if key in _KEYS["tied"] else "a number" if key in _RATIOS else "a whole number"
        raise UsageError(f"{file}: '{key}' must be {what}, not {value!r}.")
    if not isinstance(value, list) or key in _OF_LAYERS:
        return value
    if not value or any(each != value[0] for each in value):
        raise UsageError(
            f"{file}: '{key}' differs between layers, but predictions by sizes need one size for all. Next: "
            "predict its script with `chakrascope predict --script`."
        )
    return value[0]


def _of_kind(found: dict[str, Any], data: Mapping[str, Any], kind: str, remarks: list[str]) -> None:
    """Add the default values for the model type *kind* to the sizes *found*."""
    activations = [data.get(key) for key in _ACTIVATIONS]
    is_gated = data.get("use_gated_mlp")
    if not isinstance(is_gated, bool):
        is_gated = kind.startswith(_GATED) or "gemma" in kind or any(each in _GATES for each in activations)
        # Models with RMSNorm follow Llama; if the activation function is not given, it is a gated one.
        is_gated |= "rms_norm_eps" in data and not any(activations)
    found["gated"] = is_gated
    found["learned_positions"] = kind.startswith(_LEARNED_POSITIONS) or kind == "gpt_neo"
    if data.get("position_embedding_type") in _COMPUTED_POSITIONS:
        found["learned_positions"] = False
    if kind == "mpt":
        found["learned_positions"] = not data.get("alibi")
    if kind.startswith(_ENCODERS) and not data.get("is_decoder"):
        found["causal"] = False
    if kind in _defaults()["types"]:
        return
    found.setdefault("tied", kind not in _UNTIED)
    if kind not in _UNTIED + _TIED:
        unread = ", ".join(_unread_sizes(data))
        remarks.append(
            f"The model type '{kind}' is unknown; its layers are assumed to be attention and a feed-forward "
            f"part of {3 if found['gated'] else 2} matrices{unread and f', without the keys {unread}'}"
        )


def _unread_sizes(data: Mapping[str, Any]) -> list[str]:
    """Return the keys of a config.json that are not read, but may contain sizes."""
    read = {key for keys in _KEYS.values() for key in keys}
    read |= {*_SHARED_WIDTHS, *_PATTERNS, *_EMBEDDINGS, *_RATIOS, "qk_nope_head_dim", "patch_size"}
    read |= {"mlp_only_layers", "hybrid_layer_pattern", "dense_intermediate_size"}
    return [
        key
        for key, value in data.items()
        if key not in read
        and isinstance(value, (int, list))
        and not isinstance(value, bool)
        and value
        and not any(word in key for word in _NO_SIZES)
    ]


def _attention(found: dict[str, Any], data: Mapping[str, Any], kind: str, remarks: list[str]) -> None:
    """Add shared heads, latent attention and attention windows to the sizes *found*."""
    if kind.startswith(_FALCON):
        groups = data.get("num_kv_heads" if data.get("new_decoder_architecture") else "n_head_kv")
        found["kv_heads"] = groups or (1 if data.get("multi_query", True) else found.get("heads", 0))
    elif kind.startswith("gpt_bigcode") or "multiquery" in str(data.get("attention_head_type")):
        found["kv_heads"] = 1 if data.get("multi_query", True) else found.get("heads", 0)
    if found.get("kv_rank") and data.get("v_head_dim"):
        found["head_size"] = data["v_head_dim"]  # with a 'kv_rank', 'head_dim' is the size of positions
        if data.get("qk_nope_head_dim") not in (None, data["v_head_dim"]):
            remarks.append("Heads of queries and keys are as large as those of values")
    window = data.get("sliding_window", data.get("local_attention"))
    if isinstance(window, int) and window > 0 and data.get("use_sliding_window") is not False:
        found["window"] = window
        found["full_every"] = _full_every(data, kind)
        if found["full_every"] == 1:
            found["window"] = found["full_every"] = 0
    if kind == "gpt_neo":
        found |= _alternating(data, remarks)
    chunk = data.get("attention_chunk_size", 8192 if kind.startswith("llama4") else None)
    if isinstance(chunk, int) and chunk > 0 and not found.get("window"):
        found |= {"chunk": chunk, "full_every": _full_every(data, kind), "window": 0}
        if found["full_every"] == 1:
            found["chunk"] = found["full_every"] = 0


def _alternating(data: Mapping[str, Any], remarks: list[str]) -> dict[str, int]:
    """Return the attention windows of GPT-Neo, in which by default every second layer has a window."""
    types = data.get("attention_types") or [[["global", "local"], 1]]
    try:
        kinds = Counter(kind for names, times in types for kind in list(names) * times)
    except (TypeError, ValueError):
        remarks.append("The value of attention_types is not supported; tokens attend to the whole sequence")
        return {}
    if not kinds["local"]:
        return {}
    full = kinds["global"]
    window = data.get("window_size", 256)
    return {"window": window, "full_every": round(kinds.total() / full) if full else 0}


def _full_every(data: Mapping[str, Any], kind: str) -> int:
    """Return n if every n-th layer attends to the whole sequence, or 0 if no layer does."""
    types = data.get("layer_types")
    if isinstance(types, Sequence) and types:
        full = Counter(types)["full_attention"]
        return round(len(types) / full) if full else 0
    # In Llama 4, layers without positions attend to all tokens.
    windowed = data.get("no_rope_layers" if kind.startswith("llama4") else "hybrid_layer_pattern")
    if isinstance(windowed, Sequence) and windowed:
        full = Counter(windowed)[0]
        return round(len(windowed) / full) if full else 0
    pattern = next((data[key] for key in _PATTERNS if data.get(key)), 0)
    return pattern if isinstance(pattern, int) else 0


def _image(found: dict[str, Any], data: Mapping[str, Any], remarks: list[str]) -> None:
    """Add the tokens of an image and the classes of a vision transformer to the sizes *found*."""
    size, patch = data.get("image_size", 224), data.get("patch_size", 16)
    if isinstance(size, int) and isinstance(patch, int) and patch > 0:
        found["sequence"] = (size // patch) ** 2 + 1
    classes = data.get("id2label") or data.get("num_labels")
    found["classes"] = len(classes) if isinstance(classes, Mapping) else classes or 1000
    if not classes:
        remarks.append("The classifier has 1000 classes")
    found |= {"vocab": 0, "causal": False, "learned_positions": False}


def _feed_forward(
    found: dict[str, Any], data: Mapping[str, Any], kind: str, remarks: list[str], file: Path
) -> None:
    """Add the widths of feed-forward parts and of experts to the sizes *found*."""
    key = next((key for key in _RATIOS if data.get(key) is not None), None)
    if key and "ffn" not in found and isinstance(found.get("hidden"), int):
        found["ffn"] = round(_ratio(key, data[key], file) * found["hidden"])
    if "ffn" not in found and found["gated"]:
        remarks.append(
            "No intermediate_size is given; feed-forward parts are four times the hidden size wide"
        )
    if kind in _BOTH_HALVES and isinstance(found.get("ffn"), int):
        found["ffn"] //= 2
    if found.get("experts", 0) in (0, 1):  # the number of experts is a list if layers differ
        for key in _OF_EXPERTS:
            found.pop(key, None)
        return
    if "intermediate_size_mlp" in data:  # in Llama 4, "intermediate_size" is the size of experts
        found |= {"expert_ffn": found.get("ffn"), "ffn": data["intermediate_size_mlp"], "shared_experts": 1}
    if "dense_intermediate_size" in data:
        found.setdefault("expert_ffn", found.get("ffn"))
        found["ffn"] = data["dense_intermediate_size"]
    if "expert_ffn" not in found and "ffn" in found:
        found["expert_ffn"] = found["ffn"]
    if kind == "gpt_oss":
        found |= {"expert_bias": True, "clamped": True}
    width = next((data[key] for key in _SHARED_WIDTHS if data.get(key)), 0)
    each = found.get("expert_ffn")
    if isinstance(width, int) and isinstance(each, int) and width and each:
        found["shared_experts"] = max(1, round(width / each))
        if width % each:
            remarks.append(f"The shared expert is {found['shared_experts'] * each} wide instead of {width}")
    _which_layers(found, data, file)
    dense = data.get("mlp_only_layers") or []
    if not isinstance(dense, list):
        raise UsageError(f"{file}: 'mlp_only_layers' must be a list of layers, not {dense!r}. Correct it.")
    if dense == list(range(len(dense))):
        found["dense_layers"] = len(dense) or found.get("dense_layers", 0)
    else:
        remarks.append(
            "Layers without experts between layers with experts (mlp_only_layers) are predicted with experts"
        )


def _ratio(key: str, value: Any, file: Path) -> float:
    """Return the width of feed-forward parts, relative to the hidden size."""
    ratio = _one_value(key, value, file)
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 < ratio < _MOST_RATIO:
        raise UsageError(f"{file}: '{key}' must be a number between 0 and {_MOST_RATIO}, not {ratio!r}.")
    return ratio


_MOST_RATIO = 1000


def _which_layers(found: dict[str, Any], data: Mapping[str, Any], file: Path) -> None:
    """Add the positions of expert layers to the sizes *found*; layers without experts must come first."""
    key = "mlp_layer_types" if data.get("mlp_layer_types") else "moe_layer_freq"
    listed = data.get(key)
    if not isinstance(listed, list):
        return
    sparse = [each in (1, "sparse") for each in listed]
    dense = sparse.index(True) if any(sparse) else len(sparse)
    if not all(sparse[dense:]):
        raise UsageError(
            f"{file}: '{key}' has layers without experts after layers with experts. Next: write the sizes "
            "into a YAML with 'dense_layers' and 'expert_every'."
        )
    found |= {"dense_layers": dense, "expert_every": 1}


def _left_out(data: Mapping[str, Any]) -> list[str]:
    """Return remarks on parts of the model that take time but are not part of the prediction."""
    remarks = []
    more = next((data[key] for key in _FURTHER_TOKENS if data.get(key)), 0)
    if more:
        remarks.append(f"Layers that predict further tokens ({more}) are left out")
    if data.get("quantization_config"):
        remarks.append("Weights are those of training, not quantized ones")
    return remarks
