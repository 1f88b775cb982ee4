"""Convert the engine's output to a result: tables, provenance, and warnings about ignored input.

The table ``collectives`` splits the time of every collective node into waiting and transfer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...converter import NodeType, Workload
from ...support import count_text, package_version
from ...support.table import Columns, Table, frame_of
from .. import engine
from .._experiment import Detail, Experiment
from .._framed import PairIndex, changed_rows, rows_coded, turns, typed
from .._node_tables import RecordedNodes, calls_of_all, nodes_of_all
from .._result import COLUMNS, MANY_NODES, ROOFLINE, Result, empty_columns
from .._sync_points import with_measured_waits
from .._traits import about_backend, backends_that
from ..config import Fabric

if TYPE_CHECKING:
    import pandas as pd

_Integers = npt.NDArray[np.integer[Any]]

_FACTS = {"node_id": "node_id", "comm_type": "comm_type", "group": "group", "comm_size_bytes": "size_bytes"}


def collective_table(nodes: pd.DataFrame, workload: Workload) -> pd.DataFrame:
    """Return the table ``collectives`` for the executed *nodes* of a result.

    The k-th collective of a type in a group, in order of node ids, is the same collective on every
    rank. *wait_ns* is the time from a rank's arrival until the last rank that it depends on
    arrives, and *transfer_ns* is the rest of the node's time.
    """
    columns = {str(name): nodes[name].to_numpy() for name in nodes}
    facts = _facts(workload)
    program = np.asarray(workload.program_of_rank, dtype=np.int64)[columns["rank"]]
    fact = PairIndex(facts["program"], facts["node_id"]).rows(program, columns["node_id"])
    chosen = np.flatnonzero(fact >= 0)
    if not len(chosen):
        return frame_of(empty_columns("collectives"))
    chosen = chosen[np.lexsort((columns["node_id"][chosen], columns["rank"][chosen]))]
    calls = {name: columns[name][chosen] for name in ("rank", "node_id", "start_ns", "end_ns")}
    calls |= {name: facts[name][fact[chosen]] for name in ("comm_type", "group", "size_bytes")}
    calls["origin_start_ns"] = _origin_start(chosen, columns)
    return frame_of(arranged_calls(calls))


def arranged_calls(calls: Mapping[str, _Integers]) -> Columns:
    """Return the columns of the table ``collectives`` for *calls*, one row per rank and node.

    Derived columns are missing. ``origin_start_ns`` is when the chain of events that ended the
    collective began.
    """
    if not len(calls["rank"]):
        return empty_columns("collectives")
    table = dict(calls)
    origin_start = np.minimum(table.pop("origin_start_ns"), table["end_ns"])
    table["wait_ns"] = np.maximum(origin_start - table["start_ns"], 0)
    table["transfer_ns"] = table["end_ns"] - table["start_ns"] - table["wait_ns"]
    key = (turns(table["comm_type"], table["group"], table["rank"]), table["comm_type"], table["group"])
    numbers, firsts = rows_coded(*key)
    earliest = table["start_ns"][firsts]
    np.minimum.at(earliest, numbers, table["start_ns"])
    order = np.lexsort((table["rank"], *key, earliest[numbers]))
    table = {name: values[order] for name, values in table.items()}
    table["collective"] = np.cumsum(changed_rows([values[order] for values in key])) - 1
    return {name: table[name].astype(kind) for name, kind in COLUMNS["collectives"].items()}


def _facts(workload: Workload) -> dict[str, _Integers]:
    """Return the program, id and attributes of every collective node of every program."""
    rows: dict[str, list[_Integers]] = {name: [] for name in ("program", *_FACTS.values())}
    for index, graph in enumerate(workload.graphs):
        chosen = np.asarray(graph.node_columns["type"]) == NodeType.COMM_COLL
        rows["program"].append(np.full(np.count_nonzero(chosen), index))
        for column, name in _FACTS.items():
            rows[name].append(np.asarray(graph.node_columns[column])[chosen])
    return {name: np.concatenate(parts) for name, parts in rows.items()}


def _origin_start(rows: _Integers, nodes: dict[str, _Integers]) -> _Integers:
    """Return the start of the origin node of each node in *rows*, in ns."""
    index = PairIndex(nodes["rank"], nodes["node_id"])
    origin = index.rows(nodes["origin_rank"][rows], nodes["origin_node"][rows])
    return np.where(origin >= 0, nodes["start_ns"][origin], nodes["start_ns"][rows])


def ignored_keys(experiment: Experiment) -> list[str]:
    """Return one warning per configuration key that the backend ignores."""
    sentences = experiment.system.ineffective()
    traits = about_backend(experiment.backend)
    if experiment.network.tcp is not None and not traits.tcp:
        sentences.append(
            f"'tcp' has no effect on '{experiment.backend}': only {backends_that('tcp')} models TCP with its "
            "settings."
        )
    if traits.ignores:
        sentences.append(traits.ignores)
    return sentences + _efficiency(experiment)


def _efficiency(experiment: Experiment) -> list[str]:
    """Return warnings about the library overheads that the backend ignores."""
    part, backend = experiment.network.efficiency, experiment.backend
    if part is None:
        return []
    used = about_backend(backend).efficiency
    if used == "what is sent":
        return [
            f"Of 'efficiency' only 'substitutes', 'handshake' and 'sends-first' have an effect on "
            f"'{backend}': measurements include the losses."
        ]
    if used == "none":
        return [
            f"'efficiency' has no effect on '{backend}': its inputs do not contain it, so messages get the "
            "full bandwidth and collectives have no overhead."
        ]
    if part.wire < 1 and used == "all but wire":
        return [
            f"'wire' of 'efficiency' has no effect on '{backend}', whose packets have headers; its other "
            f"keys have an effect."
        ]
    return []


# A node table of this size takes about 300 MB.
_MAX_NODE_ROWS = 5_000_000
_LISTS = tuple(name.replace("-", "_") for name in engine.COLLECTIVES)


def result_of(experiment: Experiment, output: Any) -> Result:
    """Return the part of the result that all models share, from the engine's *output*."""
    columns = [name for name in COLUMNS["ranks"] if name != "rank"]
    ranks: Columns = {"rank": np.arange(experiment.workload.num_ranks, dtype=np.int64)}
    ranks |= {name: getattr(output, f"rank_{name}") for name in columns}
    if output.folded:
        ranks["representative"] = output.rank_representative
    if experiment.system.roofline_enabled:
        # Compute bound, compute utilisation and memory utilisation are fractions of the time of
        # compute nodes, where ASTRA-sim prints percentages. Operation intensity is in operations
        # per byte.
        ranks |= {name: getattr(output, f"rank_{name}") for name in ROOFLINE}
    result = Result(
        backend=experiment.backend,
        makespan_ns=int(output.makespan_ns),
        ranks=ranks,
        provenance=run_provenance(experiment, output),
    )
    return _with_tables(result, experiment, output) if experiment.detail is Detail.EVERYTHING else result


def _with_tables(result: Result, experiment: Experiment, output: Any) -> Result:
    """Add the tables of the engine's *output* to *result*.

    Ranks that ran the same program identically share the rows of the first of these ranks (`nodes_of_all`).
    Ranks that were not simulated have no rows in the tables of nodes and collectives if the tables would be
    too large, or if the workload has only one rank of each kind.
    """
    alone = experiment.workload.representative_of_rank is not None
    of_all = output.folded and not alone and int(output.nodes_executed) <= _MAX_NODE_ROWS
    representatives = output.rank_representative
    program_of_rank = np.asarray(experiment.workload.program_of_rank)
    equal = of_all and np.array_equal(program_of_rank, program_of_rank[representatives])
    links = {name: getattr(output, f"link_{name}") for name in COLUMNS["links"]}
    link_use = typed(output.fabric.intervals, COLUMNS["link_use"])
    columns = arranged_calls(output.collectives(of_all and not equal))
    replays = about_backend(result.backend).replays
    calls = Table.of(with_measured_waits(columns) if replays else columns)
    # Build small tables now, so that the engine's records can be freed.
    recorded = Table(RecordedNodes(output))
    nodes = Table.of(recorded.read()) if recorded.num_rows < MANY_NODES else recorded
    if of_all:
        counts = np.zeros(len(representatives), np.int64)
        counts[np.unique(representatives)] = output.node_counts
        nodes = nodes_of_all(nodes, representatives, counts[representatives])
        nodes = nodes if equal else Table.of(nodes.columns())
    if equal:
        calls = calls_of_all(calls, representatives)
    return result.with_columns(nodes=nodes, collectives=calls, links=links, link_use=link_use)


def run_provenance(experiment: Experiment, output: Any) -> dict[str, Any]:
    """Return the provenance of a result, including the engine's counters in *output*."""
    warnings = [
        *experiment.system.warnings,
        *_short_lists(experiment),
        *_overtaking(output),
        *_replayed(output),
        *_evened(output),
        *_undercharged(output),
    ]
    skipped = int(output.nodes_total) - int(output.nodes_executed)
    if skipped:
        warnings.append(
            f"{skipped} of {output.nodes_total} nodes were never executed, because they wait in a dependency "
            "cycle."
        )
    remarks = [*experiment.programs.remarks, *_program_remarks(experiment)]
    return common_provenance(experiment, {"chakrascope": package_version()}, warnings, remarks) | {
        "nodes_total": int(output.nodes_total),
        "nodes_executed": int(output.nodes_executed),
        "events": int(output.events),
        "overtaking": int(output.overtaking),
        "overtaken": int(output.overtaken),
        "folded": bool(output.folded),
        "waits_for_peers": experiment.sync is not None,
        "ranks_simulated": len(np.unique(output.rank_representative)),
        "finish_order": output.finish_order.tolist(),
    }


def common_provenance(
    experiment: Experiment, versions: Mapping[str, str], warnings: list[str], assumptions: Sequence[str]
) -> dict[str, Any]:
    """Return the provenance that results of all simulators have, with the backend's own sentences."""
    return experiment.describe() | {
        "network_name": experiment.network.name,
        "system_name": experiment.system.name,
        "experiment_hash": experiment.content_hash,
        "workload_hash": experiment.workload.content_hash,
        "versions": dict(versions),
        "ignored_keys": ignored_keys(experiment),
        "warnings": warnings,
        "assumptions": [*experiment.network.remarks, *experiment.assumptions, *assumptions],
    }


def more_provenance(
    provenance: dict[str, Any],
    facts: dict[str, Any],
    *,
    warnings: Sequence[str] = (),
    assumptions: Sequence[str] = (),
) -> dict[str, Any]:
    """Return *provenance* with *facts*, and with *warnings* and *assumptions* after its own."""
    sentences = {
        "warnings": [*provenance["warnings"], *warnings],
        "assumptions": [*provenance["assumptions"], *assumptions],
    }
    return provenance | facts | sentences


def _program_remarks(experiment: Experiment) -> list[str]:
    """Return a warning if the model gives a collective program more bandwidth than the network has."""
    if not experiment.programs.programs:
        return []
    remarks = {remark for lowered in experiment.program_messages.values() for remark in lowered.remarks}
    if about_backend(experiment.backend).folds:
        remarks.add(
            "This network gives every message a separate link, so a program that sends several messages at a "
            f"time appears too fast. On {backends_that('links', 'and')}, messages share links."
        )
    return sorted(remarks)


def _overtaking(output: Any) -> list[str]:
    """Return a note if operations had to overtake others to avoid a deadlock."""
    if not output.overtaking:
        return []
    lanes = " and the lanes of the ranks" if output.overtaking > 1 else ""
    return [
        f"In the order of the queues{lanes}, the ranks would deadlock. The real job did not, so "
        f"{output.overtaken} chunks or operations overtook others that wait for a peer (each process group "
        "makes progress independently, like a communicator)."
    ]


def _replayed(output: Any) -> list[str]:
    """Return a note if collectives were replayed without messages, as ASTRA-sim replays broadcasts."""
    if not output.replayed:
        return []
    return [
        "Broadcasts send no messages: as in ASTRA-sim, which has no algorithm for broadcasts, a "
        "broadcast takes the recorded time of its node, or 1 ns without a recorded time. With semantics "
        "'trace' (run --semantics trace), broadcasts are simulated."
    ]


def _evened(output: Any) -> list[str]:
    """Return a note if unequal sizes within a collective were ignored."""
    if not output.evened:
        return []
    return [
        f"In some collectives (at most {output.evened} on a rank), members have unequal amounts. With "
        "semantics 'astra-sim', all members have the same amount. With semantics 'trace', each pair of "
        "ranks exchanges its own number of bytes."
    ]


def _undercharged(output: Any) -> list[str]:
    """Return a warning if messages across several dimensions were charged for only one, as in ASTRA-sim."""
    if output.undercharged is None:
        return []
    source, destination, size_bytes, charged_ns, whole_ns = output.undercharged
    return [
        "Some messages are too fast: as in ASTRA-sim, a message pays only for the lowest dimension in which "
        f"its two ranks differ. {size_bytes} bytes from rank {source} to rank {destination} take "
        f"{charged_ns} ns, and {whole_ns} ns over all dimensions between them. Next: use semantics 'trace' "
        f"(run --semantics trace), or {backends_that('links')}, which charge every dimension."
    ]


def _short_lists(experiment: Experiment) -> list[str]:
    """Return a note for each algorithm list that is shorter than the network's number of dimensions."""
    sentences = []
    for name in _LISTS:
        value = getattr(experiment.system, f"{name}_implementation")
        short = value is not None and 0 < len(value) < experiment.network.dimensions
        if short and not value[-1].startswith(engine.WHOLE_ALGORITHMS):
            sentences.append(
                f"'{name.replace('_', '-')}-implementation' names {len(value)} of "
                f"{experiment.network.dimensions} dimensions: the collective runs only inside these."
            )
    return sentences


def completion_times(flows: pd.DataFrame | Columns) -> dict[str, Any]:
    """Return ``flow_completion_ns``: statistics of message durations in *flows*; empty without messages."""
    times = np.asarray(flows["end_ns"] - flows["start_ns"])
    if not len(times):
        return {}
    statistics = {
        "count": len(times),
        "min": int(times.min()),
        "mean": float(times.mean()),
        "median": float(np.median(times)),
        "p99": float(np.quantile(times, 0.99)),
        "max": int(times.max()),
    }
    return {"flow_completion_ns": statistics}


def change_sentences(fabric: Fabric, changed: dict[str, Any]) -> list[str]:
    """Return a sentence per link change: what happened to the messages in flight."""
    sentences = []
    time_us, *ends = fabric.settings["LINK_DOWN"]
    if time_us:
        sentences.append(
            f"LINK_DOWN: the link of nodes {ends[0]} and {ends[1]} is down from 2 s + {time_us} us, "
            "because ASTRA-sim counts this time from 2 s."
        )
    columns = (changed[name].tolist() for name in ("time_ns", "lost", "rerouted", "waiting"))
    for time_ns, lost, rerouted, waiting in zip(*columns, strict=True):
        words = [f"{count_text(lost, 'packet')} lost", f"{count_text(rerouted, 'message')} were rerouted"]
        if waiting:
            words.append(f"{count_text(waiting, 'message')} without a path until a link comes back")
        sentences.append(f"Links changed at {time_ns} ns: {', '.join(words)}.")
    later = sorted({change.time_ns for change in fabric.changes} - set(changed["time_ns"].tolist()))
    if later:
        sentences.append(f"The job ended before the link change at {later[0]} ns.")
    return sentences
