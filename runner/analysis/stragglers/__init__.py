"""Find which ranks, stages and types of operation slow a job, from a table of timed operations."""

from ._stragglers import STRAGGLER_TABLES as STRAGGLER_TABLES
from ._stragglers import Stragglers as Stragglers
from ._stragglers import find_stragglers as find_stragglers
from ._stragglers import operations_of as operations_of
