"""Simulate Chakra workloads: configurations, backends, results, and analyses of bottlenecks."""

from typing import TYPE_CHECKING

from ..support import exports_of

if TYPE_CHECKING:
    from ._cached_traces import cached_traces as cached_traces
    from ._cached_traces import clear_cached_traces as clear_cached_traces
    from ._cached_traces import study_of_traces as study_of_traces
    from ._check_study import check_study as check_study
    from ._experiment import Detail as Detail
    from ._experiment import Experiment as Experiment
    from ._experiment import WorkloadSource as WorkloadSource
    from ._result import Result as Result
    from ._simulate import prepare as prepare
    from ._simulate import simulate as simulate
    from ._traits import AWARE as AWARE
    from ._traits import DEFAULT_BACKEND as DEFAULT_BACKEND
    from ._traits import EMULATION as EMULATION
    from ._traits import PACKET as PACKET
    from ._traits import REPLAY as REPLAY
    from ._traits import BackendPlugin as BackendPlugin
    from ._traits import Traits as Traits
    from ._traits import about_backend as about_backend
    from ._traits import backends_that as backends_that
    from .analysis import BREAKDOWNS as BREAKDOWNS
    from .analysis import Advice as Advice
    from .analysis import Communication as Communication
    from .analysis import Comparison as Comparison
    from .analysis import CriticalPath as CriticalPath
    from .analysis import Divergence as Divergence
    from .analysis import RunAnalysis as RunAnalysis
    from .analysis import Side as Side
    from .analysis import StepDiff as StepDiff
    from .analysis import Summary as Summary
    from .analysis import analyse_run as analyse_run
    from .analysis import check_setup as check_setup
    from .analysis import collective_differences as collective_differences
    from .analysis import collective_overview as collective_overview
    from .analysis import communication_of as communication_of
    from .analysis import compare as compare
    from .analysis import critical_path as critical_path
    from .analysis import diff_steps as diff_steps
    from .analysis import divergence as divergence
    from .analysis import error_distribution as error_distribution
    from .analysis import flow_differences as flow_differences
    from .analysis import measured_result as measured_result
    from .analysis import node_differences as node_differences
    from .analysis import query_run as query_run
    from .analysis import rank_differences as rank_differences
    from .analysis import read_side as read_side
    from .analysis import slack as slack
    from .analysis import summarize as summarize
    from .backends import Backend as Backend
    from .backends import FakeBackend as FakeBackend
    from .backends import backend_names as backend_names
    from .backends import backend_report as backend_report
    from .backends import experiment_archive as experiment_archive
    from .backends import get_backend as get_backend
    from .backends import register as register
    from .config import MemoryConfig as MemoryConfig
    from .config import NetworkConfig as NetworkConfig
    from .config import SystemConfig as SystemConfig
    from .config import list_presets as list_presets
    from .config import load_groups as load_groups
    from .jobs import ImportRequest as ImportRequest
    from .jobs import Job as Job
    from .jobs import JobStore as JobStore
    from .jobs import SweepRequest as SweepRequest
    from .prediction import script_workload as script_workload
    from .study import ImportItem as ImportItem
    from .study import RunInfo as RunInfo
    from .study import Study as Study
    from .study import StudyInfo as StudyInfo
    from .study import Workspace as Workspace
    from .study import describe_study as describe_study
    from .study import find_items as find_items
    from .sweep import Sweep as Sweep
    from .sweep import read_sweep as read_sweep
    from .sweep import run_sweep as run_sweep
    from .sweep import sweep_experiment as sweep_experiment
    from .sweep import sweep_names as sweep_names
else:
    __getattr__ = exports_of(__name__, __file__)
