"""New run: choose a platform, change what the customer has otherwise, and simulate while you watch."""

from __future__ import annotations

import json
from typing import Any

import dash_mantine_components as dmc
import yaml
from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update

from ...errors import ChakrascopeError
from ...runner import (
    Experiment,
    JobStore,
    NetworkConfig,
    SystemConfig,
    backend_names,
    backend_report,
    list_presets,
    prepare,
)
from ..charts import graph, topology_sketch
from ..queries.configure import Finding, Setup, check, command_line, differences
from ..state import Selection, StudyView
from ..theme import run_options
from .configure_form import dimension_rows, read_setup, system_fields
from .configure_jobs import job_list
from .parts import card, empty

__all__ = ["NEEDS_RUN", "PATH", "TITLE", "layout", "register"]

PATH, TITLE = "/new-run", "New run"
NEEDS_RUN = False
_POLL_MS = 700
_LABEL_LENGTH = 120
_COLOURS = {"error": "red", "warning": "yellow", "note": "gray"}
_FIRST_NETWORK, _FIRST_SYSTEM = "cpu-cluster-16", "default"
_HIDDEN_BACKENDS = ("fake",)


def layout(view: StudyView, selection: Selection, scheme: str) -> Any:
    """Return the page; it needs a workload but no run."""
    del selection
    names = view.study.workloads()
    if not names:
        return card(
            "This study has no workload yet",
            empty("Capture a training job with `chakrascope trace -o STUDY -- torchrun ... train.py`, "
                  "convert it with `chakrascope convert STUDY`, then reload this page."),
        )  # fmt: skip
    network = _FIRST_NETWORK if _FIRST_NETWORK in list_presets("network") else list_presets("network")[0]
    setup = Setup.of_presets(network, _FIRST_SYSTEM)
    return dmc.Stack(
        [
            dmc.Title(TITLE, order=2),
            dcc.Store(id="jobs-seen"),
            dcc.Interval(id="jobs-clock", interval=_POLL_MS),
            _choices(names, setup),
            card("Runs started here", html.Div(id="job-list", **{"aria-live": "polite"})),
            card("Network", html.Div(dimension_rows(setup.dimensions), id="dimension-rows"),
                 note="Dimension 1 is the innermost, such as the links inside a host. Bandwidth and latency "
                 "are those of one link in one direction (GiB/s: 2³⁰ bytes a second, as ASTRA-sim has it). "
                 "The last columns: the algorithm by which each collective goes through the dimension."),
            card("System", html.Div(system_fields(setup.system), id="system-fields")),
            dmc.SimpleGrid([
                card("Check", html.Div(id="findings")),
                card("Topology", html.Div(graph(topology_sketch(setup.dimensions, scheme)), id="sketch")),
            ], cols=2),
            _elsewhere(),
        ],
        gap="md",
    )  # fmt: skip


def _choices(names: list[str], setup: Setup) -> dmc.Paper:
    preset = {"w": 260, "allowDeselect": False, "searchable": True}
    return card(
        "What to simulate, and on what",
        dmc.Group(
            [
                dmc.Select(id="new-workload", label="Workload", data=names, value=names[-1], **preset),
                dmc.Select(id="new-network", label="Platform preset", data=list_presets("network"),
                           value=setup.network_preset, **preset),
                dmc.Select(id="new-system", label="System preset", data=list_presets("system"),
                           value=setup.system_preset, **preset),
                dmc.NumberInput(id="new-dimensions", label="Network dimensions", min=1, max=4, w=150,
                                value=len(setup.dimensions), allowDecimal=False),
            ],
            align="end",
        ),
        _backends(),
        dmc.Group(
            [
                dmc.TextInput(id="new-label", label="Name of the run", placeholder="optional", w=320),
                dmc.Button("Simulate", id="new-start"),
                dmc.Text(id="new-blocker", size="sm", c="red", className="finding"),
                html.Div(id="new-message"),
            ],
            align="end",
            mt="xs",
        ),
        note="A preset is a start: below, change what the customer has otherwise.",
    )  # fmt: skip


def _backends() -> dmc.MultiSelect:
    """Return the choice of backends; those this machine lacks are listed but cannot be chosen."""
    report = [row for row in backend_report() if row["backend"] not in _HIDDEN_BACKENDS]
    data = [
        {"value": row["backend"], "label": row["backend"], "disabled": row["usable"] == "no"}
        for row in report
    ]
    told = "; ".join(f"{row['backend']}: {row['what']}" for row in report if row["usable"] != "no")
    return dmc.MultiSelect(
        id="new-backends",
        label="Backends",
        data=data,
        mt="xs",
        value=["analytical-unaware"],
        description=told,
    )


def _elsewhere() -> dmc.Paper:
    return card(
        "The same elsewhere",
        dmc.Group(
            [
                dmc.Button("network.yml", id="new-yaml", variant="default", size="xs"),
                dmc.Button("system.json", id="new-json", variant="default", size="xs"),
            ],
            mb="xs",
        ),
        dmc.Code(id="new-command", block=True),
        dcc.Download(id="new-download"),
        note="The files as ASTRA-sim reads them, and the command that does the same; where nothing differs "
        "from the presets it names these.",
    )


def register(app: Dash, view: StudyView) -> None:
    """Wire the form, its checks, starting, and the list of jobs."""
    jobs = JobStore(view.study)
    _register_form(app, view)
    _register_start(app, view, jobs)
    _register_jobs(app, view, jobs)


def _register_form(app: Dash, view: StudyView) -> None:
    @app.callback(
        Output("dimension-rows", "children"), Output("system-fields", "children"),
        Output("new-dimensions", "value"), Input("new-network", "value"), Input("new-system", "value"),
        Input("new-dimensions", "value"), State({"form": "dimension", "field": ALL, "number": ALL}, "value"),
        State({"form": "system", "field": ALL}, "value"), prevent_initial_call=True,
    )  # fmt: skip
    def rebuild(network: str, system: str, count: Any, _fields: Any, _system: Any) -> tuple[Any, Any, Any]:
        """Fill the form from the presets, or change the number of dimensions and keep what was entered."""
        if ctx.triggered_id != "new-dimensions":
            setup = Setup.of_presets(network, system)
            return dimension_rows(setup.dimensions), system_fields(setup.system), len(setup.dimensions)
        setup = read_setup(ctx.states_list[0], ctx.states_list[1], network, system)
        wanted = min(4, max(1, int(count or 1)))
        if wanted == len(setup.dimensions):
            return no_update, no_update, no_update
        return dimension_rows(setup.with_count(wanted).dimensions), no_update, no_update

    @app.callback(
        Output("findings", "children"), Output("sketch", "children"), Output("new-command", "children"),
        Output("new-start", "disabled"), Output("new-blocker", "children"),
        Input({"form": "dimension", "field": ALL, "number": ALL}, "value"),
        Input({"form": "system", "field": ALL}, "value"), Input("new-workload", "value"),
        Input("new-backends", "value"), State("new-network", "value"), State("new-system", "value"),
        State("dark", "checked"),
    )  # fmt: skip
    def examine(
        _fields: Any, _system: Any, workload: str, backends: list[str], network: str, system: str, dark: bool
    ) -> tuple[Any, ...]:
        """Check what was entered and draw it."""
        setup = read_setup(ctx.inputs_list[0], ctx.inputs_list[1], network, system)
        found = check(setup, view.workload_ranks(workload), backends or [])
        sketch = graph(topology_sketch(setup.dimensions, "dark" if dark else "light"))
        blocker = _blocker(found)
        command = command_line(setup, backends or [])
        return _findings(found, differences(setup)), sketch, command, bool(blocker), blocker


def _blocker(found: list[Finding]) -> str:
    return next((finding.text for finding in found if finding.level == "error"), "")


def _findings(found: list[Finding], changed: list[str]) -> Any:
    lines = [
        dmc.Group([dmc.Badge(item.level, color=_COLOURS[item.level], variant="light", className="level"),
                   dmc.Text(item.text, size="sm", className="finding")], gap="xs", wrap="nowrap")
        for item in found
    ]  # fmt: skip
    title = dmc.Text("Different from the presets", size="sm", fw=600, mt="xs")
    items = dmc.List([dmc.ListItem(text) for text in changed], size="sm") if changed else empty("Nothing.")
    return dmc.Stack([*lines, title, items], gap=4)


def _register_start(app: Dash, view: StudyView, jobs: JobStore) -> None:
    # The fields, not anything kept in the browser, are what runs: they are read and checked here again.
    fields = (
        State({"form": "dimension", "field": ALL, "number": ALL}, "value"),
        State({"form": "system", "field": ALL}, "value"), State("new-network", "value"),
        State("new-system", "value"),
    )  # fmt: skip

    @app.callback(
        Output("new-message", "children"), Input("new-start", "n_clicks"), *fields,
        State("new-workload", "value"), State("new-backends", "value"), State("new-label", "value"),
        prevent_initial_call=True,
    )  # fmt: skip
    def start(  # noqa: PLR0917 - one argument a field of the form
        clicks: int | None, _fields: Any, _system: Any, network: str, system: str, workload: str,
        backends: list[str] | None, label: str | None,
    ) -> Any:  # fmt: skip
        """Hand the setup to a process of its own."""
        if not clicks:
            return no_update
        setup = read_setup(ctx.states_list[0], ctx.states_list[1], network, system)
        chosen = [name for name in backends or [] if name in backend_names()]
        blocker = _blocker(check(setup, view.workload_ranks(workload), chosen))
        if blocker:
            return dmc.Alert(blocker, color="red", variant="light")
        for backend in chosen:
            jobs.submit(
                _experiment(view, setup, workload, backend), label=_label(label, backend), workload=workload
            )
        return dmc.Text("Started. You may close this page meanwhile.", size="sm")

    @app.callback(
        Output("new-download", "data"), Input("new-yaml", "n_clicks"), Input("new-json", "n_clicks"), *fields,
        prevent_initial_call=True,
    )  # fmt: skip
    def download(
        yaml_clicks: int | None,
        json_clicks: int | None,
        _fields: Any,
        _system: Any,
        network: str,
        system: str,
    ) -> Any:
        """Give out the files ASTRA-sim reads."""
        if not (yaml_clicks or json_clicks):
            return no_update
        setup = read_setup(ctx.states_list[0], ctx.states_list[1], network, system)
        if ctx.triggered_id == "new-yaml":
            content = yaml.safe_dump(setup.network_mapping(), sort_keys=False)
            return {"content": content, "filename": "network.yml"}
        return {"content": json.dumps(setup.system_mapping(), indent=2) + "\n", "filename": "system.json"}


def _experiment(view: StudyView, setup: Setup, workload: str, backend: str) -> Experiment:
    name = setup.network_preset + (" (changed)" if differences(setup) else "")
    network = NetworkConfig.from_mapping(setup.network_mapping(), "The network", name)
    system = SystemConfig.from_mapping(setup.system_mapping(), "The system")
    return prepare(view.study.workload_prefix(workload), system, network, backend=backend)


def _label(label: str | None, backend: str) -> str:
    return f"{label[:_LABEL_LENGTH]} ({backend})" if label else ""


def _register_jobs(app: Dash, view: StudyView, jobs: JobStore) -> None:
    @app.callback(
        Output("job-list", "children"), Output("run-select", "data"), Output("jobs-seen", "data"),
        Input("jobs-clock", "n_intervals"), Input({"form": "cancel", "job": ALL}, "n_clicks"),
        State("jobs-seen", "data"),
    )  # fmt: skip
    def look(_ticks: int | None, clicks: list[int | None], seen: Any) -> tuple[Any, Any, Any]:
        """Show how far every job is; a click asks one to stop."""
        if isinstance(ctx.triggered_id, dict) and any(clicks):
            jobs.cancel(int(ctx.triggered_id["job"]))
        try:
            jobs.resume()
            listed = jobs.jobs()[::-1]
        except ChakrascopeError as error:
            # Told in its place: this is asked again and again, and would be a notification each time.
            return dmc.Alert(error.message, color="red", variant="light"), no_update, no_update
        state = [[job.id, job.state, job.done, job.simulated_ns] for job in listed]
        if state == seen:
            return no_update, no_update, no_update
        runs = view.runs()
        return job_list(listed, {info.id for info in runs}), run_options(runs), state
