"""The sample programs, and functions that put a mistake into a copy of one."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from chakrascope.runner.programs import Program, parse_program, read_program

FOLDER = Path(__file__).parents[2] / "data" / "runner" / "programs"
SAMPLES = sorted(FOLDER.glob("*.gz"))
NAMES = [path.name.partition(".")[0] for path in SAMPLES]


def path_of(name: str) -> Path:
    return SAMPLES[NAMES.index(name)]


def sample(name: str) -> Program:
    return read_program(path_of(name))


def plan(name: str) -> dict[str, Any]:
    """Return a plan's JSON."""
    data: dict[str, Any] = json.loads(gzip.decompress(path_of(name).read_bytes()))
    return data


def changed_plan(name: str, change: Callable[[list[Any]], None]) -> Program:
    """Return the plan after *change* has modified its list of ranks."""
    data = plan(name)
    change(data["gpus"])
    return parse_program(json.dumps(data).encode(), name)


def xml(name: str) -> ElementTree.Element:
    return ElementTree.fromstring(gzip.decompress(path_of(name).read_bytes()))


def changed_xml(name: str, change: Callable[[ElementTree.Element], None]) -> Program:
    """Return the program's XML after *change* has modified its root."""
    root = xml(name)
    change(root)
    return parse_program(ElementTree.tostring(root), name)


def ops_of(ranks: list[Any], rank: int, block: int) -> list[Any]:
    """Return the ops of a thread block, those of its pipeline if it has one."""
    ops: list[Any] = ranks[rank]["threadblocks"][block]["ops"]
    return ops[0]["ops"] if ops and ops[0]["name"] == "pipeline" else ops


def drop(ranks: list[Any], rank: int, block: int, name: str, number: int = 0) -> None:
    """Remove the *number*-th op called *name* from a thread block."""
    ops = ops_of(ranks, rank, block)
    del ops[[place for place, op in enumerate(ops) if op["name"] == name][number]]
