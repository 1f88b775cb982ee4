"""Parse the annotations that inference engines put around each batch.

Formats, as published: vLLM ``execute_context_2(6144)_generation_3(3)`` (``GPUWorker.annotate_profile``),
before that ``execute_new_2_cached_3`` (vLLM pull request 22496), and ROCm's with squares of lengths,
``execute_6147_context_2(sq6144sk7144sqsq..sqsk..)_generation_3(sq3..)``; SGLang ``step[DECODE bs=32]``,
``step[EXTEND bs=15 toks=15360]``, ``step[MIXED bs=66 c=2 g=64 c_sq=2048 g_sq=64 ..]`` (pull requests 23419
and 24911); ATOM ``prefill[bs=2 tok=14721 ctx=[..]]``, ``decode[bs=117/128 tok=117 p=0 d=117]``; xDiT
``execute_diffusion_1_1024x1024``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import msgspec

__all__ = ["Batch", "batch_of"]

_UNKNOWN = -1
# SGLang's forward modes (`ForwardMode`); speculative drafts and their checks belong to generation.
_SGLANG_KINDS = {
    "decode": "decode",
    "draft_extend": "decode",
    "draft_extend_v2": "decode",
    "extend": "prefill",
    "idle": "idle",
    "mixed": "mixed",
    "prefill": "prefill",
    "split_prefill": "prefill",
    "target_verify": "decode",
}


class Batch(msgspec.Struct, frozen=True):
    """The batch of a forward pass: *kind* is prefill, decode, mixed, diffusion or idle.

    *requests* and *tokens* are -1 if unknown.
    """

    kind: str
    requests: int = _UNKNOWN
    tokens: int = _UNKNOWN


def batch_of(name: str) -> Batch | None:
    """Return the batch of an annotation with this *name*; None for other annotations."""
    for pattern, parsed in _FORMATS:
        match = pattern.fullmatch(name)
        if match is not None:
            return parsed(match)
    return None


def _of_both(prefill: int, decode: int, tokens: int = _UNKNOWN) -> Batch:
    """Return the batch of these numbers of prefill and decode requests."""
    kinds = {(True, True): "mixed", (True, False): "prefill", (False, True): "decode"}
    return Batch(kinds.get((prefill > 0, decode > 0), "idle"), prefill + decode, tokens)


def _vllm(match: re.Match[str]) -> Batch:
    prefill, prefill_tokens, decode, decode_tokens = map(int, match.groups())
    return _of_both(prefill, decode, prefill_tokens + decode_tokens)


def _early_vllm(match: re.Match[str]) -> Batch:
    return _of_both(*map(int, match.groups()))


def _sglang(match: re.Match[str]) -> Batch:
    kind = _SGLANG_KINDS.get(match[1].lower(), "")
    sizes = _sizes(match[2] or "")
    requests = sizes.get("bs", _UNKNOWN)
    tokens = sizes.get("toks", _UNKNOWN)
    for parts in (("c_sq", "g_sq"), ("ext", "dec")):
        if tokens < 0 and any(part in sizes for part in parts):
            tokens = sum(sizes.get(part, 0) for part in parts)
    if tokens < 0 and match[1].lower() == "decode":
        tokens = requests
    return Batch(kind, requests, tokens)


def _atom(match: re.Match[str]) -> Batch:
    sizes = _sizes(match[2])
    kind = "mixed" if match[1] == "decode" and sizes.get("p", 0) > 0 else match[1]
    return Batch(kind, sizes.get("bs", _UNKNOWN), sizes.get("tok", _UNKNOWN))


def _diffusion(match: re.Match[str]) -> Batch:
    return Batch("diffusion", int(match[1]))


def _sizes(text: str) -> Mapping[str, int]:
    """Return the numbers in *text*, such as ``bs=117/128 tok=117``, by name."""
    return {name: int(value) for name, value in re.findall(r"(\w+)=(\d{1,18})", text)}


_FORMATS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Batch]], ...] = (
    (
        re.compile(
            r"execute_(?:\d+_)?context_(\d{1,18})\((?:sq)?(\d{1,18})[^)]*\)"
            r"_generation_(\d{1,18})\((?:sq)?(\d{1,18})[^)]*\)"
        ),
        _vllm,
    ),
    (re.compile(r"execute_new_(\d{1,18})_cached_(\d{1,18})"), _early_vllm),
    (re.compile(r"step\[(\w+)((?: \w+=\S+)*)\]"), _sglang),
    (re.compile(r"(prefill|decode)\[(bs=.*)\]"), _atom),
    (re.compile(r"execute_diffusion_(\d{1,18})_\d+x\d+"), _diffusion),
)
