#!/usr/bin/env python3
"""Run the cells of notebooks in order and store their output: ``python scripts/run_notebook.py FILE...``.

The cells run in this process, so that no kernel has to be installed. Their output and the value of the last
line are stored in the format of a notebook server.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import sys
from pathlib import Path
from typing import Any

import nbformat


def run(file: Path) -> Any:
    """Run the cells of the notebook *file* in its folder, and return the notebook with their outputs."""
    notebook = nbformat.read(file, as_version=4)
    names: dict[str, Any] = {"__name__": "__main__"}
    before = Path.cwd()
    os.chdir(file.parent)
    try:
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        for number, cell in enumerate(code, start=1):
            cell.execution_count = number
            cell.outputs = _outputs(cell.source, f"{file.name}, cell {number}", names, number)
    finally:
        os.chdir(before)
    return notebook


def _outputs(source: str, place: str, names: dict[str, Any], number: int) -> list[Any]:
    tree = ast.parse(source, place)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, place, "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), place, "eval"), names)
    outputs = []
    if printed.getvalue():
        outputs.append(nbformat.v4.new_output("stream", name="stdout", text=printed.getvalue()))
    if value is not None:
        data = _shown(value)
        outputs.append(nbformat.v4.new_output("execute_result", data=data, execution_count=number))
    return outputs


def _shown(value: Any) -> dict[str, str]:
    """Return the representations of *value* that a notebook can show."""
    as_html = getattr(value, "_repr_html_", None)
    if as_html is None:
        return {"text/plain": repr(value)}
    return {"text/plain": f"<{type(value).__name__}>", "text/html": as_html()}


def main() -> None:
    """Run each notebook named on the command line, and write it with its outputs."""
    for name in sys.argv[1:]:
        nbformat.write(run(Path(name)), name)
        print(f"ran {name}")


if __name__ == "__main__":
    main()
