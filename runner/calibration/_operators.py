"""Durations of a captured workload's operators by class.

Matrix products, attention, memory-bound operators.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from ...converter import NodeType, Workload
from ...errors import ConfigError
from .._captured import is_captured

__all__ = ["CLASSES", "class_of", "operator_table"]

CLASSES = ("gemm", "attention", "pointwise")
_GEMMS = ("mm", "bmm", "addmm", "baddbmm", "linear", "matmul", "conv", "_scaled_mm", "_int_mm", "_grouped_mm")
_ATTENTION = ("scaled_dot_product", "_flash_attention", "_efficient_attention")
_COLUMNS = ["operator", "num_ops", "tensor_size_bytes", "duration_ns"]


def class_of(operator: str) -> str:
    """Return the class of *operator*, such as ``aten::addmm``: one of `CLASSES`."""
    name = operator.rpartition("::")[2]
    if any(part in name for part in _ATTENTION):
        return "attention"
    stem = name.removeprefix("mkldnn_").removeprefix("cudnn_").removeprefix("miopen_")
    if stem in _GEMMS or stem.startswith(("conv", "_conv", "slow_conv")):
        return "gemm"
    return "pointwise"


def operator_table(workload: Workload) -> pd.DataFrame:
    """Return a row per captured operator with a cost: ``rank, node_id``, operator, class, ops, bytes, ns.

    ``work`` determines its time: operations for matrix products and attention, else bytes. Raises
    `ConfigError` for a workload that does not come from a measurement.
    """
    if not is_captured(workload.metadata):
        raise ConfigError(
            "The workload does not come from a measurement, so its operators took no time to fit anything "
            "to; capture the job with 'chakrascope trace'."
        )
    tables = []
    for place, graph in enumerate(workload.graphs):
        nodes = graph.nodes
        # A cost of 1 stands for an operator without a known cost.
        chosen = (nodes["type"] == NodeType.COMP) & (nodes["kind"] == "compute") & (nodes["duration_ns"] > 1)
        chosen &= nodes["tensor_size_bytes"] > 1
        tables.append(nodes.loc[chosen, ["node_id", *_COLUMNS]].assign(program=place))
    table: pd.DataFrame = pd.concat(tables, ignore_index=True)
    table["class"] = table["operator"].astype(str).map(class_of)
    by_ops = table["class"].isin(["gemm", "attention"])
    table["work"] = np.where(by_ops, table["num_ops"], table["tensor_size_bytes"]).astype(np.float64)
    costed: pd.DataFrame = table[table["work"] > 1].reset_index(drop=True)
    return costed
