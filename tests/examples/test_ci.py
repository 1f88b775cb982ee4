"""The example workflow says what this version understands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import yaml

from chakrascope.cli import cli
from chakrascope.runner.analysis import parse_limit

FILE = Path(__file__).resolve().parents[2] / "examples" / "ci" / "guard-a-training-job.yml"


def commands():
    steps = yaml.safe_load(FILE.read_text())["jobs"]["step"]["steps"]
    for step in steps:
        for line in step.get("run", "").splitlines():
            found = re.search(r"chakrascope [a-z].*", line)
            if found:
                yield shlex.split(found[0].split(" -- ")[0].removesuffix(")"))


def test_every_command_and_option_exists():
    context = click.Context(cli)
    seen = []
    for _, name, *words in commands():
        command = cli.get_command(context, name)
        known = {option for parameter in command.params for option in parameter.opts}
        given = {word for word in words if word.startswith("-")}
        assert given <= known
        seen.append(name)
    assert {"trace", "doctor", "diff"} <= set(seen)


def test_every_limit_can_be_read():
    limits = [words[i + 1] for words in commands() for i, word in enumerate(words) if word == "--fail-if"]
    assert [parse_limit(text).quantity for text in limits] == ["step", "exposed", "bytes"]
