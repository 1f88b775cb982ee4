"""Write the report of a run as one HTML file that needs no server, no script and no network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ...converter.chakra import HOST_CAUSES
from ...errors import StudyError
from ...runner import BREAKDOWNS, Study, about_backend
from ...runner.analysis import (
    KIND_LABELS,
    advice_text,
    common_steps,
    gain_text,
    link_table,
    nameless_text,
    packet_facts,
    segment_table,
)
from ...runner.study import run_name, timeline_notes
from ...support import bytes_text, count_text, duration_text, instant_text, share_text, write_file, writing
from .._state import OpenRun, StudyView
from ._pictures import (
    Part,
    Section,
    lines,
    memory_note,
    memory_parts,
    meters,
    path_picture,
    stack,
    table,
    timeline_note,
    timeline_picture,
)

_MAX_SEGMENTS, _MAX_COLLECTIVES, _MAX_KEYS = 200, 500, 15
_MAX_LINKS = 10
_MIN_DATE_NS = 1_000_000_000 * 10**9  # a time in 2001; earlier times in traces do not count from 1970
_NETWORK_NOTE = (
    "The busiest links, with the share of the step in which they carry data, and the bytes they carry."
)


def write_report(study: Study, run_id: str | None, path: str | Path) -> Path:
    """Write the report on a run of *study* to *path*, atomically; return *path*.

    The default run is `Study.default_run`. Raises `StudyError` if the run does not exist or the
    file cannot be written.
    """
    view = StudyView(study)
    run = view.open(study.run_info(run_id).id)
    target = Path(path)
    with writing(f"The report {target}", StudyError):
        html = report_html(run).encode(errors="backslashreplace")  # names may not be UTF-8
        write_file(target, html, parents=True)
    return target


def report_html(run: OpenRun) -> str:
    """Return the report as one HTML document, in which all names are escaped."""
    folder = Path(__file__).parent
    environment = Environment(autoescape=True, loader=FileSystemLoader(folder), undefined=StrictUndefined)
    return environment.get_template("report.html.j2").render(
        name=_job(run),
        facts=_facts(run),
        qualifiers=[*filter(None, [run.deviation]), *run.summary.qualifiers],
        answer=_answer(run),
        headline=run.summary.headline,
        sections=_sections(run),
        style=Markup((folder / "report.css").read_text("utf-8")),
    )


def _answer(run: OpenRun) -> str:
    """Return the duration of the step, its largest part, and the first change to make."""
    kinds, first = run.summary.kinds, next(iter(run.advices()), None)
    takes = f"The step takes {duration_text(run.path.makespan_ns)}"
    if len(kinds):
        label = KIND_LABELS.get(kinds["key"].iloc[0], kinds["key"].iloc[0]).lower()
        takes += f", {share_text(kinds['share'].iloc[0])} of it {label}"
    if first is None:
        return f"{takes}. No change was found that saves 1 % of the step."
    return (
        f"{takes}. The change that would save most: {first.what} ({gain_text(first)}, "
        f"{share_text(first.share)})."
    )


def _sections(run: OpenRun) -> list[Section]:
    return [
        Section("Where the step's time goes", [stack(run.summary.kinds)],
                "The critical path by kind. The step gets shorter only if this chain of work does."),
        Section("What would help", _advice(run), "A saving is the time saved by a replay of the run with "
                "the change. \"At most\" marks upper bounds without a replay."),
        *_memory(run),
        Section("The critical path across ranks", [("picture", path_picture(run))]),
        Section("Timeline", [("picture", timeline_picture(run))], timeline_note(run)),
        *_notes(run),
        *(_breakdown(run, by) for by in sorted(BREAKDOWNS) if by != "kind"),
        Section("Longest segments of the critical path", _segments(run), _segments_note(run)),
        Section("Layers", _layers(run), "In execution order; means over all ranks."),
        Section("Collectives", _collectives(run), "Skew is the time from the first arrival to the last. Bus "
                "bandwidth is the rate of each link of a ring of as many ranks."),
        Section("Network", _network(run), _NETWORK_NOTE),
        Section("Ranks", _ranks(run), "Compute, exposed communication, exposed copies and idle time add up "
                "to the step."),
        Section("How the run was made", _provenance(run)),
    ]  # fmt: skip


def _job(run: OpenRun) -> str:
    """Return the study's name, and the workload's if it differs."""
    names = [run.study.path.resolve().name, run.info.workload]
    return ", ".join(dict.fromkeys(filter(None, names)))


def _facts(run: OpenRun) -> list[tuple[str, str]]:
    """Return facts about the job, its capture, the cluster and the run as (label, text) pairs."""
    info, metadata = run.info, run.workload.metadata
    facts = [("Job", f"{_job(run)}, {count_text(info.num_ranks, 'rank')}")]
    began = [at for at in metadata.get("began_ns", {}).values() if at >= _MIN_DATE_NS]
    if began:
        captured = datetime.fromtimestamp(min(began) / 1e9, timezone.utc)
        facts.append(("Captured", captured.strftime("%Y-%m-%d %H:%M UTC")))
    chips = Counter(filter(None, metadata.get("chips", {}).values()))
    machines = ", ".join(f"{count} x {chip}" for chip, count in chips.items())
    if machines or metadata.get("captured"):
        facts.append(("Captured on", machines or "processors without an accelerator"))
    cluster = f"{info.network}, simulated with the backend {info.backend}"
    facts.append(("Cluster", "as measured (replay)" if about_backend(info.backend).replays else cluster))
    facts.append(("Run", f"{run_name(info)}, {info.created[:16].replace('T', ' ')} UTC"))
    return facts


def _breakdown(run: OpenRun, by: str) -> Section:
    """Return the section that splits the critical path *by* module, operator or another key.

    A note states the share without a name.
    """
    whole = run.path.breakdown(by)
    named = whole[~whole["key"].isin(["", "(none)"])]
    if by == "cause":
        named = named.assign(key=[HOST_CAUSES.get(key, key) for key in named["key"]])
    return Section(f"Critical path by {by}", meters(named, _MAX_KEYS), nameless_text(whole, by))


def _advice(run: OpenRun) -> Sequence[Part]:
    steps = common_steps(run.advices())
    return table(
        run.advice.assign(
            how=[advice_text(item) for item in run.advices()],
            gain=[gain_text(item, steps) for item in run.advices()],
        ),
        {
            "what": ("Cause", str),
            "gain": (f"Saves{f' in {steps}' * bool(steps)}", str),
            "share": ("Share", share_text),
            "how": ("What helps", str),
        },
    )


def _memory(run: OpenRun) -> Sequence[Section]:
    """Return the section on the fullest rank's memory; empty without a prediction."""
    parts = memory_parts(run)
    return [Section("Memory per rank", parts, memory_note(run))] if parts else []


def _notes(run: OpenRun) -> Sequence[Section]:
    """Return the section with the user's notes on the timeline; empty without notes."""
    notes = pd.DataFrame(timeline_notes(run.study, run.info.id))
    if notes.empty:
        return []
    named = [_noted(run, note) for note in notes.itertuples()]
    titles: dict[str, tuple[str, Callable[[Any], str]]] = {
        "t0_ns": ("From", instant_text), "t1_ns": ("To", instant_text), "about": ("About", _short),
        "text": ("Note", str), "created": ("Written", str),
    }  # fmt: skip
    return [Section("Notes on the timeline", table(notes.assign(about=named), titles))]


def _noted(run: OpenRun, note: Any) -> str:
    rank, node = int(note.rank), int(note.node)
    found = run.node(rank, node) if node >= 0 else None
    if found is None:
        return "the range at measured times" if note.measured else "the range"
    return f"{found['name']} (node {node} of rank {rank})"


def _segments(run: OpenRun) -> Sequence[Part]:
    return table(
        segment_table(run.path).nlargest(_MAX_SEGMENTS, "duration_ns").sort_index(),
        {
            "rank": ("Rank", str),
            "name": ("Name", _short),
            "kind": ("Kind", lambda kind: KIND_LABELS.get(kind, kind)),
            "start_ns": ("Start", duration_text),
            "duration_ns": ("Duration", duration_text),
            "share": ("Share", share_text),
            "module": ("Module", _short),
            "reason": ("Why it waited", _short),
        },
    )


def _segments_note(run: OpenRun) -> str:
    total = len(run.path.segments)
    shown = min(total, _MAX_SEGMENTS)
    whole = duration_text(run.path.makespan_ns)
    return f"The longest {shown:,} of {total:,} segments, in order of time. All segments add up to {whole}."


def _collectives(run: OpenRun) -> Sequence[Part]:
    return table(
        run.collectives.nlargest(_MAX_COLLECTIVES, "on_path_ns").sort_values("collective"),
        {
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


def _layers(run: OpenRun) -> Sequence[Part]:
    return table(
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


def _network(run: OpenRun) -> Sequence[Part]:
    if run.result.links.empty:
        return lines([f"The backend {run.info.backend} records no links."])
    links = table(
        link_table(run.result).head(_MAX_LINKS),
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
    return [*links, *lines(f"{label}: {text}" for label, text in facts)]


def _ranks(run: OpenRun) -> Sequence[Part]:
    return table(
        run.summary.ranks,
        {
            "rank": ("Rank", str),
            "finish_ns": ("Finish", duration_text),
            "compute_ns": ("Compute", duration_text),
            "exposed_comm_ns": ("Exposed communication", duration_text),
            "overlap_ns": ("Overlapped communication", duration_text),
            "exposed_copy_ns": ("Exposed copies", duration_text),
            "copy_ns": ("Copies", duration_text),
            "idle_ns": ("Idle", duration_text),
        },
    )


def _provenance(run: OpenRun) -> Sequence[Part]:
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
    facts += [f"Setting without effect: {line}" for line in provenance.get("ignored_keys", [])]
    return lines(facts)


def _short(text: Any) -> str:
    return str(text) if len(str(text)) <= 120 else f"{str(text)[:119]}…"


def _rate(bytes_per_ns: float) -> str:
    return f"{bytes_per_ns:.3f}"
