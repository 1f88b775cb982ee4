"""Starting what the page New run holds, and its files."""

from __future__ import annotations

import json
from typing import Any

import dash_mantine_components as dmc
import yaml
from dash import ALL, Dash, Input, Output, State, ctx, no_update

from ...errors import ConfigError
from ...runner import JobStore, communication_of
from .._state import StudyView
from ..queries import Networks, Setup, check, chosen_backends, experiment_of
from ._configure_form import read_setup

__all__ = ["register_start"]

_LABEL_LENGTH = 120
# The fields, not anything kept in the browser, are what runs: they are read and checked here again.
_FIELDS = (
    State({"form": "dimension", "field": ALL, "number": ALL}, "value"),
    State({"form": "system", "field": ALL}, "value"),
    State("new-network", "value"),
    State("new-system", "value"),
    State("new-failures", "value"),
)


def register_start(app: Dash, view: StudyView) -> None:
    """Wire the buttons that simulate, and that download the files."""
    jobs = JobStore(view.study)

    @app.callback(
        Output("new-message", "children"), Input("new-start", "n_clicks"), *_FIELDS,
        State("new-workload", "value"), State("new-backends", "value"), State("new-machine", "value"),
        State("new-label", "value"),
        prevent_initial_call=True,
    )  # fmt: skip
    def start(  # noqa: PLR0917 - one argument per field of the form
        clicks: int | None, _fields: Any, _system: Any, network: str, system: str,
        failures: str | None, workload: str, backends: list[str] | None, machine: str | None,
        label: str | None,
    ) -> Any:  # fmt: skip
        """Hand the setup to a process of its own."""
        if not clicks:
            return no_update
        try:
            setup = _setup(view, network, system, failures)
        except ConfigError as error:
            return dmc.Alert(error.message, color="red", variant="light")
        chosen = chosen_backends(backends, machine)
        prefix = view.study.workload_prefix(workload)
        found = check(setup, communication_of(prefix), chosen)
        blocker = next((finding.text for finding in found if finding.severity == "error"), "")
        if blocker:
            return dmc.Alert(blocker, color="red", variant="light")
        for backend in chosen:
            experiment = experiment_of(setup, prefix, backend)
            jobs.submit(experiment, label=_label(label, backend), workload=workload)
        return dmc.Text("Started. You may close this page meanwhile.", size="sm")

    @app.callback(
        Output("new-download", "data"), Input("new-yaml", "n_clicks"), Input("new-json", "n_clicks"),
        *_FIELDS, prevent_initial_call=True,
    )  # fmt: skip
    def download(
        yaml_clicks: int | None, json_clicks: int | None, _fields: Any, _system: Any, network: str,
        system: str, failures: str | None,
    ) -> Any:  # fmt: skip
        """Give out the files ASTRA-sim reads."""
        if not (yaml_clicks or json_clicks):
            return no_update
        setup = _setup(view, network, system, failures)
        return _network_file(setup) if ctx.triggered_id == "new-yaml" else _system_file(setup)


def _setup(view: StudyView, network: str, system: str, failures: str | None) -> Setup:
    """Return what the fields hold, inside of a callback that has them as states; raises `ConfigError`."""
    fields, keys = ctx.states_list[:2]
    return read_setup(fields, keys, network, system, failures, Networks(view.study))


def _network_file(setup: Setup) -> dict[str, str]:
    return {"content": yaml.safe_dump(setup.network_mapping(), sort_keys=False), "filename": "network.yml"}


def _system_file(setup: Setup) -> dict[str, str]:
    return {"content": json.dumps(setup.system_mapping(), indent=2) + "\n", "filename": "system.json"}


def _label(label: str | None, backend: str) -> str:
    return f"{label[:_LABEL_LENGTH]} ({backend})" if label else ""
