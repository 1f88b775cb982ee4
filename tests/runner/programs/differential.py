"""Programs with one mistake in them, judged by the proof and by an interpreter independent of it."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

from msccl_interpreter import msccl_fault
from mscclpp_interpreter import mscclpp_fault
from program_mutants import mutated_plan, mutated_xml

from chakrascope.errors import ConfigError
from chakrascope.runner.programs import parse_program, prove

LONGER = 100  # times as many orders where the proof refuses what no order showed to be wrong


def text_of(path: Path) -> str:
    """Return the text of a program's file."""
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()


def mutant(text: str, seed: int) -> tuple[str, str]:
    """Return a program with one mistake, the same for a *seed*, and the name of the mistake."""
    random_ = random.Random(seed)
    if text.lstrip().startswith("<"):
        return mutated_xml(text, random_)
    plan, mistake = mutated_plan(json.loads(text), random_)
    return json.dumps(plan), mistake


def fault(text: str, seed: int, schedules: int) -> str:
    """Return what an interpreter shows to be wrong with a program in so many random orders, or ""."""
    if text.lstrip().startswith("<"):
        return msccl_fault(text, seed, schedules)
    return mscclpp_fault(json.loads(text), seed, schedules)


def judged(text: str, seed: int, schedules: int, longer: int = LONGER) -> tuple[str, str]:
    """Return how proof and interpreter agree on a program, and why it is refused or wrong.

    That is unread, proved, refuted; or, where they differ, unsound or refused. A program that only the
    proof refuses is tried *longer* times as often.
    """
    try:
        proof = prove(parse_program(text.encode(), "mutant"))
    except ConfigError as error:
        return "unread", error.message
    wrong = fault(text, seed, schedules)
    if proof.holds:
        return ("unsound", wrong) if wrong else ("proved", "")
    if wrong or fault(text, ~seed, schedules * longer):
        return "refuted", wrong
    return "refused", proof.problems[0].message
