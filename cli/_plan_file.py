"""Plan files: YAML files with options of `predict` and `predict search`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import yaml
from click.core import ParameterSource

from ..errors import ConfigError, did_you_mean
from ..support import write_file, writing
from ..support.documents import read_yaml
from ._options import joined

EXPLICIT = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)
# Options that a plan file may not contain. A script is code, which only the user may choose to run.
_ELSEWHERE = {"plan", "save-plan", "script", "output", "format", "list-models", "help"}


def command_line_options(ctx: click.Context) -> dict[str, Any]:
    """Return the options given on the command line or in a plan file, by name."""
    return {
        name: _plain(ctx.params[str(option.name)])
        for name, option in _options(ctx.command).items()
        if option.expose_value and ctx.get_parameter_source(str(option.name)) in EXPLICIT
    }


def save_plan(options: Mapping[str, Any], file: Path) -> None:
    """Write those of *options* that a plan file may contain to *file*."""
    plan = {name: value for name, value in options.items() if name not in _ELSEWHERE}
    with writing(file, ConfigError):
        write_file(file, yaml.safe_dump(plan, sort_keys=False), parents=True)


def _plain(value: Any) -> Any:
    """Return *value* as something that YAML can represent."""
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value


def _options(command: click.Command) -> dict[str, click.Option]:
    """Return the options of *command* by name."""
    options = [param for param in command.params if isinstance(param, click.Option)]
    return {next(name for name in option.opts if name.startswith("--"))[2:]: option for option in options}


def _read(ctx: click.Context, _param: click.Parameter, file: Path | None) -> None:
    """Take options from the plan *file* unless the command line has them."""
    if file is None:
        return
    options = {name: option for name, option in _options(ctx.command).items() if name not in _ELSEWHERE}
    ctx.default_map = {}
    for key, value in read_yaml(file, "plan").items():
        name = "on" if key == "True" else key  # YAML 1.1 reads an unquoted `on` as true
        if name not in options:
            raise ConfigError(f"{file}: unknown key '{name}'{did_you_mean(str(name), options)}")
        option = options[name]
        if isinstance(value, bool) != option.is_flag or value is None or isinstance(value, dict):
            wanted = "true or false" if option.is_flag else "a value"
            raise ConfigError(f"{file}: '{name}' must be {wanted}, not {value}.")
        texts = list(map(str, value)) if isinstance(value, list) else [str(value)]
        text: Any = texts if option.multiple else ",".join(texts)
        ctx.default_map[str(option.name)] = value if option.is_flag else text


plan_file_options = joined(
    click.option(
        "--plan",
        metavar="FILE",
        type=click.Path(path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=_read,
        help="YAML file with options of `predict`, such as `tp: 2`; options on the command line take "
        "precedence.",
    ),
    click.option(
        "--save-plan",
        "plan_file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Write the options of the plan (in a search, of the best plan) to this YAML file.",
    ),
)
