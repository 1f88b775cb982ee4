"""Predict the step time and memory of a training job without running the job, with intervals."""

from typing import TYPE_CHECKING

from ...support import exports_of

if TYPE_CHECKING:
    from ._distribution import StepDistribution as StepDistribution
    from ._distribution import Variation as Variation
    from ._machine import Machine as Machine
    from ._machine import Origin as Origin
    from ._machine import chip_of_network as chip_of_network
    from ._machine import find_machine as find_machine
    from ._machine import foreign_text as foreign_text
    from ._machine import has_links_of as has_links_of
    from ._machine import is_network_name as is_network_name
    from ._predict import PredictedStep as PredictedStep
    from ._predict import Prediction as Prediction
    from ._predict import experiment_of as experiment_of
    from ._predict import layer_flops as layer_flops
    from ._predict import needed_ns as needed_ns
    from ._predict import parts_of as parts_of
    from ._predict import predict as predict
    from ._predict import uncertainty as uncertainty
    from ._prices import ChipPrices as ChipPrices
    from ._prices import Links as Links
    from ._prices import predicted_system as predicted_system
    from ._recorded import RecordedPrediction as RecordedPrediction
    from ._recorded import check_recorded as check_recorded
    from ._recorded import keep_prediction as keep_prediction
    from ._recorded import predict_recorded as predict_recorded
    from ._script import script_workload as script_workload
    from ._setting import Setting as Setting
    from ._setting import estimated_ns as estimated_ns
    from ._setting import software_of as software_of
    from ._setting import usual_network as usual_network
    from ._setting import with_habits as with_habits
    from ._work import Batch as Batch
    from ._work import StepWork as StepWork
    from ._work import coefficients as coefficients
    from ._work import work_of as work_of
else:
    __getattr__ = exports_of(__name__, __file__)
