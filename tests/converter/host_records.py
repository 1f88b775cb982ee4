"""Make the host trace of given operators, without a file."""

from __future__ import annotations

import json

import numpy as np

from chakrascope.converter.readers import HostTrace, Kinds, tensors


def host_trace(operators):
    """Return the host trace of *operators* by record-function id; their tensors must have storages."""
    kinds, storages, offsets, rows = {}, [], [], []
    for _, op in sorted(operators.items()):
        first, inputs, outputs = tensors(op.inputs[:1]), tensors(op.inputs), tensors(op.outputs)
        begin, ends = len(storages), len(storages) + len(inputs)
        sides = [_anonymous(op.inputs), _anonymous(op.outputs)]
        kind = (op.name, op.schema, json.dumps([*sides, op.shapes, op.output_shapes, op.types]))
        storages += [tensor.storage for tensor in [*inputs, *outputs]]
        offsets += [tensor.offset for tensor in [*inputs, *outputs]]
        rows.append((kinds.setdefault(kind, len(kinds)), begin, len(storages), ends, begin + len(first)))
    names = ("kind", "begin", "end", "inputs_end", "first_end")
    return HostTrace(
        records=np.array(sorted(operators), dtype=np.int64),
        thread=np.zeros(len(rows), dtype=np.int64),
        storages=np.array(storages, dtype=np.int64),
        offsets=np.array(offsets, dtype=np.int64),
        kinds=Kinds(*zip(*kinds, strict=True)) if kinds else Kinds([], [], []),
        **dict(zip(names, np.array(rows, dtype=np.int64).reshape(-1, 5).T, strict=True)),
    )


def _anonymous(value):
    """Return *value* with the identity of its tensors removed."""
    if type(value) is not list:
        return value
    is_tensor = len(value) == 6 and type(value[5]) is str
    return [0, 0, 0, *value[3:]] if is_tensor else [_anonymous(part) for part in value]
