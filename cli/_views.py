"""Print and explain the tables of ``summary --view`` and ``timeline --host``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import BackendError, UsageError
from ..runner import AWARE, PACKET, about_backend
from ..support import bytes_text, count_text, duration_text, share_text
from ._output import console, print_clocks, print_columns, print_frame, print_ranks, records

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

    from ..runner.analysis import RunAnalysis

_MAX_STACKS = 40
_BANDWIDTHS = {"bytes_per_ns": "GB/s", "algorithm_bytes_per_ns": "GB/s", "bus_bytes_per_ns": "bus GB/s"}
_TWICE = 1.5  # minimum time on the path over the duration of a collective that the path contains twice
_NOTICEABLE = 0.01  # minimum fraction of the step for an explanation


@dataclass(frozen=True)
class _View:
    """A table of ``summary --view``: its name in `runner.analysis.TABLES`, and its columns on a terminal.

    *needs* names the required records of a backend, and a backend that writes these records. A matrix is
    printed as pairs of ranks, and *pairs* names its values.
    """

    table: str
    title: str
    without: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    limit: int = 40
    needs: tuple[str, str] | None = None
    pairs: str = ""


VIEWS: Mapping[str, _View] = {
    "advice": _View(
        "advice",
        "Changes that would help, and their gains",
        columns=("what", "how", "gain_ns", "share", "steps"),
    ),
    "kinds": _View("kinds", "Critical path by kind"),
    "ranks": _View("ranks", "Ranks", limit=1000),
    "streams": _View(
        "streams",
        "Device streams and communication",
        without=("start_ns",),
        note="compute + communication + copies + idle = span, from the first node of the stream to the last.",
        limit=200,
    ),
    "operators": _View(
        "operators",
        "Operators",
        columns=("operator", "calls", "time_ns", "share", "reaches", "roofline"),
        note="time: duration of the device work that the operator launched, or of the operator itself on a "
        "CPU. reaches: TFLOP/s if computation bounds the operator, TB/s if memory does. roofline: shortest "
        "possible time at the chip's peaks over the measured time; above 100 % if data come from a cache, or "
        "for convolutions by Winograd's algorithm.",
        limit=30,
    ),
    "steps": _View("steps", "Converted steps"),
    "layers": _View(
        "layers",
        "Layers",
        without=("other_ns", "share"),
        names={"communication_ns": "comm_ns"},
        note="Times are means over all ranks; on path: time on the critical path.",
        limit=60,
    ),
    "collectives": _View(
        "collectives",
        "Collectives",
        without=("collective", "group", "ranks", "start_ns", "share", "rank", "node_id"),
        names=_BANDWIDTHS,
        note="skew: time from the arrival of the first rank to the arrival of the last; transfer: the rest "
        "of the collective's duration. GB/s: bytes of the collective over its transfer time; bus GB/s: GB/s "
        "times 2(n-1)/n for an all-reduce and (n-1)/n for other collectives of n ranks, which compares with "
        "the bandwidth of the hardware.",
    ),
    "slack": _View(
        "slack",
        "Slack",
        note="slack: how much later a node could end without delaying the step, if all other durations and "
        "the order of nodes stay the same; `what-if` simulates such a change.",
        limit=20,
    ),
    "links": _View(
        "links",
        "Links",
        columns=("source", "target", "share", "bytes", "busy_ns", "queue_ns", "bytes_per_ns"),
        names=_BANDWIDTHS,
        needs=("links", AWARE),
    ),
    "dimensions": _View("dimensions", "Dimensions", needs=("links", AWARE)),
    "loads": _View("loads", "Loads of switches", needs=("links", AWARE)),
    "traffic": _View("traffic-bytes", "Bytes per hop", needs=("links", AWARE), pairs="bytes"),
    "traffic-busy": _View("traffic-busy_ns", "Busy time per hop", needs=("links", AWARE), pairs="busy_ns"),
    "traffic-flows": _View(
        "traffic-flows", "Bytes from end to end", needs=("messages", PACKET), pairs="bytes"
    ),
    "link-use": _View("link-use", "Bytes of each link over time", needs=("links over time", AWARE)),
    "flows": _View("flows", "Messages", needs=("messages", PACKET)),
    "packets": _View("packets", "Queues and pauses", needs=("messages", PACKET)),
    "calibration": _View("calibration", "Calibration of the network"),
}
_STACKS = _View(
    "host",
    "Host calls of the captured step, by call stack",
    columns=("rank", "name", "calls", "total_ns", "self_ns", "on_path_ns"),
    names={"name": "call, below its caller"},
    note="total: time of the call, including the calls that it makes; self: excluding them; on path: time "
    "during which the critical path is in host work of the rank. The table lists the longest stacks of each "
    "thread, and skips calls that spend 99 % of their time in one other call.",
    limit=_MAX_STACKS,
)
_SLACK_FACTS = ["name", "kind", "operator", "module", "phase"]
_NO_CALLS = (
    "The device traces of this run's workload are missing here, so its host calls are unknown. Next: import "
    "the traces again, or repeat the command on the machine that has the traces."
)
_EMPTY = {
    "calibration": "The network of this run was not fitted to measurements. Next: 'chakrascope calibrate' "
    "writes such a network file for --network.",
    "loads": "Only switches have loads, and this network links its ranks directly. Next: use --view traffic.",
    "streams": "No rank of this run computes on a device or communicates. Next: `chakrascope critical-path "
    "STUDY` shows the work of its hosts.",
    "operators": "The workload of this run has no operators: it was not converted from traces, or by an "
    "earlier version. Convert the traces again.",
    "steps": "The workload of this run has no captured steps: it was not converted from traces, or by an "
    "earlier version. Convert the traces again.",
}


def print_view(
    run: RunAnalysis, name: str, output_format: str, *, rank: int | None = None, node: int | None = None
) -> None:
    """Print the view *name* of *run*, or only the rows of one *rank* or *node*.

    Raises `BackendError` if the run's backend does not record what the view needs, and `UsageError`
    if no row is left.
    """
    if name == "slack":
        _print_slack(run, output_format, rank, node)
        return
    view = VIEWS[name]
    table = _chosen(_table(run, name, view), name, rank, node)
    if output_format != "table":
        print_frame(table, output_format)
    elif name == "ranks":
        print_ranks(records(table), view.limit)
        print_clocks(run.clocks, run.measured, run.info.num_ranks)
    elif name == "collectives":
        is_measured = about_backend(run.info.backend).replays
        console.print_text(collectives_text(table, run.result.makespan_ns if is_measured else 0))
        _print_table(view, table)
        print_clocks(run.clocks, run.measured, run.info.num_ranks)
    elif name == "operators":
        _print_table(view, _operators_shown(table))
    else:
        _print_table(view, _largest_pairs(table, view.pairs) if view.pairs else table)


def print_stacks(run: RunAnalysis, ranks: Sequence[int], window: tuple[int, int], output_format: str) -> None:
    """Print the host calls of *ranks* in the *window* (ns) of the captured step, by call stack.

    Raises `BackendError` if the run's traces are missing, and `UsageError` if no call lies in the
    window.
    """
    from ..runner.analysis import host_stack_table

    if not run.calls:
        raise BackendError(_NO_CALLS)
    table = host_stack_table(run, ranks, window)
    if table.empty:
        raise UsageError(
            "No host thread of these ranks made a call in this window. Next: widen the window (--from, --to) "
            "or the range of --ranks."
        )
    if output_format != "table":
        print_frame(table, output_format)
    else:
        _print_table(_STACKS, _stacks_shown(table))


def _print_table(view: _View, shown: pd.DataFrame) -> None:
    """Print the rows *shown* as a table, and a note that explains its columns."""
    shown = shown[list(view.columns or shown.columns)]
    shown = shown.drop(columns=list(view.without)).rename(columns=dict(view.names))
    print_frame(shown, "table", title=view.title, limit=view.limit)
    if view.note:
        console.print_text(view.note, "dim")


def collectives_text(table: pd.DataFrame, measured_ns: int = 0) -> str:
    """Return a verdict on collectives: how much is waiting and transfer, and the slowest one.

    *measured_ns* is the time of a measured step, whose path may begin in the previous step (0: simulated).
    """
    skew, transfer = int(table["skew_ns"].sum()), int(table["transfer_ns"].sum())
    total = skew + transfer
    if not total:
        return f"{count_text(len(table), 'collective')} take no time."
    slowest = table.iloc[int((table["skew_ns"] + table["transfer_ns"]).to_numpy().argmax())]
    rate = slowest["bus_bytes_per_ns"]
    speed = f" at {rate:.3g} GB/s of bus bandwidth" if rate > 0 else ""
    cause = (
        "most of the time is waiting for the last rank, which `chakrascope diagnose` names"
        if 2 * skew > total
        else "most of the time is transfer, so a faster network or algorithm would help"
    )
    on_path = int(table["on_path_ns"].sum())
    return (
        f"{count_text(len(table), 'collective')} take {duration_text(total)}, {duration_text(on_path)} of it "
        f"on the critical path; {share_text(skew / total)} is skew, {share_text(transfer / total)} transfer: "
        f"{cause}. The slowest is {slowest['operation']} of {bytes_text(int(slowest['size_bytes']))}: "
        f"{duration_text(int(slowest['skew_ns']))} skew, {duration_text(int(slowest['transfer_ns']))} "
        f"transfer{speed}.{_repeated_text(table, measured_ns)}"
    )


def _repeated_text(table: pd.DataFrame, measured_ns: int) -> str:
    """Return a sentence if the path of a measured step contains collectives twice, otherwise ""."""
    repeated = table[table["on_path_ns"] > _TWICE * (table["skew_ns"] + table["transfer_ns"])]
    if not measured_ns or repeated["on_path_ns"].sum() <= _NOTICEABLE * measured_ns:
        return ""
    return (
        f" The critical path contains {count_text(len(repeated), 'collective')} more than once, with the sum "
        "of the times: it begins in the previous step, because a rank began this step late."
    )


def _operators_shown(table: pd.DataFrame) -> pd.DataFrame:
    """Print a summary of the operators; return rows for the terminal, with all ranks joined."""
    from ..runner.analysis import joined_operators, operators_text

    console.print_text(operators_text(table))
    joined = joined_operators(table)
    named = (joined["operator"] + "\n" + joined["arguments"]).str.rstrip()
    columns = {"operator": named, "reaches": joined["reached"], "roofline": joined["roofline_share"]}
    frame: pd.DataFrame = joined.assign(**columns)
    return frame


def _stacks_shown(table: pd.DataFrame) -> pd.DataFrame:
    """Return the longest call stacks, each name indented below its caller's.

    A call that spends at least 99 % of its time in one other is left out.
    """
    totals, callers = table["total_ns"].tolist(), []
    open_: list[int] = []
    passing = [False] * len(table)
    for row, depth in enumerate(table["depth"].tolist()):
        del open_[depth:]
        callers.append(open_[-1] if open_ else -1)
        open_.append(row)
        if depth and 100 * totals[row] >= 99 * totals[callers[row]]:
            passing[callers[row]] = True
    indents: list[int] = []
    for caller in callers:
        indents.append(indents[caller] + (not passing[caller]) if caller >= 0 else 0)
    placed = table.assign(indent=indents)[[not one for one in passing]]
    longest = placed.nlargest(_MAX_STACKS, "total_ns").sort_index()
    thread = (longest["thread"] + ": ").where(longest["indent"] == 0, "")
    frame: pd.DataFrame = longest.assign(name=[" " * n for n in longest["indent"]] + thread + longest["name"])
    return frame


def _table(run: RunAnalysis, name: str, view: _View) -> pd.DataFrame:
    """Return the whole table of *view*.

    Raises `BackendError` naming a suitable backend if the run did not record the data.
    """
    from ..runner.analysis import TABLES

    if name == "kinds":
        return run.summary.kinds
    table = TABLES[view.table](run)
    if view.needs is not None:
        what, other = view.needs
        own = name in ("link-use", "flows", "packets")
        recorded = table if own else run.result.links if what == "links" else run.result.flows
        if recorded.empty and run.result.backend == other:
            raise BackendError(f"This run has no {what}: its ranks send nothing to each other.")
        if recorded.empty:
            raise BackendError(
                f"The backend '{run.result.backend}' records no {what}. Next: choose a run on another "
                f"backend, such as '{other}', with --run."
            )
    if table.empty and name in _EMPTY:
        raise BackendError(_EMPTY[name])
    return table


def _chosen(table: pd.DataFrame, name: str, rank: int | None, node: int | None) -> pd.DataFrame:
    """Return the rows for *rank* and *node*; raises `UsageError` without such columns or rows."""
    for option, column, wanted in (("--rank", "rank", rank), ("--node", "node_id", node)):
        if wanted is None:
            continue
        if column not in table:
            raise UsageError(f"The view '{name}' has no {option[2:]}s. Next: leave out {option}.")
        table = table[table[column] == wanted]
        if table.empty:
            raise UsageError(
                f"The view '{name}' has no row with {option} {wanted}. Next: leave out {option}."
            )
    return table


def _largest_pairs(table: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return a matrix's entries other than zero as pairs of ranks, the largest first."""
    pairs = table.melt(id_vars="from", var_name="to", value_name=value)
    frame: pd.DataFrame = pairs[pairs[value] > 0].sort_values(value, ascending=False, kind="stable")
    return frame


def _print_slack(run: RunAnalysis, output_format: str, rank: int | None, node: int | None) -> None:
    """Print the view of slack without pandas, which is slow for a million nodes."""
    from ..runner.analysis import coded_facts, slack_columns

    columns = slack_columns(run.study.result(run.info.id), run.workload)
    columns["duration_ns"] = columns.pop("end_ns") - columns["start_ns"]
    for name, wanted in (("rank", rank), ("node_id", node)):
        if wanted is not None:
            columns = _rows_of(columns, columns[name] == wanted)
    count = len(columns["rank"])
    if not count:
        chosen = {"--rank": rank, "--node": node}
        asked = "".join(f" {option} {value}" for option, value in chosen.items() if value is not None)
        raise UsageError(
            f"No executed node matches{asked}. Ranks count from 0. Next: `chakrascope critical-path STUDY "
            f"--run {run.info.id} --format csv` lists the ids of nodes."
        )
    view = VIEWS["slack"]
    if output_format == "table":
        columns = _rows_of(columns, sorted(_most_critical_first(columns)[: view.limit].tolist()))
    facts = ["name", "module"] if output_format == "table" else _SLACK_FACTS
    texts = coded_facts(run.workload, columns["rank"], columns["node_id"], facts)
    keys = {name: columns.pop(name) for name in ("rank", "node_id")} | texts
    print_columns(keys | columns, _most_critical_first(columns), output_format, title=view.title, count=count)
    if output_format == "table":
        console.print_text(view.note, "dim")


def _rows_of(columns: dict[str, npt.NDArray[Any]], rows: Any) -> dict[str, npt.NDArray[Any]]:
    return {name: column[rows] for name, column in columns.items()}


def _most_critical_first(columns: dict[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return the order of rows by slack, and of equal slacks by duration, the longest first."""
    import numpy as np

    return np.lexsort((-columns["duration_ns"], columns["slack_ns"]))
