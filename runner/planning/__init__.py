"""Search for the best plan to train a model on a cluster: estimate all plans, and simulate some."""

from ._estimate import possible_degrees as possible_degrees
from ._request import Cluster as Cluster
from ._request import Limits as Limits
from ._request import Request as Request
from ._request import plan_command as plan_command
from ._search import Plans as Plans
from ._search import SearchProgress as SearchProgress
from ._search import search_plans as search_plans
