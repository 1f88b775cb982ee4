"""List the changes that a what-if can make to a run."""

from __future__ import annotations

from .._traits import about_backend
from ._links import link_table
from ._run import RunAnalysis
from ._what_if import Target

_LINKS, _EDGES, _CONTRIBUTORS = 5, 12, 40


def changes(run: RunAnalysis) -> list[Target]:
    """Return what-if targets for *run*: contributors to the path, the network, and the busiest links.

    Of operators, modules and collectives, the 40 largest of each are included.
    """
    network = run.result.provenance.get("network", {})
    targets = run.faster_targets(_CONTRIBUTORS)
    if any(target.what == "machine" for target in targets):
        return targets
    if network.get("links") or about_backend(run.info.backend).fabric:
        busiest = link_table(run.result).drop_duplicates(["src", "dst"]).head(_LINKS)
        targets += [Target("link", f"{row['src']}-{row['dst']}") for row in busiest.to_dict("records")]
    return targets


def drops(run: RunAnalysis, rank: int, node_id: int) -> list[Target]:
    """Return a what-if target per incoming edge of a node; none for an unknown node."""
    if run.node(rank, node_id) is None:
        return []
    edges = run.edges_of(rank)
    sources = edges.loc[edges["dst"] == node_id, "src"].head(_EDGES)
    return [Target("edge", f"{rank}/{source}-{node_id}") for source in sources]
