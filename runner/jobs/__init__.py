"""Background jobs that outlive the submitting process, with submission, progress and cancellation."""

from ._job import ImportRequest as ImportRequest
from ._job import Job as Job
from ._job import SweepRequest as SweepRequest
from ._store import JobStore as JobStore
