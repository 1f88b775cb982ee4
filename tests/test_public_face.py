"""The public interface equals the recorded text in ``public_face.txt``."""

import difflib
import re
from importlib import import_module
from pathlib import Path

import pytest

from .public_face import COMMAND, PROMISED, RECORD, public_face
from .source_tree import modules, public_names


def test_every_name_that_a_module_exports_exists():
    for name, source in modules().items():
        if not any(part.startswith("_") for part in name.split(".")):
            module = import_module(f"chakrascope.{name}")
            for each in public_names(source):
                getattr(module, each)


def test_the_promised_packages_are_those_of_the_documentation():
    text = (Path(__file__).parent.parent / "docs" / "reference" / "stability.md").read_text("utf-8")
    (row,) = (line for line in text.splitlines() if "names in Python" in line)
    named = re.findall(r"`(?:chakrascope\.|\.)?(\w+)`", row)
    assert {name.rpartition(".")[2] for name in PROMISED} == set(named)


def test_the_public_face_is_the_recorded_one():
    recorded, found = RECORD.read_text("utf-8"), public_face()
    if found != recorded:
        lines = difflib.unified_diff(
            recorded.splitlines(),
            found.splitlines(),
            "tests/public_face.txt",
            "the packages as they are",
            lineterm="",
        )
        pytest.fail(
            "\n".join(
                [
                    "The public face changed. If that is meant, record it and add a line to CHANGELOG.md:",
                    "",
                    f"    {COMMAND}",
                    "",
                    *lines,
                ]
            ),
            pytrace=False,
        )
