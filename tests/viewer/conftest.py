"""A small synthetic study with the interface of the real one, a server for it, and a browser."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

HOSTILE = '<img src=x onerror="alert(1)"> \u202eevil & ' + "x" * 200


def _program(rank: int, late_ns: int, layers: int) -> pd.DataFrame:
    rows, at = [], 0
    for layer in range(layers):
        for phase, kind, duration in (
            ("forward", "launch", 20_000),
            ("forward", "compute", 400_000 + late_ns),
        ):
            rows.append((f"{phase} {kind} {layer}", 4, kind, phase, duration, -1, 0, f"layers.{layer}", at))
            at += duration
        rows.append(
            (f"all_reduce {layer}", 7, "communication", "communication", 300_000, 0, 1, f"layers.{layer}", at)
        )
        at += 300_000
    rows[0] = (HOSTILE, *rows[0][1:])
    table = pd.DataFrame(
        rows,
        columns=["name", "type", "kind", "phase", "duration_ns", "comm_type", "stream", "module", "start"],
    )
    return table.assign(rank=rank, node_id=np.arange(len(rows)))


class FakePath:
    def __init__(self, segments: pd.DataFrame) -> None:
        self.segments = segments
        self.makespan_ns = int(segments["end_ns"].max())

    def breakdown(self, by: str) -> pd.DataFrame:
        table = self.segments.groupby(by, sort=False)["duration_ns"].sum().reset_index()
        table.columns = ["key", "duration_ns"]
        return table.assign(share=table["duration_ns"] / table["duration_ns"].sum())


def make_run(ranks: int = 2, layers: int = 6):
    """Build (result, workload, path) of a job whose last rank is the straggler of every all-reduce."""
    programs = [_program(rank, 100_000 * (rank == ranks - 1), layers) for rank in range(ranks)]
    slow = programs[-1]
    nodes, graphs = [], []
    for table in programs:
        start = slow["start"].where(slow["kind"] == "communication", table["start"]).to_numpy()
        start = np.where(table["kind"] == "communication", start, slow["start"])
        end = start + table["duration_ns"].to_numpy()
        nodes.append(
            pd.DataFrame(
                {
                    "rank": table["rank"],
                    "node_id": table["node_id"],
                    "start_ns": start,
                    "end_ns": end,
                    "cause_node": table["node_id"] - 1,
                    "cause_is_dependency": True,
                    "origin_rank": ranks - 1,
                    "origin_node": table["node_id"],
                }
            )
        )
        described = pd.DataFrame(
            {
                "node_id": table["node_id"],
                "name": table["name"],
                "type": table["type"].astype("uint8"),
                "duration_ns": table["duration_ns"],
                "is_cpu_op": False,
                "comm_type": table["comm_type"],
                "comm_size_bytes": np.where(table["comm_type"] >= 0, 25 << 20, -1),
                "group": 0,
                "comm_src": -1,
                "comm_dst": -1,
                "comm_tag": -1,
                "num_ops": -1,
                "tensor_size_bytes": -1,
                "stream": table["stream"],
                "operator": table["name"],
                "module": table["module"],
                "phase": table["phase"],
                "kind": table["kind"],
                "step": 0,
                "measured_start_ns": table["start"],
            }
        )
        ids = table["node_id"].to_numpy()
        edges = pd.DataFrame({"src": ids[:-1], "dst": ids[1:], "kind": np.arange(len(ids) - 1) % 9})
        graphs.append(
            SimpleNamespace(rank=int(table["rank"].iloc[0]), nodes=described, edges=edges, metadata={})
        )
    last = nodes[-1].merge(graphs[-1].nodes, on="node_id")
    segments = pd.DataFrame(
        {
            "segment": np.arange(len(last)),
            "rank": last["rank"],
            "node_id": last["node_id"],
            "name": last["name"],
            "kind": last["kind"],
            "start_ns": last["start_ns"],
            "end_ns": last["end_ns"],
            "duration_ns": last["end_ns"] - last["start_ns"],
            "reason": "its input was ready",
            "operator": last["operator"],
            "module": last["module"],
            "collective": np.where(last["kind"] == "communication", last["name"], ""),
            "phase": last["phase"],
        }
    )
    makespan = int(segments["end_ns"].max())
    result = SimpleNamespace(
        backend="fake",
        makespan_ns=makespan,
        nodes=pd.concat(nodes, ignore_index=True),
        ranks=pd.DataFrame(
            {
                "rank": range(ranks),
                "finish_ns": makespan,
                "exposed_comm_ns": layers * 300_000,
                "compute_ns": layers * 400_000,
                "comm_ns": layers * 300_000,
                "overlap_ns": 0,
            }
        ),
        provenance={"warnings": [], "assumptions": ["the second rank is slower"]},
    )
    workload = SimpleNamespace(
        graphs=tuple(graphs),
        program_of_rank=np.arange(ranks, dtype=np.int32),
        num_ranks=ranks,
        node_table=lambda: pd.concat(
            [graph.nodes.assign(rank=graph.rank) for graph in graphs], ignore_index=True
        ),
    )
    return result, workload, FakePath(segments)


def make_summary(result, path):
    """Build what the runner's summary holds of one run."""
    return SimpleNamespace(
        headline="The step is bound by compute",
        makespan_ns=result.makespan_ns,
        path=path,
        kinds=path.breakdown("kind"),
        ranks=result.ranks.assign(idle_ns=0),
    )


class FakeStudy:
    """Two runs of one workload."""

    def __init__(self) -> None:
        self.made = {"run-a": make_run(2), "run-b": make_run(4)}

    def runs(self):
        return [
            SimpleNamespace(
                id=name,
                backend="fake",
                network="two-node",
                makespan_ns=made[0].makespan_ns,
                created="2026-01-01T00:00:00Z",
                label=name,
                workload=name,
                num_ranks=made[1].num_ranks,
            )
            for name, made in self.made.items()
        ]

    def result(self, run_id):
        return self.made[run_id][0]

    def run_workload(self, run_id):
        return self.made[run_id][1]


@pytest.fixture
def study(monkeypatch):
    made = FakeStudy()
    paths = {id(run[0]): run[2] for run in made.made.values()}
    from chakrascope.viewer import state

    monkeypatch.setattr(state, "summarize", lambda result, workload: make_summary(result, paths[id(result)]))
    return made


@pytest.fixture
def served(study):
    """Serve the study on a free loopback port; the value is its address without the final slash."""
    from werkzeug.serving import make_server

    from chakrascope.viewer import create_app

    server = make_server("127.0.0.1", 0, create_app(study).server, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def browser():
    api = pytest.importorskip("playwright.sync_api")
    from pathlib import Path

    if not Path("/usr/bin/chromium").exists():
        pytest.skip("no /usr/bin/chromium: install Debian's chromium package")
    with api.sync_playwright() as play:
        chromium = play.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
        )
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser, served):
    """A page that remembers every complaint and every request that leaves this machine."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.complaints, page.foreign = [], []
    page.on("console", lambda m: page.complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: page.complaints.append(str(e)))
    page.on(
        "request",
        lambda r: page.foreign.append(r.url) if not r.url.startswith((served, "data:", "blob:")) else None,
    )
    yield page
    context.close()
