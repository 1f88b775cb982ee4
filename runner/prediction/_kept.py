"""Keep with a run what makes a prediction of it: how sure it is, and whether it fits."""

from __future__ import annotations

import dataclasses

from .._result import Result
from ..study import NAME_LENGTH, Study, safe_name
from ._predict import Prediction
from ._recorded import RecordedPrediction

__all__ = ["keep_prediction", "kept_result"]


def kept_result(prediction: Prediction | RecordedPrediction) -> Result:
    """Return the result of *prediction* with the prediction itself in its provenance, for a run of a study.

    Its key ``prediction`` holds what `to_json` says, the chip's title and its ``chip_memory_bytes``;
    ``memory_over_time`` has the curves of a prediction by a model's sizes.
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
