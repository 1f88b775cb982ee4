"""Run a workload's messages over a real network, with a coordinator, host agents and rank processes."""

from ._agent import ClockEstimate as ClockEstimate
from ._agent import HostClock as HostClock
from ._agent import estimate as estimate
from ._agent import join as join
from ._coordinator import Measurement as Measurement
from ._coordinator import Stalled as Stalled
from ._coordinator import emulate as emulate
from ._hosts import Host as Host
from ._hosts import Place as Place
from ._hosts import Setup as Setup
from ._hosts import parse_address as parse_address
from ._hosts import parse_rate as parse_rate
from ._hosts import read_setup as read_setup
from ._hosts import read_token as read_token
from ._namespaces import Namespaces as Namespaces
from ._namespaces import missing_requirements as missing_requirements
from ._tables import Lateness as Lateness
from ._tables import MeasuredTables as MeasuredTables
from ._tables import flow_interfaces as flow_interfaces
from ._transports import transport_names as transport_names
from ._wire import Channel as Channel
from ._wire import EngineJob as EngineJob
from ._wire import answer as answer
from ._wire import challenge as challenge
