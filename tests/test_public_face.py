"""What users rely on changes on purpose only."""

from __future__ import annotations

import difflib

import pytest

from .public_face import COMMAND, RECORD, public_face


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
