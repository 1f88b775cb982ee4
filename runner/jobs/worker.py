"""The process of one job: ``python -m chakrascope.runner.jobs.worker STUDY JOB SLOTS``."""

from __future__ import annotations

import sys

from ..study import Study
from ._attempt import Attempt
from ._store import JobStore

__all__ = ["main"]


def main(study: str, identity: int, slots: int) -> None:
    """Run the job; this process inherited its lock."""
    Attempt(JobStore(Study.open(study), slots), identity).run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
