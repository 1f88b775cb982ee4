"""Which rank, stage or type of operation slows the steps of a job, from a table of its timed operations."""

from ._stragglers import STRAGGLER_TABLES as STRAGGLER_TABLES
from ._stragglers import Stragglers as Stragglers
from ._stragglers import find_stragglers as find_stragglers
from ._stragglers import operations_of as operations_of
