"""Programs with one mistake in them, judged by the proof and by an interpreter independent of it."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Collection
from pathlib import Path
from xml.etree import ElementTree

import msccl_interpreter
import mscclpp_interpreter
from program_mutants import mutated_plan, mutated_xml
from random_schedule import Key, Wrong

from chakrascope.errors import ConfigError
from chakrascope.runner.programs import parse_program, prove

LONGER = 100  # times as many orders where the proof refuses a program, until one shows it to be wrong
MOST_EVENTS = 4_000_000  # of one search
MOST_SUSPECTS = 2


def text_of(path: Path) -> str:
    """Return the text of a program's file."""
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()


def mutant(text: str, seed: int, draw: int = 0) -> tuple[str, str]:
    """Return a program with one mistake, the same for a *seed* and *draw*, and the name of the mistake."""
    random_ = random.Random(f"{seed}-{draw}")
    if text.lstrip().startswith("<"):
        return mutated_xml(text, random_)
    plan, mistake = mutated_plan(json.loads(text), random_)
    return json.dumps(plan), mistake


def fault(text: str, seed: int, schedules: int, suspects: Collection[Key] = ()) -> str:
    """Return what an interpreter shows to be wrong with a program in so many random orders, or "".

    Every other order delays or prefers the *suspects*. The search ends after `MOST_EVENTS` events.
    """
    is_xml, events = text.lstrip().startswith("<"), 0
    program = ElementTree.fromstring(text) if is_xml else json.loads(text)
    interpreter = msccl_interpreter if is_xml else mscclpp_interpreter
    for number in range(schedules):
        try:
            machine = interpreter.Machine(program, random.Random(f"{seed}-{number}"))
            events += machine.run(suspects if number % 2 else ())
        except Wrong as wrong:
            return str(wrong)
        except IndexError:
            return "it reaches past a table of the executor"
        if events > MOST_EVENTS:
            break
    return ""


def judged(text: str, seed: int, schedules: int, longer: int = LONGER) -> tuple[str, str]:
    """Return how proof and interpreter agree on a program, and why it is refused or wrong.

    That is unread, proved, refuted; or, where they differ, unsound or refused; or strict, if only the reader
    refuses the program. A program that only the proof refuses is tried *longer* times as often, with the
    places that the proof names as suspects.
    """
    try:
        proof = prove(parse_program(text.encode(), "mutant"))
    except ConfigError as error:
        wrong = fault(text, seed, schedules)
        return ("unread", wrong) if wrong else ("strict", error.message)
    if proof.holds:
        wrong = fault(text, seed, schedules)
        return ("unsound", wrong) if wrong else ("proved", "")
    suspects = {(problem.rank, problem.block) for problem in proof.problems[:MOST_SUSPECTS]}
    wrong = fault(text, seed, schedules * max(1, longer), suspects)
    return ("refuted", wrong) if wrong else ("refused", proof.problems[0].message)
