"""The pages of the viewer.

Each page is a module with PATH, TITLE, ``layout(run, selection, scheme)`` and ``register(app,
view)``. If NEEDS_RUN is false, ``layout`` takes the view of the study instead of a run. LATER maps parts
that take longer (see `later_id`) to functions of the run and the scheme.
"""

from __future__ import annotations

from typing import Any

from . import _compare as compare
from . import _configure as configure
from . import _critical_path as critical_path
from . import _diff as diff
from . import _graph as graph
from . import _imports as imports
from . import _jobs as jobs
from . import _network as network
from . import _operators as operators
from . import _query as query
from . import _runs as runs
from . import _stragglers as stragglers
from . import _studies as studies
from . import _summary as summary
from . import _sweep as sweep
from . import _timeline as timeline
from ._parts import card as card
from ._parts import error_alert as error_alert
from ._parts import link_to as link_to
from ._parts import no_workload as no_workload
from ._parts import node_search as node_search
from ._parts import page_address as page_address
from ._parts import prose as prose

NEW_RUN_PATH: str = configure.PATH
STRAGGLERS_PATH: str = stragglers.PATH

PAGES: tuple[Any, ...] = (
    summary,
    critical_path,
    timeline,
    graph,
    operators,
    network,
    stragglers,
    compare,
    diff,
    sweep,
    query,
    runs,
    configure,
    imports,
)
# The modules with callbacks: all pages, and the job list that several of them show.
REGISTERED: tuple[Any, ...] = (*PAGES, jobs)
# The page that lists the studies of a workspace.
STUDIES: Any = studies
