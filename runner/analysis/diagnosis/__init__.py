"""Diagnose a run from its records: slow NICs, links and hosts, and links that stalled."""

from ._cost import Cost as Cost
from ._diagnosis import ANOMALY_COLUMNS as ANOMALY_COLUMNS
from ._diagnosis import Anomaly as Anomaly
from ._diagnosis import Diagnosis as Diagnosis
from ._diagnosis import diagnose as diagnose
