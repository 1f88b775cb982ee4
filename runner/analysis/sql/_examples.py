"""Questions to begin with, each one SELECT."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["SQL_EXAMPLES"]

SQL_EXAMPLES: Mapping[str, str] = {
    "Operators by time on the critical path": """\
SELECT operator, kind, count(*) AS segments, sum(duration_ns) AS on_path_ns
FROM critical_path GROUP BY ALL ORDER BY on_path_ns DESC LIMIT 20""",
    "Which rank made the others wait, in which collective": """\
SELECT c.collective, c.operation, c.size_bytes, c.rank AS last_rank, c.skew_ns
FROM collectives c ORDER BY c.skew_ns DESC LIMIT 20""",
    "Time of each operator, rank against rank": """\
SELECT operator, min(total_ns) AS least_ns, max(total_ns) AS most_ns, arg_max(rank, total_ns) AS slowest_rank
FROM (SELECT operator, rank, sum(end_ns - start_ns) AS total_ns FROM nodes GROUP BY ALL)
GROUP BY operator ORDER BY most_ns - least_ns DESC LIMIT 20""",
    "Simulated against measured duration": """\
SELECT kind, count(*) AS nodes, sum(end_ns - start_ns) AS simulated_ns, sum(duration_ns) AS measured_ns
FROM nodes GROUP BY kind ORDER BY simulated_ns DESC""",
    "Gaps in which a rank's lane had nothing to do": """\
SELECT rank, stream, start_ns - before AS gap_ns, name AS followed_by, node_id
FROM (SELECT *, lag(end_ns) OVER (PARTITION BY rank, stream ORDER BY start_ns) AS before FROM nodes)
WHERE gap_ns > 0 ORDER BY gap_ns DESC LIMIT 20""",
    "Bytes by process group and operation": """\
SELECT c."group", c.operation, count(*) AS times, sum(c.size_bytes) AS size_bytes
FROM collectives c GROUP BY ALL ORDER BY size_bytes DESC""",
    "The busiest links": """\
SELECT src, dst, bytes, busy_ns, queue_ns FROM links ORDER BY busy_ns DESC LIMIT 20""",
    "Kinds of dependencies": "SELECT kind, count(*) AS edges FROM edges GROUP BY kind ORDER BY edges DESC",
}
"""What each asks -> the query."""
