"""Query the tables of a run with read-only SQL."""

from ._query import query_run as query_run
from ._tables import SQL_EXAMPLES as SQL_EXAMPLES
from ._tables import SQL_TABLES as SQL_TABLES
from ._tables import sql_columns as sql_columns
