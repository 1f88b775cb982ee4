"""Background jobs, which outlive the process that submits them."""

from ._job import ImportRequest as ImportRequest
from ._job import Job as Job
from ._job import SweepRequest as SweepRequest
from ._store import JobStore as JobStore
