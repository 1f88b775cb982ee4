"""Serve a page's configuration as a zip of ASTRA-sim's files."""

from __future__ import annotations

from flask import Flask, Response, abort, request

from ..errors import ChakrascopeError, ConfigError
from ..runner import DEFAULT_BACKEND, Experiment, experiment_archive, sweep_experiment, sweep_names
from ._state import StudyView
from .queries import Networks, begun_from, command_line, decode_form, experiment_of

__all__ = ["register"]


def register(server: Flask, view: StudyView) -> None:
    """Add the routes to *server*; all of them only read."""

    @server.get("/export/new-run.zip")
    def new_run() -> Response:
        workloads = view.study.workloads()
        if not workloads:
            abort(404)
        networks = Networks(view.study)
        begun = begun_from(view.study, request.args.get("run", ""), networks)
        form = decode_form(request.args.get("setup", ""), workloads, networks, begun.form)
        if form.ignored:
            return _refusal(ConfigError(" ".join(form.ignored)))
        backend = form.backends[0] if form.backends else DEFAULT_BACKEND
        command = command_line(form.setup, form.backends, form.workload)
        try:
            experiment = experiment_of(form.setup, view.study.workload_prefix(form.workload), backend)
            return _zip(experiment, command, "new-run.zip")
        except ChakrascopeError as error:
            return _refusal(error)

    @server.get("/export/point.zip")
    def point() -> Response:
        name, identity = request.args.get("sweep", ""), request.args.get("point", "")
        if name not in sweep_names(view.study):
            abort(404)
        try:
            experiment = sweep_experiment(view.study, name, identity)
            command = "chakrascope run STUDY --network network.yml --system system.json --memory memory.json"
            return _zip(experiment, f"{command} --backend {experiment.backend}", "point.zip")
        except ChakrascopeError as error:
            return _refusal(error)


def _zip(experiment: Experiment, command: str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(experiment_archive(experiment, command), mimetype="application/zip", headers=headers)


def _refusal(error: ChakrascopeError) -> Response:
    return Response(error.message, status=400, mimetype="text/plain")
