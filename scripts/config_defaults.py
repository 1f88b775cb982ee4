"""Write the defaults of keys that a config.json of Hugging Face may omit, for the supported model types.

The script builds the default model of every type in transformers, without weights, and compares its number of
parameters with the sizes that `predict --model` reads. Needs torch and transformers.
"""

from __future__ import annotations

import dataclasses
import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto as auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

from chakrascope.errors import UsageError
from chakrascope.runner.prediction.models import Transformer, read_model

_FILE = Path(__file__).parents[1] / "runner/prediction/models/config_defaults.json"
_TOLERANCE = 0.03  # norms, biases, poolers and heads of tasks are not counted
_SECONDS = 60
_CLASSES = (
    (transformers.AutoModelForCausalLM, auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
    (transformers.AutoModelForMaskedLM, auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES),
    (transformers.AutoModelForImageClassification, auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES),
)
# Keys without which the default model of a type cannot be built.
_COMPLETED: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 6},
    **{kind: {"head_dim": 128} for kind in ("nemotron", "hunyuan_v1_dense", "ministral", "glm4_moe")},
    "dots1": {"n_routed_experts": 8, "num_experts_per_tok": 2},
}
# Other keys do not affect sizes.
_UNREAD = (
    "initializer", "dropout", "_id", "_eps", "epsilon", "drop", "return_dict", "output_", "chunk_size_feed",
    "use_cache", "summary", "problem_type", "pretraining_tp", "_bias", "_coef", "scale", "softcapping",
    "is_encoder_decoder", "pdrop", "rope", "norm", "_token", "position_embedding_type",
)  # fmt: skip
_READ = ("qk_rope_head_dim",)


def main() -> None:
    """Compare every model type with transformers, and write the table of defaults."""
    transformers.logging.set_verbosity_error()
    table: dict[str, Any] = {
        "source": f"transformers {transformers.__version__}, by scripts/config_defaults.py",
        "text_parts": {}, "types": {}, "misread": {},
    }  # fmt: skip
    _write(table)
    for kind in sorted(CONFIG_MAPPING_NAMES):
        _add_if_built(table, kind)
    _write(table)


def _add_if_built(table: dict[str, Any], kind: str) -> None:
    try:
        _add(table, kind)
    except Exception as error:  # the default models of some types cannot be built
        print(f"{kind}: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)


def _add(table: dict[str, Any], kind: str) -> None:
    config = CONFIG_MAPPING[kind](**_COMPLETED.get(kind, {}))
    whole = json.loads(json.dumps(config.to_dict(), default=str))
    text = whole.get("text_config")
    if isinstance(text, dict):
        table["text_parts"][kind] = str(text.get("model_type", ""))
        return
    try:
        ours = _read(whole)
    except UsageError as error:
        reason = str(error).partition(": ")[2].partition(". Predictions by sizes")
        if reason[1]:
            table["misread"][kind] = reason[0].rpartition(" means ")[2].rpartition(" has ")[2]
        return
    found = next((each for each, names in _CLASSES if kind in names), transformers.AutoModel)
    expected = ours.params() - (ours.output_params if found is transformers.AutoModel else 0)
    signal.alarm(_SECONDS)
    try:
        with torch.device("meta"):
            params = sum(each.numel() for each in found.from_config(config).parameters())
    finally:
        signal.alarm(0)
    if abs(expected / params - 1) > _TOLERANCE:
        difference = (
            f"{expected / 1e9:.2f} B parameters by its sizes, and the library's model has {params / 1e9:.2f}"
        )
        table["misread"][kind] = f"layers of another kind ({difference})"
        return
    table["types"][kind] = _following(kind, ours, _defaults_of(config))


def _defaults_of(config: Any) -> dict[str, Any]:
    """Return the size-related defaults of the class of *config* and of its parts."""
    parts = [getattr(config, key) for key in ("attn_config", "ffn_config") if hasattr(config, key)]
    return {
        item.name: item.default
        for part in (*parts, config)
        for item in dataclasses.fields(part)
        if isinstance(item.default, (bool, int, str))
        and (item.name in _READ or not any(word in item.name for word in _UNREAD))
    }


def _following(kind: str, ours: Transformer, values: dict[str, Any]) -> dict[str, Any]:
    """Return the *values* that determine *ours*, with the values that the class derives."""
    derived = {"sliding_window_pattern": ours.full_every or 1, "first_k_dense_replace": ours.dense_layers}
    for more in ({}, derived):
        alone = {"model_type": kind, **values, **more, **_COMPLETED.get(kind, {})}
        if dataclasses.replace(_read(alone), name=ours.name, classes=ours.classes) == ours:
            return {**values, **more}
    print(f"{kind}: its sizes do not follow from its defaults", file=sys.stderr)
    return {key: value for key, value in values.items() if key == "tie_word_embeddings"}


def _read(config: dict[str, Any]) -> Transformer:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "config.json")
        file.write_text(json.dumps(config), encoding="utf-8")
        return read_model(file)


def _write(table: dict[str, Any]) -> None:
    """Write *table* with a line for each type."""
    parts = [f'"source": {json.dumps(table["source"])}']
    for key in ("text_parts", "misread", "types"):
        rows = ",\n".join(f"  {json.dumps(kind)}: {json.dumps(value)}" for kind, value in table[key].items())
        parts.append(f'"{key}": {{\n{rows}\n}}')
    _FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
