"""Write what bounds a run into one HTML file that needs no server, no script and no network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from ..errors import StudyError
from ..runner import BREAKDOWNS, Study
from ..runner.analysis import advice_table, link_table, packet_facts, segment_table
from ..support import bytes_text, count_text, duration_text, share_text, write_file, writing
from ._report_pictures import path_picture, timeline_note, timeline_picture
from ._state import OpenRun, StudyView
from ._theme import KIND_LABELS, kind_colour, run_name

__all__ = ["report_html", "write_report"]

_STYLE = Path(__file__).with_name("report.css")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_MOST_SEGMENTS, _MOST_COLLECTIVES, _MOST_KEYS = 200, 500, 15
_MOST_LINKS = 10
_NETWORK_NOTE = (
    "The links that are busiest: the part of the step in which they carry data, and what they carry."
)

Show = Callable[[Any], str]
# field -> heading, how its values are written
Columns = Mapping[str, tuple[str, Show]]


def write_report(study: Study, run_id: str | None, path: str | Path) -> Path:
    """Write the report of the run *run_id* of *study*, or of its newest, to the file *path*, whole or not.

    Returns *path*. Raises StudyError if there is no such run or the file cannot be written.
    """
    view = StudyView(study)
    run = view.open(study.run_info(run_id).id)
    target = Path(path)
    with writing(f"The report {target}", StudyError, "choose another file"):
        write_file(target, report_html(run))
    return target


def report_html(run: OpenRun) -> str:
    """Return the report of *run* as one HTML document; every name in it is text, whatever it holds."""
    sections = [
        _section("Where the step's time goes", _kinds(run), "The critical path by kind: the chain of work "
                 "that must shrink for the step to shrink."),
        _section("What would help", _advice(run), "The gain is a bound: once a part shrinks, another chain "
                 "may bound the step."),
        _section("The critical path across ranks", path_picture(run)),
        _section("Timeline", timeline_picture(run), timeline_note(run)),
        *(_section(f"By {by}", _breakdown(run, by)) for by in sorted(BREAKDOWNS) if by != "kind"),
        _section("Longest segments of the critical path", _segments(run), _segments_note(run)),
        _section("Layers", _layers(run), "In the order in which they run; means over all ranks."),
        _section("Collectives", _collectives(run), "Skew: from the first arrival to the last. Bus bandwidth: "
                 "what a ring of as many ranks moves over each link."),
        _section("Network", _network(run), _NETWORK_NOTE),
        _section("Ranks", _ranks(run), "Compute + exposed communication + idle = the step."),
        _section("Assumptions and warnings", _warnings(run)),
        _section("How it was made", _provenance(run)),
    ]  # fmt: skip
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>Chakrascope: {escape(run_name(run.info))}</title>"
        f"<style>{_STYLE.read_text(encoding='utf-8')}</style></head>\n<body><main>"
        f"<p class=soft>{escape(run_name(run.info))} · {count_text(run.info.num_ranks, 'rank')}</p>"
        f"<h1>{escape(run.summary.headline)}</h1>\n{''.join(sections)}</main></body></html>\n"
    )


def _section(title: str, body: str, note: str = "") -> str:
    explained = f"<p class=soft>{escape(note)}</p>" if note else ""
    return f"<section><h2>{escape(title)}</h2>{explained}{body or '<p>Nothing.</p>'}</section>\n"


def _table(rows: pd.DataFrame, columns: Columns) -> str:
    if rows.empty:
        return ""
    numeric = {name: pd.api.types.is_numeric_dtype(rows[name]) for name in columns}
    head = "".join(
        f'<th class="{"n" if numeric[name] else ""}">{escape(title)}</th>'
        for name, (title, _) in columns.items()
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{"n" if numeric[name] else ""}">{escape(show(row[name]))}</td>'
            for name, (_, show) in columns.items()
        )
        + "</tr>"
        for row in rows.to_dict("records")
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _kinds(run: OpenRun) -> str:
    parts, legend = [], []
    for row in run.summary.kinds.to_dict("records"):
        kind, share = str(row["key"]), float(row["share"])
        label = KIND_LABELS.get(kind, kind)
        text = f"{label}: {duration_text(row['duration_ns'])} ({share_text(share)})"
        parts.append(
            f'<i style="width:{100 * share:.4f}%;background:{kind_colour(kind)}" title="{escape(text)}"></i>'
        )
        legend.append(f'<span><i style="background:{kind_colour(kind)}"></i>{escape(text)}</span>')
    return f'<div class="bar">{"".join(parts)}</div><p class="legend">{"".join(legend)}</p>'


def _advice(run: OpenRun) -> str:
    return _table(
        advice_table(run.path, run.collectives),
        {
            "what": ("Cause", str),
            "gain_ns": ("Gains at most", duration_text),
            "share": ("Share", share_text),
            "how": ("What helps", str),
        },
    )


def _breakdown(run: OpenRun, by: str) -> str:
    table = run.path.breakdown(by)
    more = len(table) - _MOST_KEYS
    largest = float(table["share"].max()) if len(table) else 1.0
    rows = "".join(
        f"<tr><td>{escape(_key(row['key'], by))}</td>"
        f'<td class=meter><i style="width:{100 * row["share"] / max(largest, 1e-12):.2f}%"></i></td>'
        f"<td class=n>{duration_text(row['duration_ns'])}</td>"
        f"<td class=n>{share_text(row['share'])}</td></tr>"
        for row in table.head(_MOST_KEYS).to_dict("records")
    )
    rest = f"<p class=soft>and {more:,} more</p>" if more > 0 else ""
    return f"<table><tbody>{rows}</tbody></table>{rest}" if rows else ""


def _key(key: Any, by: str) -> str:
    return f"(no {by})" if key in ("", "(none)") else str(key)


def _segments(run: OpenRun) -> str:
    table = segment_table(run.path).nlargest(_MOST_SEGMENTS, "duration_ns").sort_index()
    return _table(
        table,
        {
            "segment": ("#", str),
            "rank": ("Rank", str),
            "name": ("Name", _short),
            "kind": ("Kind", str),
            "start_ns": ("Start", duration_text),
            "duration_ns": ("Duration", duration_text),
            "share": ("Share", share_text),
            "module": ("Module", _short),
            "reason": ("Why it had to wait", _short),
        },
    )


def _segments_note(run: OpenRun) -> str:
    total = len(run.path.segments)
    shown = min(total, _MOST_SEGMENTS)
    whole = duration_text(run.path.makespan_ns)
    return f"The longest {shown:,} of {total:,} segments, in time order; all of them sum to exactly {whole}."


def _collectives(run: OpenRun) -> str:
    table = run.collectives.nlargest(_MOST_COLLECTIVES, "on_path_ns").sort_values("collective")
    return _table(
        table,
        {
            "collective": ("#", str),
            "operation": ("Operation", str),
            "module": ("Issued in", _short),
            "ranks": ("Ranks", str),
            "size_bytes": ("Size", bytes_text),
            "start_ns": ("First arrival", duration_text),
            "skew_ns": ("Skew", duration_text),
            "transfer_ns": ("Transfer", duration_text),
            "bus_bytes_per_ns": ("Bus bandwidth (GB/s)", _rate),
            "on_path_ns": ("On the critical path", duration_text),
        },
    )


def _layers(run: OpenRun) -> str:
    return _table(
        run.layers,
        {
            "module": ("Module", _short),
            "forward_ns": ("Forward", duration_text),
            "backward_ns": ("Backward", duration_text),
            "communication_ns": ("Communication", duration_text),
            "on_path_ns": ("On the critical path", duration_text),
            "share": ("Share", share_text),
        },
    )


def _network(run: OpenRun) -> str:
    if run.result.links.empty:
        return f"<p>The backend {escape(run.info.backend)} records no links.</p>"
    links = _table(
        link_table(run.result).head(_MOST_LINKS),
        {
            "source": ("From", str),
            "target": ("To", str),
            "share": ("Busy", share_text),
            "bytes": ("Carried", bytes_text),
            "bytes_per_ns": ("Speed while busy (GB/s)", _rate),
            "queue_ns": ("Queueing", duration_text),
        },
    )
    facts = packet_facts(run.result.provenance)
    return links + _list(f"{label}: {text}" for label, text in facts)


def _ranks(run: OpenRun) -> str:
    return _table(
        run.summary.ranks,
        {
            "rank": ("Rank", str),
            "finish_ns": ("Finish", duration_text),
            "compute_ns": ("Compute", duration_text),
            "exposed_comm_ns": ("Exposed communication", duration_text),
            "overlap_ns": ("Overlapped communication", duration_text),
            "idle_ns": ("Idle", duration_text),
        },
    )


def _warnings(run: OpenRun) -> str:
    provenance = run.result.provenance
    said = [
        str(line) for key in ("warnings", "ignored_keys", "assumptions") for line in provenance.get(key, [])
    ]
    return _list(dict.fromkeys(said))


def _provenance(run: OpenRun) -> str:
    info, provenance = run.info, run.result.provenance
    facts = [
        f"Backend: {info.backend}", f"Network: {info.network}", f"Workload: {info.workload}",
        f"Run: {info.id}, made {info.created}",
    ]  # fmt: skip
    facts += [f"{name}: {version}" for name, version in provenance.get("versions", {}).items()]
    for part in ("network", "system", "memory", "options"):
        settings = provenance.get(part)
        if isinstance(settings, Mapping):
            facts.append(f"{part}: " + "; ".join(f"{key} = {value}" for key, value in settings.items()))
    return _list(facts)


def _list(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def _short(text: Any) -> str:
    return str(text) if len(str(text)) <= 120 else f"{str(text)[:119]}…"


def _rate(bytes_per_ns: float) -> str:
    return f"{bytes_per_ns:.3f}"
