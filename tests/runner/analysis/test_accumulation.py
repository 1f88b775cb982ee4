"""Communication that each micro-batch repeats: gradients, and not activations or other models' gradients."""

import pytest
from workloads import coll, comp, workload

from chakrascope.converter import CollectiveType
from chakrascope.runner import Study, get_backend, prepare
from chakrascope.runner.analysis import analyse_run

MS = 1_000_000
GATHER, SCATTER = CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER


def advised(folder, ranks):
    """Return the advice on a replay of *ranks*."""
    study = Study.create(folder / "study")
    prefix = study.add_workload(workload(*ranks), "job")
    experiment = prepare(prefix, "default", None, backend="replay", semantics="trace")
    study.add_run(experiment, get_backend("replay").run(experiment), workload="job")
    return analyse_run(study).advices()


def step(*batches, copied=""):
    """Return two ranks with a chain of nodes: a forward pass with its collectives, then a backward pass.

    Before each collective, its operands are *copied*, a place, and the host is inside the call.
    """
    nodes = []

    def add(node, *arguments, **facts):
        number = len(nodes)
        nodes.append(node(number, *arguments, after=[number - 1] if number else [], **facts))

    for forward, backward in batches:
        for phase, messages in (("forward", forward), ("backward", backward)):
            add(comp, MS, phase=phase)
            for kind, size in messages:
                if copied:
                    add(comp, MS, place=copied, phase=phase)
                    add(comp, MS, kind="host", module="", cause="communication_call")
                add(coll, size, comm_type=kind, duration_ns=4 * MS, phase="communication")
    add(comp, MS, phase="optimizer", module="")
    return [nodes, nodes]


REDUCED = ([], [(CollectiveType.ALL_REDUCE, 1 << 20)])
SHARDED = ([(GATHER, 512)], [(GATHER, 512), (SCATTER, 1024)])
TENSOR_PARALLEL = ([(CollectiveType.ALL_REDUCE, 512)], [(CollectiveType.ALL_REDUCE, 512)])


@pytest.mark.parametrize(
    ("batch", "what", "key", "waits"),
    [
        (REDUCED, "all_reduce in each of 4 micro-batches", "collective:all_reduce=4", 4),
        (SHARDED, "all_gather and reduce_scatter in each of 4 micro-batches", "kind:communication=4", 12),
    ],
)
def test_gradients_need_to_be_reduced_once_a_step(tmp_path, batch, what, key, waits):
    first = advised(tmp_path, step(*[batch] * 4))[0]
    assert (first.what, first.key, first.is_bound) == (what, key, False)
    assert first.gain_ns == pytest.approx(waits * 4 * MS * 3 / 4, rel=0.01)
    assert "no_sync()" in first.how


@pytest.mark.parametrize(("place", "gain_ms"), [("gathered parameters of FSDP", 6), ("elsewhere", 5)])
def test_calls_and_copies_are_part_of_repeated_communication(tmp_path, place, gain_ms):
    first = advised(tmp_path, step(*[SHARDED] * 4, copied=place))[0]
    assert first.gain_ns == pytest.approx(12 * gain_ms * MS * 3 / 4, rel=0.01)


@pytest.mark.parametrize(
    "batches",
    [
        [REDUCED],
        [TENSOR_PARALLEL] * 4,
        [REDUCED, ([], [(CollectiveType.ALL_REDUCE, 2 << 20)])],
        [([], []), ([], []), REDUCED],
    ],
    ids=["one batch", "activations", "two models", "once a step"],
)
def test_other_communication_is_no_accumulation(tmp_path, batches):
    assert not [one for one in advised(tmp_path, step(*batches)) if "micro-batches" in one.what]
