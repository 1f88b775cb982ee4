"""Parse the names that profilers and frameworks give to traces: ranks, indices in groups, captures."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["common_name", "indices_in_name", "is_of_one_rank", "name_of_capture", "rank_in_name"]

# What stands before a rank's number; a host may be called worker3, too, so the first counts more.
_RANK_WORDS = (re.compile(r"(?i)rank[-_]?(\d{1,9})(?!\d)"), re.compile(r"(?i)worker[-_]?(\d{1,9})(?!\d)"))
# A number that ends the name and stands by itself; 8 in Qwen3-8B does not, nor does a process or a time.
_LAST_NUMBER = re.compile(r"(?:^|(?<=[-_.]))(\d{1,5})(?:\.[A-Za-z]\w*)*$")
# Where a rank stands in its groups: TP-1-PP-0 (SGLang), dp0_pp0_tp1_dcp0_ep1 (vLLM).
_INDEX = re.compile(r"(?i)(?<![a-z0-9])(tp|dp|pp|ep|dcp)[-_]?(\d{1,9})(?!\d)")
# These lie within the tensor-parallel group, so that its index tells theirs.
_WITHIN_TENSOR = {"tp", "ep"}
# torch.profiler's own names: WORKER.TIME.pt.trace.json, where WORKER is HOST_PID unless the script says more.
_PYTORCH_NAME = re.compile(r"(?P<worker>.+)\.(?P<time>\d+)\.pt\.trace\.json(?P<gzip>\.gz)?")
_OF_HOST, _STEP = re.compile(r".*?_\d+"), "_step_"
# Host traces that ENABLE_PYTORCH_EXECUTION_TRACE asks for have chance names.
_CHANCE_NAME = re.compile(r"tmp[a-z0-9_]{8}\.et\.json")
# vLLM's front end, and SGLang's merger of all ranks.
_NOT_ONE_RANK = re.compile(r".*\.async_llm\..*|merged-.*")
_ENDING = re.compile(r"(\.\d+\.pt)?(\.trace|\.et)?\.json(\.gz)?$")
_HOST_PREFIX = "execution_trace_"


def rank_in_name(path: Path) -> int | None:
    """Return the rank in the name of *path*, or else in its folder's; None without one.

    Numbers in names that PyTorch chose are a process and a time. An index in a group is not a rank: only a
    tensor-parallel index without one of data or pipeline parallelism counts as such.
    """
    found = _rank_place(path.name)
    found = found or next(filter(None, (word.search(path.parent.name) for word in _RANK_WORDS)), None)
    return int(found[found.lastindex or 0]) if found else None


def common_name(name: str) -> str:
    """Return the pattern of the names of a job's ranks, in which ``{rank}`` is the rank.

    ``*`` stands for indices in groups and, in names that PyTorch chose, for the time, and for host and
    process if they do not state the rank.
    """
    if _CHANCE_NAME.fullmatch(name):
        return "tmp*.et.json"
    pytorch = _PYTORCH_NAME.fullmatch(name)
    if pytorch is not None and _OF_HOST.fullmatch(pytorch["worker"]) and _rank_place(name) is None:
        return f"*.pt.trace.json{pytorch['gzip'] or ''}"
    marks = [(match.start(2), match.end(2), "*") for match in _INDEX.finditer(name)]
    if (rank := _rank_place(name)) is not None:
        start, end = rank.span(rank.lastindex or 0)
        marks = [*(mark for mark in marks if mark[0] != start), (start, end, "{rank}")]
    if pytorch is not None:
        marks = [*(mark for mark in marks if mark[0] != pytorch.start("time")), (*pytorch.span("time"), "*")]
    for start, end, mark in sorted(marks, reverse=True):
        name = f"{name[:start]}{mark}{name[end:]}"
    return name


def indices_in_name(name: str) -> str:
    """Return the indices of a rank in its groups in *name*, such as ``TP-0, PP-1``; "" without any."""
    return ", ".join(match[0] for match in _INDEX.finditer(name))


def is_of_one_rank(name: str) -> bool:
    """Return False for traces of a front end or of all ranks merged, which frameworks write in addition."""
    return _NOT_ONE_RANK.fullmatch(name) is None


def name_of_capture(name: str) -> str:
    """Return the common name of the host and the device trace of one rank, written by one framework."""
    return _ENDING.sub("", name).removeprefix(_HOST_PREFIX)


def _rank_place(name: str) -> re.Match[str] | None:
    """Return the match of the rank in *name*; its last group is the number."""
    if found := _rank_word(name):
        return found
    if _PYTORCH_NAME.fullmatch(name) or _CHANCE_NAME.fullmatch(name):
        return None
    indices = {match[1].lower(): match for match in _INDEX.finditer(name)}
    if indices:
        return indices.get("tp") if indices.keys() <= _WITHIN_TENSOR else None
    return _LAST_NUMBER.search(name)


def _rank_word(name: str) -> re.Match[str] | None:
    """Return the match of a rank with a word in *name*, but not for a host such as worker3."""
    pytorch = _PYTORCH_NAME.fullmatch(name)
    of_host = pytorch is not None and _OF_HOST.fullmatch(pytorch["worker"]) and _STEP not in name
    words = _RANK_WORDS[:1] if of_host else _RANK_WORDS
    return next(filter(None, (word.search(name) for word in words)), None)
