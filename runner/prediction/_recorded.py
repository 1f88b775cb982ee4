"""Predict the step of a script that was recorded without devices, and store a prediction with its run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ...converter import Graph, NodeType, Workload
from ...converter.building import COMPUTED_FOR, counts_whole
from ...errors import UsageError
from ...support import share_text
from .._simulate import prepare
from .._traits import DEFAULT_BACKEND
from ..backends import Progress, get_backend
from ..chips import Chip, Fit
from ..config import NetworkConfig
from ..study import NAME_LENGTH, Study, safe_name
from ._predict import OTHER_CHIP, USUAL_UTILISATION, PredictedStep, Prediction
from ._prices import ChipPrices, Links, costs_on, predicted_system, reached_network
from .models import USUAL_HEAD, Operator

_ASSUMED = (0.65, 1.5)  # factors that widen the interval for costs without a fit
_WIDER = 1.5  # the interval is wider, because no measured step was recorded from a script
_ATTENTION = ("scaled_dot_product", "flash_attention", "efficient_attention")
_MIN_SHARE = 0.1  # TF32 is suggested if at least this share of operations is in FP32


@dataclass(frozen=True, kw_only=True)
class RecordedPrediction(PredictedStep):
    """The predicted step of a recorded script, with its inputs.

    *memory_bytes* is the largest peak of tensor bytes among the recorded ranks. *work* is the number of
    operations of matmuls, convolutions and attention of an average rank, by precision.
    """

    software: str
    work: Mapping[str, float]

    @property
    def precision(self) -> str:
        """The precisions of matmuls as text, in descending order of operations."""
        return " and ".join(self.work) or self.chip.precision

    @property
    def assumptions(self) -> list[str]:
        """The assumptions of the prediction, and deviations of the simulation from the request."""
        costs = f"costs of operators are those of '{self.software}' on {self.chip.title}, by class"
        return [*super().assumptions, *self._precisions(), costs]

    def _precisions(self) -> list[str]:
        """Return sentences on the precisions of matmuls, with a hint if the script disables TF32."""
        total, peaks = sum(self.work.values()), self.chip.peak_flops
        shares = [
            f"{share_text(work / total)} {name} ({peaks[name] / 1e12:,.0f} TFLOPS)"
            for name, work in self.work.items()
        ]
        if not shares:
            return []
        notes = [f"operations of matmuls, convolutions and attention by precision: {', '.join(shares)}"]
        if self.work.get("fp32", 0) > _MIN_SHARE * total and "tf32" in peaks:
            notes.append(
                f"the script leaves TF32 off; torch.set_float32_matmul_precision('high') computes FP32 "
                f"operands at {peaks['tf32'] / 1e12:,.0f} TFLOPS"
            )
        return notes


def check_recorded(
    ranks: int,
    chip: Chip,
    network: NetworkConfig,
    *,
    software: str,
    precision: str | None = None,
    backend: str = DEFAULT_BACKEND,
) -> None:
    """Raise `UsageError` or `ConfigError` if a script of *ranks* ranks cannot be predicted."""
    if ranks != network.num_ranks:
        raise UsageError(
            f"The script runs as {ranks} ranks, and the network '{network.name}' has {network.num_ranks}. "
            "Next: change --world, or the network. Presets exist for any number of nodes, such as "
            "hgx-h100-64x8 for 64 nodes."
        )
    get_backend(backend)
    chip.costs_of(software)
    if precision is not None:
        chip.peak(precision)


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
    """Predict the step of *workload*, recorded from a script, with the costs of *chip* on *network*.

    The operands of a matmul determine its precision, unless a *precision* is given for all matmuls. The
    function raises the errors of `check_recorded` and of the *backend*.
    """
    check_recorded(workload.num_ranks, chip, network, software=software, precision=precision, backend=backend)
    costs, links = costs_on(network, chip.costs_of(software)), Links.of(network)
    precisions = _precisions_on(chip, precision)
    prices = {name: ChipPrices(chip, costs, name, links) for name in {*precisions.values()}}
    graphs = tuple(_priced(graph, precisions, prices) for graph in workload.graphs)
    priced = replace(workload, graphs=graphs, metadata={**workload.metadata, COMPUTED_FOR: chip.name})
    reached = reached_network(network, costs)
    experiment = prepare(priced, predicted_system(network.topology), reached, backend=backend)
    result = get_backend(backend).run(experiment, progress)
    work, fit = _work(priced, precisions), chip.costs_of(software).fit
    at_peak_ns = sum(amount / chip.peak(name) for name, amount in work.items()) * 1e9
    return RecordedPrediction(
        chip=chip,
        experiment=experiment,
        result=result,
        memory_bytes=max(map(int, workload.metadata["memory_bytes"].values())),
        bounds=_bounds(fit),
        needed_ns=at_peak_ns,
        constant_utilisation_ns=round(at_peak_ns / (fit.utilisation or USUAL_UTILISATION)),
        software=software,
        work=work,
    )


def _bounds(fit: Fit) -> tuple[float, float]:
    """Return the factors on the step time that bound its 90 % interval."""
    low, high = (fit.low, fit.high) if fit.low and fit.high else _ASSUMED
    wider = math.exp(math.hypot(math.log(_WIDER), 0.0 if fit.rows else OTHER_CHIP))
    return min(low, 1.0) / wider, max(high, 1.0) * wider


def _precisions_on(chip: Chip, chosen: str | None) -> dict[str, str]:
    """Return the precision on *chip* for each recorded precision (``""``: unknown) or for all (*chosen*)."""
    peaks = chip.peak_flops
    half = next((name for name in (chip.precision, "bf16", "fp16") if name in {"bf16", "fp16"}), "")
    half = half if half in peaks else chip.precision
    single = "fp32" if "fp32" in peaks else half
    own = {
        "low": "fp8" if "fp8" in peaks else half,
        "half": half,
        "tf32": "tf32" if "tf32" in peaks else single,
        "fp32": single,
        "fp64": single,
        "": chip.precision,
    }
    return own if chosen is None else dict.fromkeys(own, chosen)


def _recorded_precision(name: str) -> str:
    """Return the precision at the end of a matmul's *name*, or ``""`` in older recordings."""
    return name.partition(" ")[2]


def _work(workload: Workload, precisions: Mapping[str, str]) -> dict[str, float]:
    """Return the number of matmul operations of an average rank by precision, in descending order."""
    work: Counter[str] = Counter()
    programs = np.bincount(workload.program_of_rank, minlength=len(workload.graphs))
    for graph, ranks in zip(workload.graphs, programs.tolist(), strict=True):
        nodes = graph.node_columns
        wholes = np.array([counts_whole(text) for text in nodes["operator"].texts], dtype=bool)
        rows = np.flatnonzero(wholes[nodes["operator"].numbers] & (nodes["type"] == NodeType.COMP))
        texts = [precisions[_recorded_precision(text)] for text in nodes["name"].texts]
        sums = np.bincount(nodes["name"].numbers[rows], nodes["num_ops"][rows], minlength=len(texts))
        for text, total in zip(texts, sums.tolist(), strict=True):
            work[text] += total * ranks / workload.num_ranks
    return {name: amount for name, amount in work.most_common() if amount > 0}


def _priced(graph: Graph, precisions: Mapping[str, str], prices: Mapping[str, ChipPrices]) -> Graph:
    """Return *graph* with the predicted duration of each compute node."""
    nodes = graph.node_columns
    kinds = [(_kind_of(text), " gradient" * ("backward" in text)) for text in nodes["operator"].texts]
    named = [precisions.get(_recorded_precision(text), precisions[""]) for text in nodes["name"].texts]
    prices_ns: dict[tuple[str, str, str, int, int], int] = {}
    times = nodes["duration_ns"].copy()
    rows = np.flatnonzero(nodes["type"] == NodeType.COMP)
    columns = (
        nodes["operator"].numbers, nodes["name"].numbers, nodes["num_ops"], nodes["tensor_size_bytes"],
    )  # fmt: skip
    values = (column[rows].tolist() for column in columns)
    for row, operator, name, work, moved in zip(rows.tolist(), *values, strict=True):
        kind, pass_of = kinds[operator]
        key = kind, pass_of, named[name], work, moved
        if key not in prices_ns:
            # The size of the script's attention heads is unknown.
            scores = work / (4 * USUAL_HEAD) if kind == "flash" else 0.0
            item = Operator(kind + pass_of, kind, work, moved, scores=scores)
            time = prices[named[name]].operator_ns(item) if work > 1 or moved > 1 else 0
            prices_ns[key] = max(1, round(time)) if time else 0
        times[row] = prices_ns[key]
    return graph.with_columns(duration_ns=times)


def _kind_of(operator: str) -> str:
    if any(part in operator for part in _ATTENTION):
        return "flash"
    return "gemm" if counts_whole(operator) else "pointwise"


def keep_prediction(prediction: Prediction, study: Study, label: str = "") -> str:
    """Add the workload and the run of *prediction* to *study* under *label*, and return the run's id."""
    plan, model = prediction.setting.plan, prediction.setting.model
    degrees = f"-tp{plan.tp}-pp{plan.pp}-dp{plan.dp}"
    name = safe_name(model.name, "model")[: NAME_LENGTH - len(degrees)] + degrees
    prefix = study.add_workload(prediction.workload, name)
    return study.add_run(
        prediction.experiment, prediction.run_result(), label=label, workload=prefix.parent.name
    )
