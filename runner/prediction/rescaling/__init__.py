"""Rescale a captured workload to other degrees of parallelism, batches, depths or chips."""

from ._layers import with_chip as with_chip
from ._layers import with_data_parallelism as with_data_parallelism
from ._layers import with_layers as with_layers
from ._layers import with_micro_batches as with_micro_batches
from ._stages import with_stages as with_stages
