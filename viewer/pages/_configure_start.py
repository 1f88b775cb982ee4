"""The actions of the form New run: it is read and checked here, then shown, simulated or saved."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import dash_mantine_components as dmc
import yaml
from dash import ALL, Dash, Input, Output, State, ctx, html, no_update

from ...converter import Finding
from ...errors import ConfigError
from ...runner import JobStore, communication_of
from ...runner.analysis import duration_estimate, estimate_s, load_of
from .._address import set_option
from .._state import Selection, StudyView
from ..charts import graph, topology_sketch
from ..queries import (
    Form,
    Networks,
    begun_from,
    check,
    chosen_backends,
    command_line,
    decode_form,
    differences,
    encode_form,
    experiment_of,
)
from ._configure_form import read_setup
from ._parts import empty, link_to, page_address

LABEL_LENGTH = 120
_COLOURS = {"error": "red", "warning": "yellow", "note": "gray"}
_CORRECT = "Correct the field that is marked first."
_FIELDS: dict[str, Any] = {
    "dimensions": {"form": "dimension", "field": ALL, "number": ALL},
    "system": {"form": "system", "field": ALL},
    "workload": "new-workload",
    "backends": "new-backends",
    "machine": "new-machine",
    "failures": "new-failures",
    "label": "new-label",
}
# These fill in other fields when they are chosen, which sets off what follows the form.
_PRESETS = {"network": State("new-network", "value"), "preset": State("new-system", "value")}
_ADDRESS = {"search": State("url", "search"), "run": State("run", "data"), "dark": State("dark", "checked")}


def _form(dependency: type[Input] | type[State]) -> dict[str, Any]:
    """Return the whole form as a callback's argument ``form``."""
    return {name: dependency(identity, "value") for name, identity in _FIELDS.items()} | _PRESETS


def _read(view: StudyView) -> tuple[Form | None, list[Finding]]:
    """Return the form in the fields, and the problems of running it, the errors first.

    For a callback that has :func:`_form` as its argument ``form``. The form is None if a field is invalid.
    """
    fields: dict[str, Any] = ctx.args_grouping["form"]
    value = {name: field["value"] for name, field in fields.items() if not isinstance(field, list)}
    try:
        setup = read_setup(
            fields["dimensions"], fields["system"], value["network"], value["preset"], value["failures"],
            Networks(view.study),
        )  # fmt: skip
    except ConfigError as error:
        return None, [Finding("error", "field", error.message)]
    backends = chosen_backends(value["backends"], value["machine"])
    form = Form(value["workload"], setup, backends, str(value["label"] or "")[:LABEL_LENGTH])
    return form, check(setup, communication_of(view.study.workload_prefix(form.workload)), backends)


def _blocker(findings: list[Finding]) -> str:
    """Return the first error of *findings*, or ``""``."""
    return next((finding.text for finding in findings if finding.severity == "error"), "")


def register_start(app: Dash, view: StudyView, path: str) -> None:
    """Register the callbacks that follow the form, and the buttons to simulate it and download its files."""
    _register_examination(app, view, path)
    _register_buttons(app, view)


def _register_examination(app: Dash, view: StudyView, path: str) -> None:
    @app.callback(
        output={
            "findings": Output("findings", "children"),
            "sketch": Output("sketch", "children"),
            "command": Output("new-command", "children"),
            "blocker": Output("new-blocker", "children"),
            "disabled": [Output(name, "disabled") for name in ("new-start", "new-yaml", "new-json")],
            "written": Output("new-written", "data"),
            "runnable": Output("new-runnable", "data"),
            "links": [Output("new-zip", "children"), Output("new-sweep", "children")],
        },
        inputs={"form": _form(Input), "address": _ADDRESS},
    )
    def examine(form: Any, address: dict[str, Any]) -> dict[str, Any]:
        """Check the input, draw it, and write it into the address."""
        del form  # read with its ids
        read, findings = _read(view)
        blocker = _blocker(findings)
        if read is None:
            return {
                "findings": _findings(findings, None), "sketch": no_update, "command": _CORRECT,
                "blocker": blocker, "disabled": [True] * 3, "written": no_update, "runnable": None,
                "links": [empty(_CORRECT), ""],
            }  # fmt: skip
        run, scheme = address["run"] or "", "dark" if address["dark"] else "light"
        workloads = view.study.workloads()
        text = encode_form(read, workloads, begun_from(view.study, run, Networks(view.study)).form)
        set_option(path, address["search"], run, "setup", text)
        return {
            "findings": _findings(findings, differences(read.setup)),
            "sketch": graph(topology_sketch(read.setup.dimensions, scheme)),
            "command": command_line(
                read.setup, read.backends, "" if read.workload == workloads[-1] else read.workload
            ),
            "blocker": blocker,
            "disabled": [bool(blocker), False, False],
            "written": text,
            "runnable": None if blocker else text,
            "links": _links(address["search"], run, text),
        }

    @app.callback(Output("new-estimate", "children"), Input("new-runnable", "data"), State("run", "data"))
    def estimate(text: str | None, run: str | None) -> str:
        """Show the estimated duration, separately, as the checks need not wait for the workload."""
        if text is None:
            return ""
        networks = Networks(view.study)
        begun = begun_from(view.study, run or "", networks)
        form = decode_form(text, view.study.workloads(), networks, begun.form)
        load = load_of(view.study.workload_prefix(form.workload))
        seconds = [estimate_s(*form.setup.configs(), load, backend) for backend in form.backends]
        return f"Takes {duration_estimate(seconds)}, give or take a factor of two."


def _links(search: str | None, run: str, text: str) -> list[Any]:
    """Return the links to the form's files and to a sweep over its settings."""
    address = page_address("/export/new-run.zip", f"?{urlencode({'run': run, 'setup': text})}")
    zipped = html.A("All files as a zip", href=address, className="text-link", download="new-run.zip")
    onward = Selection.parse(search).with_run(run).with_option("setup", text).search
    return [zipped, link_to("Sweep over its settings", "/sweep", onward)]


def _findings(found: list[Finding], changed: list[str] | None) -> Any:
    """Return the findings *found*, and the changes *changed*, which are unknown while a field is invalid."""
    lines = [
        dmc.Group([
            dmc.Badge(item.severity, color=_COLOURS[item.severity], variant="light", className="level"),
            dmc.Text(f"{item.place[0].upper()}{item.place[1:]}: {item.text}", size="sm", className="finding"),
        ], gap="xs", wrap="nowrap")
        for item in found
    ]  # fmt: skip
    if changed is None:
        return dmc.Stack(lines, gap=4)
    title = dmc.Text("Changes to the presets", size="sm", fw=600, mt="xs")
    items = dmc.List([dmc.ListItem(text) for text in changed], size="sm") if changed else empty("Nothing.")
    return dmc.Stack([*lines, title, items], gap=4)


def _register_buttons(app: Dash, view: StudyView) -> None:
    jobs = JobStore(view.study)

    @app.callback(
        output=[Output("new-message", "children"), Output("new-download", "data")],
        inputs={
            "clicks": [Input(name, "n_clicks") for name in ("new-start", "new-yaml", "new-json")],
            "form": _form(State),
        },
        prevent_initial_call=True,
    )
    def act(clicks: list[int | None], form: Any) -> tuple[Any, Any]:
        """Simulate the form in the fields, or offer its files; the browser's state is not used."""
        del form  # read with its ids
        if not any(clicks):
            return no_update, no_update
        read, findings = _read(view)
        problem = _blocker(findings)
        if read is None or (problem and ctx.triggered_id == "new-start"):
            return dmc.Alert(problem, color="red", variant="light"), no_update
        if ctx.triggered_id == "new-yaml":
            content = yaml.safe_dump(read.setup.network_mapping(), sort_keys=False)
            return no_update, {"content": content, "filename": "network.yml"}
        if ctx.triggered_id == "new-json":
            content = json.dumps(read.setup.system_mapping(), indent=2) + "\n"
            return no_update, {"content": content, "filename": "system.json"}
        prefix = view.study.workload_prefix(read.workload)
        for backend in read.backends:
            label = f"{read.label} ({backend})" if read.label else ""
            jobs.submit(experiment_of(read.setup, prefix, backend), label=label, workload=read.workload)
        return dmc.Text("Started. You may close this page meanwhile.", size="sm"), no_update
