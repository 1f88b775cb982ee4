"""Check traces and workloads for problems, and inspect the content of workloads."""

from typing import TYPE_CHECKING

from ...support import exports_of

if TYPE_CHECKING:
    from ._doctor import check_logs as check_logs
    from ._doctor import check_matched as check_matched
    from ._doctor import doctor as doctor
    from ._findings import Finding as Finding
    from ._findings import worst_first as worst_first
    from ._inspection import inspect_node as inspect_node
    from ._inspection import inspect_workload as inspect_workload
    from ._inspection import load_workload as load_workload
    from ._inspection import step_kinds as step_kinds
    from ._inspection import step_rows as step_rows
else:
    __getattr__ = exports_of(__name__, __file__)
