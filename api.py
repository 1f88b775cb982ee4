"""The public names that most scripts and notebooks need; each name is loaded on first use."""

from __future__ import annotations

# Type checkers know this name. The module `typing` is not imported, because all training processes would pay.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from .converter import Workload as Workload
    from .converter import convert as convert
    from .converter import convert_files as convert_files
    from .runner import NetworkConfig as NetworkConfig
    from .runner import Result as Result
    from .runner import Study as Study
    from .runner import SystemConfig as SystemConfig
    from .runner import analyse_run as analyse_run
    from .runner import compare as compare
    from .runner import critical_path as critical_path
    from .runner import simulate as simulate
    from .runner import study_of_traces as study_of_traces
    from .runner import summarize as summarize
    from .tracer import capture as capture
    from .tracer import trace as trace
else:

    def __getattr__(name: str) -> object:
        # Only this name is imported, and only here, because training processes also import this module.
        from .support import exports_of  # noqa: PLC0415

        return exports_of(__name__, __file__)(name)
