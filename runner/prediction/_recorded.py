"""Predict the step of a script that was recorded without devices; store a prediction with its run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...converter import Graph, NodeType, Workload
from ...errors import UsageError
from .._captured import COMPUTED_FOR
from .._experiment import Experiment
from .._result import Result
from .._simulate import prepare
from .._traits import DEFAULT_BACKEND
from ..backends import Progress, get_backend
from ..chips import Chip
from ..config import NetworkConfig
from ..study import NAME_LENGTH, Study, safe_name
from ._links import Links, costs_on, predicted_system, reached_network
from ._predict import Prediction, what_bounds
from ._prices import ChipPrices
from .models import USUAL_HEAD, Operator

_ASSUMED = (0.65, 1.5)  # of costs that were fitted on nothing
_WIDER = 1.5  # no measured row was recorded from its script
_USUAL_UTILISATION = 0.4
_ATTENTION = ("scaled_dot_product", "flash_attention", "efficient_attention")
_PRODUCTS = frozenset({
    "mm", "bmm", "addmm", "baddbmm", "matmul", "linear", "_scaled_mm", "_grouped_mm", "addbmm",
    "mv", "_int_mm",
})  # fmt: skip


@dataclass(frozen=True)
class RecordedPrediction:
    """The predicted step of a script, with its inputs. Times are ns, sizes bytes."""

    chip: Chip
    software: str
    precision: str
    experiment: Experiment
    result: Result
    workload: Workload

    @property
    def step_ns(self) -> int:
        """The simulated step."""
        return self.result.makespan_ns

    @property
    def range_ns(self) -> tuple[int, int]:
        """The 90 % interval of the step."""
        fit = self.chip.costs_of(self.software).fit
        low, high = (fit.low, fit.high) if fit.low and fit.high else _ASSUMED
        return round(self.step_ns * min(low, 1.0) / _WIDER), round(self.step_ns * max(high, 1.0) * _WIDER)

    @property
    def memory_bytes(self) -> int:
        """The largest peak of tensor bytes of a recorded rank."""
        return max(map(int, self.workload.metadata["memory_bytes"].values()))

    @property
    def fits(self) -> bool:
        """Whether they fit into the chip's memory."""
        return self.memory_bytes <= self.chip.memory_bytes

    @property
    def utilisation(self) -> float:
        """The share of the peak for the operations of all ranks, including recomputed ones."""
        return self._at_peak_ns() / self.step_ns

    @property
    def constant_utilisation_ns(self) -> int:
        """The step time if every job reached the same share of the peak."""
        share = self.chip.costs_of(self.software).fit.utilisation or _USUAL_UTILISATION
        return round(self._at_peak_ns() / share)

    @property
    def bound_by(self) -> str:
        """The largest part of the critical path, as text."""
        return what_bounds(self.result, self.workload)

    @property
    def assumptions(self) -> list[str]:
        """The assumptions, and the deviations from the requested simulation."""
        provenance = self.result.provenance
        notes = [*provenance.get("warnings", []), *provenance.get("assumptions", [])]
        costs = f"costs of operators are those of '{self.software}' on {self.chip.title}, by class"
        return [str(line) for line in dict.fromkeys([*notes, costs])]

    def to_json(self) -> dict[str, Any]:
        """Return the prediction as JSON; a script's tokens per step are unknown."""
        low, high = self.range_ns
        return {
            "step_ns": self.step_ns,
            "step_low_ns": low,
            "step_high_ns": high,
            "tokens_per_s": None,
            "memory_bytes_per_rank": self.memory_bytes,
            "fits": self.fits,
            "bound_by": self.bound_by,
            "assumptions": self.assumptions,
        }

    def _at_peak_ns(self) -> float:
        programs = np.bincount(self.workload.program_of_rank, minlength=len(self.workload.graphs))
        work = [int(np.maximum(graph.node_columns["num_ops"], 0).sum()) for graph in self.workload.graphs]
        operations = float(np.dot(programs, work)) / self.workload.num_ranks
        return operations / self.chip.peak(self.precision) * 1e9


def predict_recorded(
    workload: Workload,
    chip: Chip,
    network: NetworkConfig,
    *,
    software: str,
    precision: str | None = None,
    backend: str = DEFAULT_BACKEND,
    progress: Progress | None = None,
) -> RecordedPrediction:
    """Simulate *workload*, recorded from a script, with the costs of *chip* on *network*.

    Raises `UsageError` if the network has another number of ranks, and the errors of the *backend*.
    """
    if workload.num_ranks != network.num_ranks:
        raise UsageError(
            f"The script was recorded as {workload.num_ranks} ranks, and the network '{network.name}' has "
            f"{network.num_ranks}. Next: change --world, or the network; of a preset such as hgx-h100-8x8, "
            "any number of nodes works: hgx-h100-64x8."
        )
    chosen = precision or chip.precision
    prices = ChipPrices(chip, costs_on(network, chip.costs_of(software)), chosen, Links.of(network))
    graphs = tuple(_priced(graph, prices) for graph in workload.graphs)
    priced = replace(workload, graphs=graphs, metadata={**workload.metadata, COMPUTED_FOR: chip.name})
    reached = reached_network(network, prices.costs)
    experiment = prepare(priced, predicted_system(network.topology), reached, backend=backend)
    result = get_backend(backend).run(experiment, progress)
    return RecordedPrediction(chip, software, chosen, experiment, result, priced)


def _priced(graph: Graph, prices: ChipPrices) -> Graph:
    """Return *graph* with the time of each computation."""
    nodes = graph.node_columns
    names = [(_kind_of(text), " gradient" * ("backward" in text)) for text in nodes["operator"].texts]
    prices_ns: dict[tuple[str, str, int, int], int] = {}
    times = nodes["duration_ns"].copy()
    rows = np.flatnonzero(nodes["type"] == NodeType.COMP)
    columns = (nodes["operator"].numbers, nodes["num_ops"], nodes["tensor_size_bytes"])
    values = (column[rows].tolist() for column in columns)
    for row, number, work, moved in zip(rows.tolist(), *values, strict=True):
        kind, pass_of = names[number]
        key = kind, pass_of, work, moved
        if key not in prices_ns:
            scores = (
                work / (4 * USUAL_HEAD) if kind == "flash" else 0.0
            )  # the heads of the script are unknown
            operator = Operator(kind + pass_of, kind, work, moved, scores=scores)
            prices_ns[key] = max(1, round(prices.operator_ns(operator))) if work > 1 or moved > 1 else 0
        times[row] = prices_ns[key]
    return graph.with_columns(duration_ns=times)


def _kind_of(operator: str) -> str:
    name = operator.rpartition("::")[2]
    if any(part in name for part in _ATTENTION):
        return "flash"
    return "gemm" if name in _PRODUCTS or "convolution" in name else "pointwise"


def kept_result(prediction: Prediction | RecordedPrediction) -> Result:
    """Return the result of *prediction* with the prediction itself in its provenance, for a run of a study.

    Its key ``prediction`` holds the output of `to_json`, the chip's title and its ``chip_memory_bytes``;
    ``memory_over_time`` has the curves of a prediction from model sizes.
    """
    chip = prediction.setting.chip if isinstance(prediction, Prediction) else prediction.chip
    document = {**prediction.to_json(), "chip": chip.title, "chip_memory_bytes": chip.memory_bytes}
    del document["assumptions"]  # the provenance has them already
    provenance = {**prediction.result.provenance, "prediction": document}
    if isinstance(prediction, Prediction):
        provenance["memory_over_time"] = [curve.to_json() for curve in prediction.memory_over_time]
    return dataclasses.replace(prediction.result, provenance=provenance)


def keep_prediction(prediction: Prediction, study: Study, label: str = "") -> str:
    """Add the workload of *prediction* and its run, called *label*, to *study*; return the run's id."""
    plan, model = prediction.setting.plan, prediction.setting.model
    degrees = f"-tp{plan.tp}-pp{plan.pp}-dp{plan.dp}"
    name = safe_name(model.name, "model")[: NAME_LENGTH - len(degrees)] + degrees
    prefix = study.add_workload(prediction.workload, name)
    return study.add_run(
        prediction.experiment, kept_result(prediction), label=label, workload=prefix.parent.name
    )
