"""Workloads from and to Chakra's protobuf messages."""

from types import SimpleNamespace

import chakra_schema as et_def
import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from chakrascope import Workload, simulate
from chakrascope.converter import load_workload, microbenchmark
from chakrascope.errors import UsageError, WorkloadFormatError


def _job():
    """Return the messages of two ranks: a computation each, then an all-reduce in group 1."""
    ranks = []
    for rank in range(2):
        computation = et_def.Node(id=1, name="layer", type=4, duration_micros=100 + 50 * rank)
        computation.attr.add(name="is_cpu_op", bool_val=False)
        collective = et_def.Node(id=2, name="all-reduce", type=7, data_deps=[1])
        collective.attr.add(name="comm_type", int64_val=0)
        collective.attr.add(name="comm_size", int64_val=2**20)
        collective.attr.add(name="pg_name", string_val="1")
        ranks.append([et_def.GlobalMetadata(version="0.0.4"), computation, collective])
    return ranks


def test_messages_make_a_workload_that_runs():
    workload = Workload.from_messages(_job(), {1: [0, 1]})
    assert workload.summary() == {"num_ranks": 2, "nodes": 4, "communication_nodes": 2}
    assert workload.groups == {1: (0, 1)}
    result = simulate(workload, "default", "ring-2")
    assert result.makespan_ns > 150_000


def test_equal_ranks_share_a_graph():
    first = _job()[0]
    assert len(Workload.from_messages([first, first]).graphs) == 1


@pytest.mark.parametrize("name", ["all_kinds.et", "public.0.et", "storage.et"])
def test_messages_come_back_as_they_were(data_dir, name):
    """Attributes and fields without a column are passed on."""
    workload = load_workload(data_dir / "converter" / "chakra" / name)
    ranks = list(workload.to_messages(et_def))
    again = Workload.from_messages(ranks, workload.groups)
    assert again.graphs == workload.graphs
    assert list(again.to_messages(et_def)) == ranks


def test_a_workload_of_ours_goes_out_and_in():
    workload = microbenchmark("all-reduce", 8, 2**20)
    again = Workload.from_messages(workload.to_messages(et_def), workload.groups)
    assert [graph.num_nodes for graph in again.graphs] == [graph.num_nodes for graph in workload.graphs]
    assert np.array_equal(again.program_of_rank, workload.program_of_rank)
    assert (
        simulate(again, "default", "ring-8").makespan_ns
        == simulate(workload, "default", "ring-8").makespan_ns
    )


def _module(edit):
    """Return message classes of a schema that *edit* changed."""
    file = descriptor_pb2.FileDescriptorProto.FromString(et_def.Node.DESCRIPTOR.file.serialized_pb)
    edit({message.name: message for message in file.message_type})
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("GlobalMetadata", "Node")
    return SimpleNamespace(
        **{
            name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{name}"))
            for name in names
        }
    )


def _renumber(messages):
    field = next(field for field in messages["AttributeProto"].field if field.name == "int64_val")
    field.number = 99


def test_another_schema_is_refused_both_ways():
    other = _module(_renumber)
    with pytest.raises(UsageError, match="'int64_val' of message AttributeProto is not number 9"):
        list(Workload.from_messages(_job()).to_messages(other))
    with pytest.raises(UsageError, match="Update the module et_def_pb2"):
        Workload.from_messages([[other.GlobalMetadata(version="0.0.4")]])


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([], "no rank"),
        ([[et_def.Node(id=1)]], "Rank 0: message 0 is of type Node, not GlobalMetadata"),
        ([_job()[0], [et_def.GlobalMetadata(), "node"]], "Rank 1: message 1 is of type str, not Node"),
        ([[et_def.GlobalMetadata(), et_def.Node(id=1), et_def.Node(id=1)]], "rank 0"),
    ],
)
def test_other_messages_are_refused_by_rank(ranks, message):
    with pytest.raises(WorkloadFormatError, match=message):
        Workload.from_messages(ranks)


def test_a_module_without_the_messages_is_refused():
    with pytest.raises(UsageError, match="'math' has no messages of Chakra"):
        list(Workload.from_messages(_job()).to_messages(__import__("math")))
