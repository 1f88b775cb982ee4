"""What the forms New run and Sweep begin from: what the run on screen was configured with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import ChakrascopeError
from ...runner import NetworkConfig, Study, SystemConfig, about_backend
from ...runner.study import run_name
from ._backends import is_offered, plain_name
from ._configure import Networks, Setup
from ._form import SYSTEM_FIELDS, Form, first_form

__all__ = ["Begun", "begun_from"]

_CHANGED = " (changed)"


@dataclass(frozen=True)
class Begun:
    """The *form* as it is before anybody changed it, in words where it is *of*, and what it leaves out."""

    form: Form
    of: str = ""
    notes: tuple[str, ...] = ()


def begun_from(study: Study, run_id: str, networks: Networks) -> Begun:
    """Return what a form begins as while the run *run_id* is shown.

    It is that run's own setup, where a form can hold it, else the presets, and why. The study has a workload.
    """
    names = study.workloads()
    first = first_form(names)
    info = next((info for info in study.runs() if info.id == run_id), None)
    if info is None:
        return Begun(first)
    of = run_name(info)
    workload = info.workload if info.workload in names else first.workload
    lost = () if info.workload in names else (f"Its workload '{info.workload[:80]}' is not in the study.",)
    if about_backend(info.backend).replays:
        note = "It has no network, being measured: the network is a preset."
        return Begun(replace(first, workload=workload), of, (*lost, note))
    backends = (plain_name(info.backend),) if is_offered(info.backend) else first.backends
    if not is_offered(info.backend):
        note = f"Its backend '{info.backend[:80]}' cannot be chosen here: {backends[0]} stands in its place."
        lost = (*lost, note)
    begun = replace(first, workload=workload, backends=backends)
    try:
        setup, notes = _setup_of(study.run_configs(run_id), info.network, networks)
    except ChakrascopeError as error:
        return Begun(begun, of, (*lost, f"Its configuration cannot be taken over: {error.message}"))
    if setup is None:
        note = (
            f"Its network '{info.network[:80]}' is none of the presets and files here, and not of dimensions "
            "only, so that a preset stands in its place; add its file below."
        )
        return Begun(begun, of, (*lost, note))
    return Begun(replace(begun, setup=setup), of, (*lost, *notes))


def _setup_of(
    configs: tuple[NetworkConfig, SystemConfig], title: str, networks: Networks
) -> tuple[Setup | None, Sequence[str]]:
    """Return the setup of *configs* as a form holds it, or None, and what a form cannot show of it."""
    network, system = configs
    own = Setup.of_configs(network, system)
    preset = _begins_as(own, title.removesuffix(_CHANGED), networks)
    if preset is None:
        return None, ()
    start = Setup.of_presets(preset, "default", networks)
    kept = {key: value for key, value in start.system.items() if key not in SYSTEM_FIELDS}
    shown: dict[str, Any] = {key: value for key, value in own.system.items() if key in SYSTEM_FIELDS}
    hidden = {key: value for key, value in own.system.items() if key not in SYSTEM_FIELDS}
    notes = [
        f"'{key}' of its system is left as in the preset."
        for key in sorted({*hidden, *kept})
        if hidden.get(key) != kept.get(key)
    ]
    # In the order of the preset, as what is read from the fields has it.
    keys = [*start.system, *(key for key in shown if key not in start.system)]
    whole = {key: (shown if key in SYSTEM_FIELDS else kept)[key] for key in keys if key in {**shown, **kept}}
    return replace(start, dimensions=own.dimensions, system=whole), notes


def _begins_as(own: Setup, title: str, networks: Networks) -> str | None:
    """Return which of *networks* a form can begin as to hold *own*: what it does not show must be alike."""
    likely = [name for name in networks.names if title in {name, Path(name).stem}]
    for name in [*likely, first_form(("",)).setup.network_preset]:
        if Setup.of_presets(name, "default", networks).more == own.more:
            return name
    return None
