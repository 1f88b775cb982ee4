"""Find models by name, or read a model from a small YAML or a Hugging Face config.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ....errors import UsageError, did_you_mean
from ....support.documents import read_json, read_yaml
from ._hugging_face import of_hugging_face
from ._transformer import Convolution, Transformer


def _gpt(layers: int, hidden: int, heads: int, vocab: int = 50257) -> dict[str, Any]:
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "ffn": 4 * hidden, "vocab": vocab}
    return {**sizes, "sequence": 2048, "learned_positions": True, "tied": True}


def _mpt(layers: int, hidden: int, heads: int) -> dict[str, Any]:
    # The loss of llm-foundry overwrites the logits in place.
    return {**_gpt(layers, hidden, heads, vocab=50368), "loss_bytes": 4}


def _llama(  # noqa: PLR0917 - in the order of the models' tables
    layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocab: int, **more: Any
) -> Any:
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv_heads, "ffn": ffn}
    return {**sizes, "vocab": vocab, "sequence": 4096, "gated": True, **more}


def _vit(layers: int, hidden: int, heads: int, patch: int) -> dict[str, Any]:
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "ffn": 4 * hidden, "vocab": 0}
    return {**sizes, "sequence": (224 // patch) ** 2 + 1, "causal": False, "classes": 1000}


def _convolutional(layers: Iterator[Convolution], hidden: int) -> dict[str, Any]:
    every = tuple(layers)
    sizes = {"layers": len(every), "hidden": hidden, "heads": 1, "ffn": hidden, "vocab": 0, "sequence": 1}
    return {**sizes, "classes": 1000, "convolutions": every, "causal": False}


def _vgg16() -> Iterator[Convolution]:
    """Yield the layers of VGG16 before its classifier, on images of 224 x 224."""
    inputs, side = 3, 224
    for block, (outputs, count) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), start=1):
        for number in range(1, count + 1):
            name, pooled = f"block{block}.conv{number}", (side // 2) ** 2 if number == count else 0
            yield Convolution(name, inputs, outputs, 3, side**2, side**2, bias=True, pooled=pooled)
            inputs = outputs
        side //= 2
    yield Convolution("fc1", inputs * side**2, 4096, 1, 1, 1, bias=True, dropout=True)
    yield Convolution("fc2", 4096, 4096, 1, 1, 1, bias=True, dropout=True)


def _resnet50() -> Iterator[Convolution]:
    """Yield the layers of ResNet-50 (v1.5) before its classifier, on images of 224 x 224."""
    yield Convolution("conv1", 3, 64, 7, 224**2, 112**2, norm=True, pooled=56**2)
    inputs, before = 64, 56
    for stage, (width, count, side) in enumerate(
        ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7)), start=1
    ):
        for block in range(1, count + 1):
            name, outputs = f"stage{stage}.block{block}", 4 * width
            yield Convolution(f"{name}.conv1", inputs, width, 1, before**2, before**2, norm=True)
            yield Convolution(f"{name}.conv2", width, width, 3, before**2, side**2, norm=True)
            yield Convolution(f"{name}.conv3", width, outputs, 1, side**2, side**2, norm=True)
            if block == 1:
                sizes = inputs, outputs, 1, before**2, side**2
                yield Convolution(f"{name}.shortcut", *sizes, norm=True, shortcut=True)
            inputs, before = outputs, side


# Published sizes of models. Sources are Brown et al. 2020 (GPT-3), Narayanan et al. 2021 and Korthikanti et
# al. 2022 (the sizes up to 1T), MosaicML's llm-foundry (MPT), and the model cards and config.json of other
# models.
_MODELS: dict[str, dict[str, Any]] = {
    "gpt3-125m": _gpt(12, 768, 12),
    "gpt3-350m": _gpt(24, 1024, 16),
    "gpt3-760m": _gpt(24, 1536, 16),
    "gpt3-1.3b": _gpt(24, 2048, 16),
    "gpt3-2.7b": _gpt(32, 2560, 32),
    "gpt3-3.6b": _gpt(30, 3072, 32),
    "gpt3-6.7b": _gpt(32, 4096, 32),
    "gpt3-13b": _gpt(40, 5120, 40),
    "gpt3-18.4b": _gpt(40, 6144, 48),
    "gpt3-22b": _gpt(48, 6144, 64),
    "gpt3-39.1b": _gpt(48, 8192, 64),
    "gpt3-76b": _gpt(60, 10240, 80),
    "gpt3-145b": _gpt(80, 12288, 96),
    "gpt3-175b": _gpt(96, 12288, 96),
    "gpt3-310b": _gpt(96, 16384, 128),
    "gpt3-530b": _gpt(105, 20480, 128),
    "gpt3-1t": _gpt(128, 25600, 160),
    "mpt-125m": _mpt(12, 768, 12),
    "mpt-350m": _mpt(24, 1024, 16),
    "mpt-760m": _mpt(24, 1536, 12),
    "mpt-1b": _mpt(24, 2048, 16),
    "mpt-3b": _mpt(32, 2560, 20),
    "mpt-7b": _mpt(32, 4096, 32),
    "mpt-13b": _mpt(40, 5120, 40),
    "mpt-30b": _mpt(48, 7168, 56),
    "mpt-70b": _mpt(80, 8192, 64),
    "llama2-7b": _llama(32, 4096, 32, 32, 11008, 32000),
    "llama2-13b": _llama(40, 5120, 40, 40, 13824, 32000),
    "llama2-70b": _llama(80, 8192, 64, 8, 28672, 32000),
    "llama3-8b": _llama(32, 4096, 32, 8, 14336, 128256, sequence=8192),
    "llama3-70b": _llama(80, 8192, 64, 8, 28672, 128256, sequence=8192),
    "llama3-405b": _llama(126, 16384, 128, 8, 53248, 128256, sequence=8192),
    # Every layer of Llama 4 Scout has experts, and every second layer of Llama 4 Maverick has experts. Both
    # models have one shared expert. Three of four layers attend only within chunks of tokens.
    "llama4-scout": _llama(
        48, 5120, 40, 8, 16384, 202048, sequence=8192, head_size=128,
        experts=16, top_k=1, expert_ffn=8192, shared_experts=1, chunk=8192, full_every=4,
    ),
    "llama4-maverick": _llama(
        48, 5120, 40, 8, 16384, 202048, sequence=8192, head_size=128,
        experts=128, top_k=1, expert_ffn=8192, shared_experts=1, expert_every=2,
        chunk=8192, full_every=4,
    ),
    "mixtral-8x7b": _llama(32, 4096, 32, 8, 14336, 32000, experts=8, top_k=2, expert_ffn=14336),
    "mixtral-8x22b": _llama(56, 6144, 48, 8, 16384, 32768, experts=8, top_k=2, expert_ffn=16384),
    "grok1": _llama(
        64, 6144, 48, 8, 32768, 131072, sequence=8192, head_size=128, experts=8, top_k=2, expert_ffn=32768,
        tied=True,
    ),
    "deepseek-v3": _llama(
        61, 7168, 128, 128, 18432, 129280, head_size=128, experts=256, top_k=8, expert_ffn=2048,
        shared_experts=1, dense_layers=3, kv_rank=512, query_rank=1536, rope_size=64, expert_groups=8,
        top_groups=4,
    ),
    "nemotron4-15b": _llama(32, 6144, 48, 8, 24576, 256000, gated=False),
    "nemotron4-340b": _llama(96, 18432, 96, 8, 73728, 256000, gated=False, head_size=192),
    "vgg16": _convolutional(_vgg16(), 4096),
    "resnet50": _convolutional(_resnet50(), 2048),
    "vit-b16": _vit(12, 768, 12, 16),
    "vit-l16": _vit(24, 1024, 16, 16),
    "vit-h14": _vit(32, 1280, 16, 14),
}  # fmt: skip
_OTHER_NAMES = {
    "gpt3": "gpt3-175b",
    "resnet-50": "resnet50",
    "vgg-16": "vgg16",
    "llama3.1-405b": "llama3-405b",
    "llama3.1-8b": "llama3-8b",
    "llama3.1-70b": "llama3-70b",
}
_NO_SIZES = ("convolutions", "remarks")  # fields of a model that a model file cannot contain


def list_models() -> list[str]:
    """Return the names of the built-in models, sorted."""
    return sorted(_MODELS)


def find_model(name: str | Path) -> Transformer:
    """Return the model called *name*, or the model in the file *name*; otherwise, raise `UsageError`."""
    text = str(name)
    key = _OTHER_NAMES.get(text.lower(), text.lower())
    if key in _MODELS:
        return Transformer(name=key, **_MODELS[key])
    path = Path(name)
    if path.suffix not in (".json", ".yml", ".yaml") and not path.is_file():
        raise UsageError(
            f"There is no model '{text}'{did_you_mean(text, _MODELS, 'chakrascope predict --list-models')} "
            "--model also accepts a YAML file with the sizes, or a Hugging Face config.json."
        )
    return read_model(path)


def read_model(path: str | Path) -> Transformer:
    """Read a model from a YAML with the fields of `Transformer`, or from a Hugging Face config.json."""
    file = Path(path)
    read = read_json if file.suffix == ".json" else read_yaml
    data: Mapping[str, Any] = read(file, "model file")
    if "model_type" in data or "architectures" in data or (file.suffix == ".json" and "layers" not in data):
        data, remarks = of_hugging_face(data, file)
        return replace(_of_mapping(data, file), remarks=tuple(remarks))
    return _of_mapping(data, file)


def _of_mapping(data: Mapping[str, Any], file: Path) -> Transformer:
    sizes = {item.name: item for item in fields(Transformer) if item.name not in _NO_SIZES}
    for key, value in data.items():
        if key not in sizes:
            raise UsageError(f"{file}: unknown key '{key}'{did_you_mean(str(key), sizes)}")
        wanted = str if key == "name" else bool if sizes[key].type == "bool" else int
        if wanted is not str and (
            not isinstance(value, wanted) or isinstance(value, bool) != (wanted is bool)
        ):
            kind = "true or false" if wanted is bool else "a whole number"
            raise UsageError(f"{file}: '{key}' must be {kind}, not {value!r}.")
    missing = [key for key in ("layers", "hidden", "heads", "vocab", "sequence") if key not in data]
    if missing:
        raise UsageError(f"{file}: the key '{missing[0]}' is missing; a model needs it.")
    return Transformer(**{"name": file.stem, "ffn": 4 * int(data["hidden"]), **data})
