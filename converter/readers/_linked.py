"""Read linked traces: host traces to which mlc-chakra's linker added times and device work.

Linked traces have the nodes of the host trace, renumbered. Nodes found in the device trace have a start and
a duration, and each kernel or memory copy is a copy of the operator node that issued it. Linked traces lack
runtime calls, memory sets, bytes of memory copies, synchronisations, and times of step marks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ...errors import TraceFormatError
from .._files import read_json
from ._device_comms import PARAMETERS, Parameters, parameters
from ._host_trace import HostTrace, read_host_trace, tensors
from ._kineto import OWN_RANGES, STEP_MARK, Call, DeviceTrace, Event, Work, device_trace

LINKED_LACKS = (
    "linked traces were converted, which lack runtime calls: an operator is assumed to issue its work "
    "when it returns, or when the work begins; waits of the host for the device are known only for "
    "copies, and memory sets are missing"
)

_USER_SCOPE = 7
_CATEGORIES = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
# The runtime call that makes a stream wait for a collective.
_STREAM_WAIT = "cudaStreamWaitEvent"
# Parts of the names of device copies that block the host.
_BLOCKING = ("DtoH", "Pageable")
_MAX_MICROSECONDS = 2.0**52


_Id = Annotated[int, msgspec.Meta(ge=-1, le=2**62)]


class _Attribute(msgspec.Struct, gc=False):
    name: str
    value: Any = None


class _RawNode(msgspec.Struct, gc=False):
    """A node of a linked trace; nodes with *cat* are device work. *ts* and *inclusive_dur* are in us."""

    id: _Id
    name: str
    ctrl_deps: _Id = -1
    attrs: list[_Attribute] = msgspec.field(default_factory=list)
    ts: Any = None
    inclusive_dur: Any = None
    cat: str = ""
    stream: Any = -1

    def attribute(self, name: str, default: int) -> int:
        """Return the integer attribute *name* of the node, or *default* if it is missing or out of range."""
        value = next((item.value for item in self.attrs if item.name == name), default)
        return value if _fits(value) else default


def _fits(value: Any) -> bool:
    """Return whether *value* is an integer that fits into 64 bits."""
    return isinstance(value, int) and -(2**63) <= value < 2**63


class _Document(msgspec.Struct):
    nodes: list[_RawNode]


def read_linked_host(path: Path) -> HostTrace:
    """Read the operators and their arguments from the linked trace at *path* (plain or gzip).

    Raises the errors of `read_host_trace`.
    """
    return _host(path, read_json(path, _Document).nodes)


def read_linked(path: Path) -> tuple[DeviceTrace, HostTrace]:
    """Read the device trace and the host trace in the linked trace at *path* (plain or gzip).

    Work was issued at the end of its operator, or at its own start if that is earlier. Raises
    `TraceFormatError` if the file is not a linked trace or the linker matched nothing.
    """
    nodes = sorted(read_json(path, _Document).nodes, key=lambda node: node.id)
    spans = {node.id: span for node in nodes if (span := _span(node, path)) is not None}
    on_host = [node for node in nodes if not node.cat and node.id in spans]
    if not on_host:
        raise TraceFormatError(
            f"{path} holds no time of any operator: it is not a linked trace, or its linker matched nothing "
            "(it needs record-function ids in both traces). Give the two original traces with --host-trace "
            "and --device-trace."
        )
    host = _host(path, nodes)
    events = [_event(node, spans[node.id]) for node in on_host]
    events += _steps(nodes, spans)
    issuers = {node.id: node for node in on_host}
    pairs = [
        _issued(node, issuers[node.ctrl_deps], spans, host)
        for node in nodes
        if node.cat in _CATEGORIES and node.id in spans and node.ctrl_deps in issuers
    ]
    stated = {
        event: found
        for event in events
        if event.name == PARAMETERS and (found := parameters(host.operator(event.record_id))) is not None
    }
    calls = [*(call for call, _ in pairs), *_waits(stated)]
    works = [work for _, work in pairs]
    world_size = max((found.world for found in stated.values()), default=0)
    return device_trace(events, calls, works, world_size=world_size, groups=host.groups), host


def _host(path: Path, nodes: Sequence[_RawNode]) -> HostTrace:
    names = {node.attribute("rf_id", 0): node.name for node in nodes if not node.cat}
    # A linked kernel has its operator's id, under another name.
    return read_host_trace(path).renamed(names)


def _span(node: _RawNode, path: Path) -> tuple[int, int] | None:
    """Return the start and end of *node* in ns, or None if it has no time."""
    if node.ts is None or node.inclusive_dur is None:
        return None
    try:
        if abs(node.ts) < _MAX_MICROSECONDS and 0 <= node.inclusive_dur < _MAX_MICROSECONDS:
            start = round(node.ts * 1000)
            return start, start + round(node.inclusive_dur * 1000)
    except TypeError:
        pass
    raise TraceFormatError(
        f"{path}: node {node.id} '{node.name}' has an impossible time ({node.ts!r}, {node.inclusive_dur!r}). "
        "Link the traces again, or give the original ones with --host-trace and --device-trace."
    )


def _event(node: _RawNode, span: tuple[int, int]) -> Event:
    return Event(
        node.name,
        node.attribute("scope", 0) != _USER_SCOPE and not node.name.startswith(OWN_RANGES),
        str(node.attribute("tid", 0)),
        *span,
        node.attribute("rf_id", 0),
        node.attribute("seq_id", -1),
        node.id,
    )


def _steps(nodes: Sequence[_RawNode], spans: Mapping[int, tuple[int, int]]) -> list[Event]:
    """Return the steps; each lasts from its first operator to the next step, or to the last operator."""
    within: dict[int, int] = {}
    extents: dict[int, tuple[int, int]] = {}
    marks = {node.id: node for node in nodes if node.name.startswith(STEP_MARK)}
    for node in nodes:
        step = node.id if node.id in marks else within.get(node.ctrl_deps, -1)
        if step < 0:
            continue
        within[node.id] = step
        if not node.cat and node.id in spans:
            start, end = spans[node.id]
            first, last = extents.get(step, (start, end))
            extents[step] = (min(first, start), max(last, end))
    order = sorted(extents, key=lambda step: extents[step])
    ends = [max(extents[step][1], extents[after][0]) for step, after in pairwise(order)]
    ends += [extents[step][1] for step in order[-1:]]
    return [
        Event(marks[step].name, False, str(marks[step].attribute("tid", 0)), extents[step][0], end, 0, -1)
        for step, end in zip(order, ends, strict=True)
    ]


def _issued(
    node: _RawNode, issuer: _RawNode, spans: Mapping[int, tuple[int, int]], host: HostTrace
) -> tuple[Call, Work]:
    """Return the call within operator *issuer* that issued *node*, and the device work of *node*."""
    start, end = spans[node.id]
    begin, returned = spans[issuer.id]
    moved = _CATEGORIES[node.cat] != "kernel"
    if moved and not any(word in node.name for word in _BLOCKING):
        returned = min(returned, max(begin, start))
    call = Call(issuer.name, str(issuer.attribute("tid", 0)), begin, returned, node.id, issuer.id)
    record = host.operator(issuer.attribute("rf_id", 0))
    arguments = [*tensors(record.inputs), *tensors(record.outputs)] if record is not None and moved else []
    size = min((tensor.size_bytes for tensor in arguments), default=-1)
    stream = node.stream if _fits(node.stream) else -1
    category = _CATEGORIES[node.cat]
    return call, Work(node.name, category, 0, stream, start, end, node.id, issuer.id, size, None)


def _waits(stated: Mapping[Event, Parameters]) -> Iterator[Call]:
    """Yield calls that make a stream wait for a collective, as the recorded operators imply."""
    for event, found in stated.items():
        if found.name == "wait":
            yield Call(_STREAM_WAIT, event.thread, event.start_ns, event.end_ns, -1, event.external_id)
