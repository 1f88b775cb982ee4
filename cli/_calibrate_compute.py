"""The part of ``chakrascope calibrate`` that fits chips, and transfers a capture to another chip."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError, UsageError
from ..support import writing
from ._output import console, print_frame, print_next

if TYPE_CHECKING:
    from ..runner import Study

__all__ = ["carry_over", "fit_chip"]


def fit_chip(study: Study, workload: str | None, name: str, output: Path | None, output_format: str) -> None:
    """Fit the chip *name* to the operators of *study*, print it, and write it to *output* if given."""
    import pandas as pd

    from ..runner.calibration import calibrated_chip, compute_fits, operator_table
    from ..runner.chips import find_chip, save_chip

    chosen = study.workload_prefix(workload).parent.name
    fits = compute_fits(operator_table(study.workload(chosen)))
    chip, notes = calibrated_chip(find_chip(name), fits, f"the workload {chosen}")
    if output is not None:
        with writing(output, ConfigError):
            save_chip(chip, output)
    measured = chip.costs["measured"]
    shares = {"gemm": measured.gemm, "attention": measured.attention, "pointwise": measured.pointwise}
    rows = [
        {
            "class": kind,
            "operators": fit.count,
            "different": fit.sizes,
            "start_ns": fit.fit.latency_ns.value,
            "share": _plain(shares[kind]),
            "median_error": pd.Series(fit.errors).abs().median(),
        }
        for kind, fit in fits.items()
    ]
    print_frame(pd.DataFrame(rows), output_format, title=f"{chip.title}, fitted to {chosen}")
    if output_format == "table":
        for text in notes:
            console.print(f"Not determined: {text}.", markup=False, soft_wrap=True)
        if output is not None:
            console.print(f"Written: {output}", markup=False)


def _plain(share: object) -> float:
    return float(share["default"]) if isinstance(share, dict) else float(str(share))


def carry_over(study: Study, workload: str | None, other_folder: str) -> None:
    """Add to *study* its workload with the compute times of *other_folder*'s operators."""
    from ..runner import Study
    from ..runner.calibration import rescaled
    from ..runner.study import safe_name

    if Path(other_folder).resolve() == study.path.resolve():
        raise UsageError("--compute-from names another study: one captured on the chip to carry over to.")
    chosen = study.workload_prefix(workload).parent.name
    other = Study.open(other_folder)
    changed, assumption = rescaled(study.workload(chosen), other.workload(), other.path.name)
    prefix = study.add_workload(changed, safe_name(f"{chosen}-on-{other.path.name}", "job"))
    console.print(f"{assumption}.", markup=False, soft_wrap=True)
    print_next("run", study.path, "--workload", prefix.parent.name, "--network", "PRESET")
