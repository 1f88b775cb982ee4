"""Calibration: fit a network configuration to measurements, with confidence intervals and known gaps."""

from ._calibrate import Calibration as Calibration
from ._calibrate import calibrate_records as calibrate_records
from ._calibrate import rate_text as rate_text
from ._compute import calibrated_chip as calibrated_chip
from ._compute import compute_fits as compute_fits
from ._compute import operator_table as operator_table
from ._compute import rescaled as rescaled
from ._network import calibrated_network as calibrated_network
from ._network import calibration_facts as calibration_facts
from ._network import calibration_points as calibration_points
from ._network import picture as picture
from ._probes import measure_network as measure_network
from ._records import Call as Call
from ._records import Records as Records
from ._records import Transfer as Transfer
from ._records import are_gloo_records as are_gloo_records
from ._records import gloo_records as gloo_records
from ._records import result_records as result_records
from ._workload_records import log_records as log_records
from ._workload_records import records_of_logs as records_of_logs
from ._workload_records import records_of_study as records_of_study
from ._workload_records import workload_records as workload_records
