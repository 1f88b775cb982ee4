"""New run page: choose presets of network and system, change their settings, and simulate."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.exceptions import PreventUpdate

from ...errors import ChakrascopeError, ConfigError, StudyError
from ...runner import backend_report, list_presets
from ...runner.gpu import list_machines
from ...runner.study import add_network
from .._state import Selection, StudyView
from ..charts import graph, topology_sketch
from ..queries import (
    Form,
    Networks,
    Setup,
    first_form,
    fixed_keys_text,
    form_at,
    is_offered,
    machine_of,
    machine_text,
    plain_backend,
    systems_for,
    takes_machine,
)
from ._configure_form import (
    LABEL_LENGTH,
    backend_model,
    dimension_rows,
    field_states,
    meanings,
    read_system,
    register_start,
    rows_of,
    setup_rows,
    system_fields,
)
from ._jobs import jobs_card
from ._parts import (
    BY_CTRL_ENTER,
    begun_notice,
    card,
    ignored_notice,
    no_workload,
    page_title,
)

PATH, TITLE = "/new-run", "New run"
_ABOUT = (
    "A simulation of a workload on a network and a system of your choice. Start from a preset, press "
    "Simulate, and open the result in the list of jobs."
)
NEEDS_RUN = False
_LARGEST_UPLOAD = 700_000  # base64 adds a third, and requests are limited to a MiB


def layout(view: StudyView, selection: Selection, scheme: str) -> Any:
    """Return the page New run, which needs a workload but no earlier run."""
    names = view.study.workloads()
    if not names:
        return no_workload(selection.search)
    networks = Networks(view.study)
    form, begun = form_at(view, selection)
    return dmc.Stack(
        [
            page_title(TITLE, _ABOUT),
            None if selection.option("setup") else begun_notice(begun),
            dcc.Store(id="new-written", data=selection.option("setup")),
            html.Div(ignored_notice(form.ignored), id="new-ignored"),
            html.Div(_form(form, names, networks, scheme), id="new-form"),
            _elsewhere(),
        ],
        gap="md",
    )


def _form(form: Form, names: Sequence[str], networks: Networks, scheme: str) -> dmc.Stack:
    setup = form.setup
    return dmc.Stack(
        [
            _choices(form, names, networks),
            jobs_card(),
            dmc.SimpleGrid([
                card("Check", html.Div(id="findings", **{"aria-live": "polite"})),
                card("Topology", html.Div(graph(topology_sketch(setup.dimensions, scheme)), id="sketch"),
                     note="The drawing shows one group of ranks in each dimension, innermost first."),
            ], cols={"base": 1, "md": 2}),
            card("Network", html.Div(dimension_rows(setup_rows(setup.dimensions)), id="dimension-rows",
                                     className="wide"),
                 dmc.Text(fixed_keys_text(setup), id="new-kept", size="sm"),
                 note="Dimension 1 is the innermost, such as the links inside a host. The last columns name "
                 "the algorithm that each collective uses in the dimension."),
            card("System", html.Div(system_fields(setup.system), id="system-fields")),
            meanings(),
        ],
        gap="md",
    )  # fmt: skip


def _choices(form: Form, names: Sequence[str], networks: Networks) -> dmc.Paper:
    preset = {"w": 200, "allowDeselect": False, "searchable": True}
    return card(
        "Workload, machine and backend",
        dmc.Group(
            [
                dmc.Select(id="new-workload", label="Workload", data=[*names], value=form.workload, **preset),
                dmc.Select(id="new-cluster", label="Machine", value=form.setup.machine or None, w=200,
                           data=[{"group": chip, "items": of} for chip, of in networks.machines.items()],
                           placeholder="none", clearable=True, searchable=True),
                dmc.Select(id="new-network", label="Network", **_platforms(form.setup, networks), **preset),
                dmc.Select(id="new-system", label="System preset", **_systems(form.setup), **preset),
                dmc.Select(id="new-dimensions", label="Network dimensions", w=150, allowDeselect=False,
                           data=[*_DIMENSIONS], value=str(len(form.setup.dimensions))),
            ],
            align="end",
        ),
        dmc.Text(machine_text(form.setup), id="new-scaling", size="sm", className="finding"),
        dmc.Group(
            [
                dmc.TextInput(id="new-failures", label="Failures of links and switches", w=492, debounce=True,
                              placeholder="none; such as 64,72=0.25@5ms..8ms; 22",
                              value="; ".join(form.setup.failed)),
                dcc.Upload(dmc.Button("Add a network file", variant="default"), id="new-upload",
                           max_size=_LARGEST_UPLOAD, accept=".yml,.yaml,.json,.xml"),
                dcc.Upload(dmc.Button("Load a system file", variant="default"), id="new-system-upload",
                           max_size=_LARGEST_UPLOAD, accept=".json"),
                dmc.Text(id="new-uploaded", size="sm", className="finding", **{"aria-live": "polite"}),
            ],
            align="end", mt="xs",
        ),
        _backends(form.backends),
        dmc.Group(
            [
                dmc.TextInput(id="new-label", label="Name of the run", placeholder="optional", w=320,
                              value=form.label, debounce=True),
                dmc.Button("Simulate", id="new-start", **BY_CTRL_ENTER),
                dmc.Text(id="new-blocker", size="sm", c="red", className="finding"),
                html.Div(id="new-message"),
            ],
            align="end",
            mt="xs",
        ),
        note="Start from a machine (chips with their network), a preset, or your own network file (YAML, "
            "InfraGraph, XML of lstopo or NCCL), which the study stores. Then change the settings below. "
            "The address contains all settings.",
    )  # fmt: skip


def _platforms(setup: Setup, networks: Networks) -> dict[str, Any]:
    """Return the properties of the network selector, disabled while a machine is chosen."""
    names = dict.fromkeys([*list_presets("network"), *([setup.network_preset] if setup.machine else [])])
    groups = {"Files of this study": networks.files, "Presets": [*names]}
    data = [{"group": group, "items": items} for group, items in groups.items() if items]
    return {"data": data, "value": setup.network_preset, "disabled": bool(setup.machine)}


def _systems(setup: Setup) -> dict[str, Any]:
    """Return the properties of the system selector, which offers what fits the network."""
    data = systems_for(setup.network_preset)
    return {"data": data, "value": setup.system_preset, "disabled": bool(setup.machine)}


def _backends(chosen: Sequence[str]) -> dmc.Group:
    """Return the controls for the backends, and for the machine of ``gpu``, which others do not show."""
    machine = dmc.Select(
        id="new-machine", label="Machine of gpu", data=list_machines(), value=machine_of(chosen),
        allowDeselect=False, disabled=not any(map(takes_machine, chosen)), miw=150, w=150,
        className="gpu-machine",
    )  # fmt: skip
    return dmc.Group([_backend_list(chosen), machine], align="start", mt="xs", wrap="nowrap")


def _backend_list(chosen: Sequence[str]) -> dmc.MultiSelect:
    """Return the list of backends, each with the reason if it is unavailable."""
    report = backend_report()
    data = [
        {"value": row["backend"], "label": row["backend"], "disabled": False}
        if row["usable"] != "no"
        else {"value": row["backend"], "label": f"{row['backend']}: {row['found']}", "disabled": True}
        for row in report
    ]
    names = [*map(plain_backend, chosen)]
    return dmc.MultiSelect(
        id="new-backends", label="Backends", data=data, value=names, description=_models(names), flex=1
    )


def _models(names: Sequence[str]) -> list[html.Div]:
    """Describe the model of each of *names* on a line."""
    return [html.Div(f"{name}: {backend_model(name)}") for name in names]


def _elsewhere() -> dmc.Paper:
    return card(
        "Files and command",
        dmc.Group(
            [
                dmc.Button("network.yml", id="new-yaml", variant="default", size="xs"),
                dmc.Button("system.json", id="new-json", variant="default", size="xs"),
                html.Span(id="new-zip"),
                html.Span(id="new-sweep"),
            ],
            mb="xs",
        ),
        dmc.Code(id="new-command", block=True),
        dcc.Download(id="new-download"),
        note="The zip contains the workload and the files that ASTRA-sim reads. The command runs the same "
        "simulation; it names presets if no setting differs from them.",
    )


def register(app: Dash, view: StudyView) -> None:
    """Register the callbacks that fill, check and simulate the form, and store the form in the address."""
    _register_fields(app, view)
    for form, path in (("dimension", {"field": ALL, "number": ALL}), ("system", {"field": ALL})):
        _register_states(app, form, path)
    _register_upload(app, view)
    _register_system_upload(app)
    _register_address(app, view)
    register_start(app, view, PATH)


_DIMENSIONS = ("1", "2", "3", "4")
# The selectors that determine the initial content of a form, and their properties.
_STARTS = ("cluster", "network", "system", "dimensions", "workload")
_CHOICE = ("data", "value", "disabled")


def _register_fields(app: Dash, view: StudyView) -> None:
    @app.callback(
        output={
            "rows": Output("dimension-rows", "children"),
            "system": Output("system-fields", "children"),
            "count": Output("new-dimensions", "value"),
            "kept": Output("new-kept", "children"),
            "machine": Output("new-cluster", "value"),
            "networks": {name: Output("new-network", name) for name in _CHOICE},
            "systems": {name: Output("new-system", name) for name in _CHOICE},
        },
        inputs={
            "chosen": {name: Input(f"new-{name}", "value") for name in _STARTS},
            "fields": State({"form": "dimension", "field": ALL, "number": ALL}, "value"),
        },
        prevent_initial_call=True,
    )
    def rebuild(chosen: dict[str, Any], fields: Any) -> dict[str, Any]:
        """Fill the form from a machine or presets, or only change its number of dimensions."""
        del fields  # `rows_of` reads fields and ids from the callback context
        nothing: dict[str, Any] = dict.fromkeys(("rows", "system", "count", "kept", "machine"), no_update)
        nothing |= dict.fromkeys(("networks", "systems"), dict.fromkeys(_CHOICE, no_update))
        triggered = {*ctx.triggered_prop_ids.values()}
        if triggered == {"new-dimensions"}:
            rows, text = rows_of(ctx.args_grouping["fields"]), str(chosen["dimensions"])
            wanted = int(text) if text in _DIMENSIONS else len(rows)
            if wanted == len(rows):
                raise PreventUpdate
            more = [{**rows[-1], "size": "2"}] * (wanted - len(rows))
            return nothing | {"rows": dimension_rows([*rows[:wanted], *more])}
        # Everything changed, because the form was drawn again from the address.
        if len(triggered) > 1 or (triggered == {"new-workload"} and not chosen["cluster"]):
            raise PreventUpdate
        machine = "" if triggered == {"new-network"} else chosen["cluster"] or ""
        networks = Networks(view.study)
        try:
            setup = _chosen_setup(chosen, machine, networks)
        except ChakrascopeError as error:
            return nothing | {"kept": error.message}
        rows = setup_rows(setup.dimensions)
        return {
            "rows": dimension_rows(rows), "system": system_fields(setup.system), "count": str(len(rows)),
            "kept": fixed_keys_text(setup), "machine": machine or None,
            "networks": _platforms(setup, networks),
            "systems": _systems(setup),
        }  # fmt: skip

    @app.callback(
        Output("new-machine", "disabled"), Output("new-backends", "description"),
        Input("new-backends", "value"),
    )  # fmt: skip
    def describe(backends: list[str] | None) -> tuple[bool, list[html.Div]]:
        """Describe the selected backends, and disable the choice of a machine that none of them needs."""
        names = [name for name in backends or [] if is_offered(name)]
        return not any(map(takes_machine, names)), _models(names)


def _chosen_setup(chosen: Mapping[str, Any], machine: str, networks: Networks) -> Setup:
    """Return the setup of *machine* or, without one, of the chosen network and a system that fits."""
    network = chosen["network"]
    if not machine and network not in networks.names:  # the network of the previously chosen machine
        network = first_form([chosen["workload"]]).setup.network_preset
    system = chosen["system"] if chosen["system"] in systems_for(network) else "default"
    return networks.start(network, system, machine, chosen["workload"])


def _register_upload(app: Dash, view: StudyView) -> None:
    @app.callback(
        Output("new-network", "data", allow_duplicate=True),
        Output("new-network", "value", allow_duplicate=True), Output("new-uploaded", "children"),
        Input("new-upload", "contents"), State("new-upload", "filename"), prevent_initial_call=True,
    )  # fmt: skip
    def upload(contents: str | None, filename: str | None) -> tuple[Any, Any, str]:
        """Store an uploaded network in the study and select it."""
        if not contents:
            return no_update, no_update, ""
        try:
            content = base64.b64decode(contents.partition(",")[2], validate=True)
            name = add_network(view.study, str(filename or ""), content)
        except (ConfigError, StudyError) as error:
            return no_update, no_update, error.message
        except ValueError:
            return no_update, no_update, "The upload was incomplete; add the file again."
        networks = Networks(view.study)
        data = _platforms(networks.start(name, "default"), networks)["data"]
        return data, name, f"The study stores the file as {name}."


def _register_system_upload(app: Dash) -> None:
    @app.callback(
        Output("dimension-rows", "children", allow_duplicate=True),
        Output("system-fields", "children", allow_duplicate=True),
        Output("new-uploaded", "children", allow_duplicate=True), Input("new-system-upload", "contents"),
        State("new-system-upload", "filename"),
        State({"form": "dimension", "field": ALL, "number": ALL}, "value"), prevent_initial_call=True,
    )  # fmt: skip
    def fill(contents: str | None, filename: str | None, _fields: Any) -> tuple[Any, Any, str]:
        """Fill the form from an ASTRA-sim system file; report the keys without a field."""
        if not contents:
            return no_update, no_update, ""
        name = str(filename or "The system file")[:LABEL_LENGTH]
        try:
            text = base64.b64decode(contents.partition(",")[2], validate=True).decode("utf-8")
            found = read_system(text, name, rows_of(ctx.states_list[1]))
        except ConfigError as error:
            return no_update, no_update, error.message
        except ValueError:
            return no_update, no_update, f"{name} is not text; choose a system file, such as system.json."
        return dimension_rows(found.rows), system_fields(found.system), found.remarks


def _register_states(app: Dash, form: str, path: dict[str, Any]) -> None:
    @app.callback(
        Output({"form": form, **path}, "error"), Output({"told": form, **path}, "children"),
        Input({"form": form, **path}, "value"),
    )  # fmt: skip
    def show_readings(_values: Any) -> tuple[list[str], list[str]]:
        """Show next to each field the error in its text, or the value of its text."""
        return field_states(ctx.inputs_list[0])


def _register_address(app: Dash, view: StudyView) -> None:
    """Register the callback that redraws the form when the address changes."""

    @app.callback(
        Output("new-form", "children"), Output("new-written", "data", allow_duplicate=True),
        Output("new-ignored", "children"), Input("url", "search"), State("new-written", "data"),
        State("dark", "checked"), prevent_initial_call=True,
    )  # fmt: skip
    def follow(search: str | None, written: str | None, dark: bool) -> tuple[Any, Any, Any]:
        """Redraw the form if the browser changed the address, for example by Back."""
        selection = Selection.parse(search)
        text = selection.option("setup")
        if text == (written or ""):
            return no_update, no_update, no_update
        form, _ = form_at(view, selection)
        drawn = _form(form, view.study.workloads(), Networks(view.study), "dark" if dark else "light")
        return drawn, text, ignored_notice(form.ignored)
