"""The Plotly figures of the pages."""

from __future__ import annotations

from ._charts import breakdown_bar as breakdown_bar
from ._charts import contributors_bar as contributors_bar
from ._charts import graph as graph
from ._charts import heat_map as heat_map
from ._charts import path_strip as path_strip
from ._charts import ranks_bar as ranks_bar
from ._charts import topology_sketch as topology_sketch
from ._comparison import best_heat_map as best_heat_map
from ._comparison import difference_histogram as difference_histogram
from ._comparison import difference_scatter as difference_scatter
from ._comparison import frontier_scatter as frontier_scatter
from ._comparison import parallel_coordinates as parallel_coordinates
from ._comparison import paths_bars as paths_bars
from ._comparison import runs_bar as runs_bar
from ._comparison import steps_strip as steps_strip
from ._comparison import waterfall_bars as waterfall_bars
from ._network import has_arrows as has_arrows
from ._network import link_map as link_map
from ._network import loads_bar as loads_bar
from ._network import pairs_chart as pairs_chart
from ._network import program_chart as program_chart
from ._network import use_map as use_map
from ._run import calibration_fit as calibration_fit
from ._run import memory_area as memory_area
from ._run import roofline_scatter as roofline_scatter
from ._run import stacks_icicle as stacks_icicle
from ._run import step_bars as step_bars
