"""The fields of the page New run: build, parse and explain them, and handle the buttons."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

import dash_mantine_components as dmc
import yaml
from dash import ALL, Dash, Input, Output, State, ctx, html, no_update

from ...converter import Finding
from ...errors import ChakrascopeError, ConfigError
from ...runner import JobStore, SystemConfig, about_backend, backend_names, communication_of
from ...runner.config import failure_of_text
from ...runner.engine import ALGORITHMS, COLLECTIVES, TOPOLOGIES
from ...support.documents import json_mapping
from .._address import set_option
from .._state import Selection, StudyView
from ..charts import graph, topology_sketch
from ..queries import (
    DIMENSION_FIELDS,
    NUMBER_FIELDS,
    SYSTEM_FIELDS,
    Dimension,
    Form,
    Networks,
    Setup,
    begun_from,
    check,
    chosen_backends,
    command_line,
    differences,
    encode_form,
    experiment_of,
    machine_text,
    typed_text,
)
from ._parts import empty, error_alert, finding_line, link_to, page_address, rows_table

Row = dict[str, Any]
"""A network dimension's fields by name; numbers are texts as typed."""

# Numeric fields: key of the system file -> help text.
_NUMBERS: dict[str, str] = {
    "preferred-dataset-splits": "number of pieces of a collective",
    "active-chunks-per-dimension": "in flight at once per dimension",
    "endpoint-delay": "per message, at its endpoint",
    "local-mem-bw": "per chip: reductions, roofline",
    "peak-perf": "per chip: roofline",
}
# Choices: key of the system file -> label, help text, and titles of the values, of which the first
# is the default.
_CHOICES: dict[str, tuple[str, str, dict[str, str]]] = {
    "collective-optimization": (
        "Collective optimization",
        "all-reduce in dimensions",
        {"baseline": "baseline", "localBWAware": "bandwidth aware"},
    ),
    "inter-dimension-policy": (
        "Order of dimensions",
        "that a chunk goes through",
        {"ascending": "ascending", "round-robin": "round robin", "greedy": "greedy (Themis)"},
    ),
    "intra-dimension-policy": (
        "Order of chunks",
        "within a dimension",
        {
            "FIFO": "in order of arrival",
            "smallest-first": "smallest first",
            "less-remaining-phase-first": "fewest phases left first",
            "reduce-first": "reduce-scatter first",
        },
    ),
    "roofline-enabled": (
        "Compute times",
        "measured or modelled",
        {"0": "as measured", "1": "roofline model"},
    ),
}
_MEANINGS = (
    ("Shape", (
        "How the ranks of one group are connected: by a switch, in a ring, or each rank with every other "
        "rank."
    )),
    ("Numbers", "A number alone is in the unit of its label. Other units, thousands separators and exponents "
     "are accepted: 10 GB/s, 80 Gb/s, 9.3 GiB/s, 1.5 us, 2 ms, 1,024, 1e3. The parsed value is shown below "
     "the field."),
    ("Size", (
        "Number of ranks in one group of the dimension. The product of all sizes is the number of ranks of "
        "the cluster."
    )),
    ("Bandwidth", "Bandwidth of one link in one direction, in GiB/s (2³⁰ bytes per second), as in ASTRA-sim. "
     "A 400 Gb/s port has 46.6 GiB/s. The check below shows the bandwidth in GB/s and Gb/s."),
    ("Latency", "Latency of one link in ns: the time that the first byte takes. Typical values are 500 "
     "inside a host, and 1,000 to 10,000 between hosts."),
    ("ring", "Each rank forwards pieces to its neighbour, in n−1 steps: best for large messages."),
    ("direct", "Each rank sends to every other rank at the same time: best for small messages on a switch."),
    ("halvingDoubling", (
        "Pairs of ranks at doubling distances exchange data, in log₂ n steps; sizes must be powers of two."
    )),
    ("doubleBinaryTree", "Two trees work at the same time, in log₂ n steps; sizes must be powers of two."),
    ("Chunks", "A collective is split into this number of chunks, so that one chunk is in the second "
        "dimension while the next is in the first. More chunks overlap more, but take longer to simulate."),
    ("Roofline", "Replaces the measured time of a compute node by the longer of its operations over the peak "
     "and its bytes over the memory bandwidth: for chips that you do not have."),
)  # fmt: skip


def setup_rows(dimensions: Sequence[Dimension]) -> list[Row]:
    """Return the fields' texts for *dimensions*, a row each."""
    return [
        {"topology": each.topology, "size": typed_text(each.size), "bandwidth": typed_text(each.bandwidth),
         "latency": typed_text(each.latency), **dict(zip(COLLECTIVES, each.algorithms, strict=True))}
        for each in dimensions
    ]  # fmt: skip


def rows_of(dimension_fields: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return a row of texts per dimension from fields with id and value, as Dash lists them."""
    rows: dict[int, Row] = {}
    for item in dimension_fields:
        rows.setdefault(int(item["id"]["number"]), {})[item["id"]["field"]] = item.get("value")
    return [rows[number] for number in sorted(rows)]


def dimension_rows(rows: Sequence[Row]) -> Any:
    """Return a table of fields, a row per dimension."""
    head = ["#", "Shape", *(field.label for field in DIMENSION_FIELDS.values()), *COLLECTIVES]
    body = [_row(number, row) for number, row in enumerate(rows)]
    return rows_table(head, body, className="form-table", withRowBorders=False)


def _row(number: int, row: Row) -> list[Any]:
    def name(field: str) -> dict[str, Any]:
        return {"form": "dimension", "field": field, "number": number}

    def label(field: str) -> dict[str, str]:
        return {"aria-label": f"{field} of dimension {number + 1}"}

    return [
        str(number + 1),
        dmc.Select(id=name("topology"), data=sorted({*TOPOLOGIES, str(row["topology"])}),
                   value=row["topology"], allowDeselect=False, **label("shape")),
        *(
            html.Div([
                dmc.TextInput(id=name(field), value=row.get(field), **label(field)),
                html.Div(id={"told": "dimension", "field": field, "number": number}, className="understood"),
            ])
            for field in DIMENSION_FIELDS
        ),
        *(
            dmc.Select(id=name(collective), data=sorted({*ALGORITHMS, str(row[collective])}),
                       value=row[collective], allowDeselect=False, **label(collective))
            for collective in COLLECTIVES
        ),
    ]  # fmt: skip


def system_fields(system: Mapping[str, Any]) -> Any:
    """Return the fields for all keys of a system file except collective algorithms."""
    fields: list[Any] = [
        html.Div([
            dmc.TextInput(id={"form": "system", "field": key}, label=NUMBER_FIELDS[key].label,
                          description=text, value=typed_text(system.get(key)), placeholder="not given"),
            html.Div(id={"told": "system", "field": key}, className="understood"),
        ])
        for key, text in _NUMBERS.items()
    ]  # fmt: skip
    fields += [
        dmc.Select(
            id={"form": "system", "field": key}, label=label, description=text, allowDeselect=False,
            data=[{"value": value, "label": name} for value, name in names.items()],
            value=_chosen(system, key),
        )
        for key, (label, text, names) in _CHOICES.items()
    ]  # fmt: skip
    return dmc.SimpleGrid(fields, cols={"base": 3, "lg": 5}, spacing="sm")


def _chosen(system: Mapping[str, Any], key: str) -> str:
    value = system.get(key)
    return next(iter(_CHOICES[key][2])) if value is None else str(int(value) if value in (0, 1) else value)


def backend_model(name: str) -> str:
    """Describe the model of the backend *name*."""
    about = about_backend(name)
    return about.details or about.what


def meanings() -> dmc.Accordion:
    """Return a collapsed panel that explains fields and backends."""
    backends = [(name, backend_model(name)) for name in backend_names() if about_backend(name).offered]
    parts = [html.Div([html.Dt(name), html.Dd(text)]) for name, text in (*_MEANINGS, *backends)]
    item = dmc.AccordionItem(
        [
            dmc.AccordionControl("What the fields and the backends mean"),
            dmc.AccordionPanel(html.Dl(parts, className="details")),
        ],
        value="meanings",
    )
    return dmc.Accordion(item, variant="separated", id="new-meanings")


def field_states(items: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Return the errors of the fields, and the parsed values of numeric ones as text.

    Choices have neither.
    """
    wrong, understood = [], []
    for item in items:
        field = {**DIMENSION_FIELDS, **NUMBER_FIELDS}.get(item["id"]["field"])
        reading = field.read(item.get("value")) if field is not None else None
        wrong.append(reading.short if reading is not None else "")
        understood += [reading.understood] if reading is not None else []
    return wrong, understood


def read_setup(
    dimension_fields: Sequence[Mapping[str, Any]],
    system_values: Sequence[Mapping[str, Any]],
    start: Setup,
    failures: str | None = "",
) -> Setup:
    """Return the setup in the form's fields, which have id and value.

    Keys without a field keep the value of *start*, whatever the browser sends. Raises `ConfigError`
    for the first invalid field.
    """
    dimensions = tuple(_dimension(number, row) for number, row in enumerate(rows_of(dimension_fields), 1))
    system = dict(start.system)
    for item in system_values:
        key, value = item["id"]["field"], item.get("value")
        if key in SYSTEM_FIELDS:
            _put(system, key, NUMBER_FIELDS[key].value(value) if key in NUMBER_FIELDS else value)
    return replace(start, dimensions=dimensions, system=system, failed=_failed(failures or ""))


@dataclass(frozen=True)
class SystemFile:
    """The values in a system file: network *rows*, *system* keys, and *remarks* about the file."""

    rows: list[Row]
    system: dict[str, Any]
    remarks: str


def read_system(text: str, name: str, rows: Sequence[Row]) -> SystemFile:
    """Parse the system file *text* for *rows* of dimensions.

    Errors call the file *name*. Raises `ConfigError` if it is no system file.
    """
    data = json_mapping(text, name)
    system = SystemConfig.from_mapping(data, name).to_dict()
    chosen = {key: value for key, value in system.items() if key in SYSTEM_FIELDS}
    algorithms = {each: f"{each}-implementation" for each in COLLECTIVES}
    filled = [
        row
        | {each: system[key][number] for each, key in algorithms.items() if len(system.get(key, [])) > number}
        for number, row in enumerate(rows)
    ]
    remarks = [f"Loaded from {name}."]
    counts = {len(system[key]) for key in algorithms.values() if key in system}
    if counts - {len(rows)}:
        remarks.append(f"The file is for {max(counts)} dimensions, but the network has {len(rows)}.")
    lost = sorted(key for key in data if key not in SYSTEM_FIELDS and key not in algorithms.values())
    if lost:
        remarks.append(f"Not loaded, as the form has no fields for them: {', '.join(lost)[:200]}.")
    return SystemFile(filled, chosen, " ".join(remarks))


def _failed(text: str) -> tuple[str, ...]:
    """Return the failures in a field, which separates them by semicolons."""
    failed = tuple(part.strip() for part in text.split(";") if part.strip())
    try:
        for each in failed:
            failure_of_text(each)
    except ConfigError as error:
        raise ConfigError(f"Failures: {error.message}") from None
    return failed


def _put(system: dict[str, Any], key: str, value: Any) -> None:
    """Set *key* of *system* to *value*, or remove it if *value* is empty.

    A default that the preset does not have is not written, either.
    """
    if key in _CHOICES and key not in system and value == next(iter(_CHOICES[key][2])):
        return
    if key == "roofline-enabled":
        value = int(value == "1")
    if value in (None, ""):
        system.pop(key, None)
    else:
        system[key] = value


def _dimension(number: int, row: Row) -> Dimension:
    try:
        read: Any = {name: field.value(row.get(name)) for name, field in DIMENSION_FIELDS.items()}
    except ConfigError as error:
        raise ConfigError(f"Dimension {number}, {error.message}") from error
    algorithms = tuple(str(row.get(name)) for name in COLLECTIVES)
    return Dimension(str(row.get("topology")), **read, algorithms=algorithms)


LABEL_LENGTH = 120
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
# States rather than inputs: a new preset fills other fields, which trigger the callbacks.
_PRESETS = {
    "cluster": State("new-cluster", "value"),
    "network": State("new-network", "value"),
    "preset": State("new-system", "value"),
}
_ADDRESS = {"search": State("url", "search"), "run": State("run", "data"), "dark": State("dark", "checked")}


def _form(dependency: type[Input] | type[State]) -> dict[str, Any]:
    """Return all fields as *dependency* (inputs or states), for a callback's argument ``form``."""
    return {name: dependency(identity, "value") for name, identity in _FIELDS.items()} | _PRESETS


def _read(view: StudyView) -> tuple[Form | None, list[Finding]]:
    """Return the form in the fields (None if a field is invalid), and its problems, errors first.

    The calling callback needs :func:`_form` as its argument ``form``.
    """
    fields: dict[str, Any] = ctx.args_grouping["form"]
    value = {name: field["value"] for name, field in fields.items() if not isinstance(field, list)}
    try:
        start = Networks(view.study).start(
            value["network"], value["preset"], value["cluster"] or "", value["workload"]
        )
        setup = read_setup(fields["dimensions"], fields["system"], start, value["failures"])
    except ChakrascopeError as error:
        return None, [Finding("error", "field", error.message)]
    backends = chosen_backends(value["backends"], value["machine"])
    form = Form(value["workload"], setup, backends, str(value["label"] or "")[:LABEL_LENGTH])
    return form, check(setup, communication_of(view.study.workload_prefix(form.workload)), backends)


def _blocker(findings: list[Finding]) -> str:
    """Return the text of the first error in *findings*, or ``""``."""
    return next((finding.text for finding in findings if finding.severity == "error"), "")


def register_start(app: Dash, view: StudyView, path: str) -> None:
    """Register the callbacks that check the form, start its simulation, and download its files."""
    _register_examination(app, view, path)
    _register_buttons(app, view)


def _register_examination(app: Dash, view: StudyView, path: str) -> None:
    @app.callback(
        output={
            "findings": Output("findings", "children"),
            "sketch": Output("sketch", "children"),
            "command": Output("new-command", "children"),
            "blocker": Output("new-blocker", "children"),
            "scaling": Output("new-scaling", "children"),
            "disabled": [Output(name, "disabled") for name in ("new-start", "new-yaml", "new-json")],
            "written": Output("new-written", "data"),
            "links": [Output("new-zip", "children"), Output("new-sweep", "children")],
        },
        inputs={"form": _form(Input), "address": _ADDRESS},
    )
    def examine(form: Any, address: dict[str, Any]) -> dict[str, Any]:
        """Check the fields of the form, draw the topology, and write the form into the address."""
        del form  # `_read` reads fields and ids from the callback context
        read, findings = _read(view)
        blocker = _blocker(findings)
        if read is None:
            return {
                "findings": _findings(findings, None), "sketch": no_update, "command": _CORRECT,
                "blocker": blocker, "scaling": no_update, "disabled": [True] * 3, "written": no_update,
                "links": [empty(_CORRECT), ""],
            }  # fmt: skip
        run, scheme = address["run"] or "", "dark" if address["dark"] else "light"
        workloads = view.study.workloads()
        text = encode_form(read, workloads, begun_from(view.study, run, Networks(view.study)).form)
        set_option(path, address["search"], run, "setup", text)
        return {
            "findings": _findings(findings, differences(read.setup), read.setup.machine or "the presets"),
            "sketch": graph(topology_sketch(read.setup.dimensions, scheme)),
            "command": command_line(
                read.setup, read.backends, "" if read.workload == workloads[-1] else read.workload
            ),
            "blocker": blocker,
            "scaling": machine_text(read.setup),
            "disabled": [bool(blocker), False, False],
            "written": text,
            "links": _links(address["search"], run, text),
        }


def _links(search: str | None, run: str, text: str) -> list[Any]:
    """Return links to the form's files, and to a sweep over its settings."""
    address = page_address("/export/new-run.zip", f"?{urlencode({'run': run, 'setup': text})}")
    zipped = html.A("All files as a zip", href=address, className="text-link", download="new-run.zip")
    onward = Selection.parse(search).with_run(run).with_option("setup", text).search
    return [zipped, link_to("Sweep over its settings", "/sweep", onward)]


def _findings(found: list[Finding], changed: list[str] | None, start: str = "") -> Any:
    """Return the list of findings, and of changes from the form's *start*.

    While a field is invalid, the changes are unknown, and *changed* is None.
    """
    lines = [
        finding_line(item.severity, f"{item.place[0].upper()}{item.place[1:]}: {item.text}") for item in found
    ]
    if changed is None:
        return dmc.Stack(lines, gap=4)
    title = dmc.Text(f"Changes to {start}", size="sm", fw=600, mt="xs")
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
        """Start the simulation, or download a file, after checking the form once more."""
        del form  # `_read` reads fields and ids from the callback context
        if not any(clicks):
            return no_update, no_update
        read, findings = _read(view)
        problem = _blocker(findings)
        if read is None or (problem and ctx.triggered_id == "new-start"):
            return error_alert(problem), no_update
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
        return dmc.Text("The job has started. You can close this page while it runs.", size="sm"), no_update
