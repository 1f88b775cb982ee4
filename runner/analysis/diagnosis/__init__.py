"""Name what is slow in a run from its own records: NICs, links, hosts, and when links stood still."""

from ._cost import Cost as Cost
from ._diagnosis import ANOMALY_COLUMNS as ANOMALY_COLUMNS
from ._diagnosis import Anomaly as Anomaly
from ._diagnosis import Diagnosis as Diagnosis
from ._diagnosis import diagnose as diagnose

__all__ = ["ANOMALY_COLUMNS", "Anomaly", "Cost", "Diagnosis", "diagnose"]
