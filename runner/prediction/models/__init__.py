"""Generate training steps without a trace: models by name or by size, in any parallelism."""

from __future__ import annotations

from ._blocks import AXIS_LANES as AXIS_LANES
from ._blocks import LANES as LANES
from ._blocks import Block as Block
from ._blocks import Prices as Prices
from ._blocks import Stage as Stage
from ._catalog import find_model as find_model
from ._catalog import list_models as list_models
from ._catalog import read_model as read_model
from ._memory import Memory as Memory
from ._memory import fullest_memory as fullest_memory
from ._memory import in_flight as in_flight
from ._memory import least_recomputation as least_recomputation
from ._memory import rank_memory as rank_memory
from ._operators import DENSE_KERNELS as DENSE_KERNELS
from ._operators import PRODUCTS as PRODUCTS
from ._operators import USUAL_HEAD as USUAL_HEAD
from ._operators import Exchange as Exchange
from ._operators import Item as Item
from ._operators import Operator as Operator
from ._operators import Phase as Phase
from ._operators import Routing as Routing
from ._operators import Spread as Spread
from ._operators import pass_over_layer as pass_over_layer
from ._operators import phases as phases
from ._operators import spread as spread
from ._passes import Passes as Passes
from ._plan import AXES as AXES
from ._plan import OFFLOAD as OFFLOAD
from ._plan import RECOMPUTATIONS as RECOMPUTATIONS
from ._plan import SCHEDULES as SCHEDULES
from ._plan import Plan as Plan
from ._plan import recomputation_of as recomputation_of
from ._plan import shares_heads as shares_heads
from ._training import Span as Span
from ._training import Turn as Turn
from ._training import schedule as schedule
from ._training import training_step as training_step
from ._training import turn_spans as turn_spans
from ._transformer import Transformer as Transformer
