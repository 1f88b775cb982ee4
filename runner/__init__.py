"""Simulate Chakra workloads: configurations, backends, results and what bounds them."""

from .advice import Advice as Advice
from .advice import advice as advice
from .archive import experiment_archive as experiment_archive
from .backends import Backend as Backend
from .backends import FakeBackend as FakeBackend
from .backends import backend_names as backend_names
from .backends import backend_report as backend_report
from .backends import get_backend as get_backend
from .backends import register as register
from .collective_overview import collective_overview as collective_overview
from .compare import Comparison as Comparison
from .compare import Parting as Parting
from .compare import collective_differences as collective_differences
from .compare import compare as compare
from .compare import error_distribution as error_distribution
from .compare import flow_differences as flow_differences
from .compare import measured_result as measured_result
from .compare import node_differences as node_differences
from .compare import parting as parting
from .compare import rank_differences as rank_differences
from .config import MemoryConfig as MemoryConfig
from .config import NetworkConfig as NetworkConfig
from .config import SystemConfig as SystemConfig
from .config import list_presets as list_presets
from .config import load_groups as load_groups
from .critical_path import BREAKDOWNS as BREAKDOWNS
from .critical_path import CriticalPath as CriticalPath
from .critical_path import critical_path as critical_path
from .critical_path import human_size as human_size
from .critical_path import human_time as human_time
from .experiment import Experiment as Experiment
from .experiment import WorkloadSource as WorkloadSource
from .imports import ImportItem as ImportItem
from .imports import find_items as find_items
from .jobs import ImportRequest as ImportRequest
from .jobs import Job as Job
from .jobs import JobStore as JobStore
from .jobs import SweepRequest as SweepRequest
from .result import Result as Result
from .shelf import Shelf as Shelf
from .shelf import StudyInfo as StudyInfo
from .shelf import describe_study as describe_study
from .simulate import prepare as prepare
from .simulate import simulate as simulate
from .slack import slack as slack
from .study import RunInfo as RunInfo
from .study import Study as Study
from .summary import Summary as Summary
from .summary import summarize as summarize
from .sweep import Sweep as Sweep
from .sweep import read_sweep as read_sweep
from .sweep import sweep as sweep
from .sweep import sweep_experiment as sweep_experiment
from .sweep import sweep_names as sweep_names

__all__ = [
    "BREAKDOWNS",
    "Advice",
    "Backend",
    "Comparison",
    "CriticalPath",
    "Experiment",
    "FakeBackend",
    "ImportItem",
    "ImportRequest",
    "Job",
    "JobStore",
    "MemoryConfig",
    "NetworkConfig",
    "Parting",
    "Result",
    "RunInfo",
    "Shelf",
    "Study",
    "StudyInfo",
    "Summary",
    "Sweep",
    "SweepRequest",
    "SystemConfig",
    "WorkloadSource",
    "advice",
    "backend_names",
    "backend_report",
    "collective_differences",
    "collective_overview",
    "compare",
    "critical_path",
    "describe_study",
    "error_distribution",
    "experiment_archive",
    "find_items",
    "flow_differences",
    "get_backend",
    "human_size",
    "human_time",
    "list_presets",
    "load_groups",
    "measured_result",
    "node_differences",
    "parting",
    "prepare",
    "rank_differences",
    "read_sweep",
    "register",
    "simulate",
    "slack",
    "summarize",
    "sweep",
    "sweep_experiment",
    "sweep_names",
]
