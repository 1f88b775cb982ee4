#include "columns.h"

#include <algorithm>

namespace chakrascope::engine {
namespace {

const RankNodes& nodes_of(const Output& output, std::int32_t rank) {
    const auto place =
        std::lower_bound(output.nodes.begin(), output.nodes.end(), rank,
                         [](const RankNodes& nodes, std::int32_t id) { return nodes.rank < id; });
    return *place;
}

// Return the origin of a node's record: the node itself, if its start began the chain of events.
Origin resolve_origin(const Output& output, const RankNodes& own, std::uint32_t node,
                      const NodeRecord& record) {
    const Origin itself{own.rank, static_cast<std::int32_t>(node)};
    if (record.origin.rank < 0) return itself;
    const Records& others = nodes_of(output, record.origin.rank).records;
    return others.start(static_cast<std::uint32_t>(record.origin.node)) <= record.start ? itself
                                                                                        : record.origin;
}

std::int64_t id_of(const Program& program, std::int32_t node) {
    return node < 0 ? -1 : static_cast<std::int64_t>(program.id(static_cast<std::uint32_t>(node)));
}

void add_nodes(NodeColumns& columns, const Output& output, const RankNodes& own) {
    for (std::uint32_t i = 0; i < own.records.size(); ++i) {
        if (!own.records.ended(i)) continue;
        const NodeRecord record = own.records[i];
        const Origin origin = resolve_origin(output, own, i, record);
        const Program& theirs =
            origin.rank == own.rank ? *own.program : *nodes_of(output, origin.rank).program;
        columns.rank.push_back(own.rank);
        columns.node_id.push_back(id_of(*own.program, static_cast<std::int32_t>(i)));
        columns.start_ns.push_back(record.start);
        columns.end_ns.push_back(record.end);
        columns.cause.push_back(id_of(*own.program, record.cause));
        columns.cause_is_dependency.push_back(
            record.cause >= 0 && own.program->depends(i, static_cast<std::uint32_t>(record.cause)));
        columns.origin_rank.push_back(origin.rank);
        columns.origin_node.push_back(id_of(theirs, origin.node));
    }
}

void add_collectives(CollectiveColumns& columns, const Output& output, const RankNodes& own,
                     std::int32_t rank, const Program& program) {
    const auto said = [](const Facts& facts, std::uint16_t attribute, auto value) -> std::int64_t {
        return (facts.has & attribute) != 0 ? std::max<std::int64_t>(-1, static_cast<std::int64_t>(value))
                                            : -1;
    };
    for (std::uint32_t i = 0; i < own.records.size(); ++i) {
        const Facts& facts = program.facts(i);
        if (facts.type != NodeType::Coll || !own.records.ended(i)) continue;
        const NodeRecord record = own.records[i];
        const Origin origin = resolve_origin(output, own, i, record);
        columns.rank.push_back(rank);
        columns.node_id.push_back(id_of(program, static_cast<std::int32_t>(i)));
        columns.start_ns.push_back(record.start);
        columns.end_ns.push_back(record.end);
        columns.origin_start_ns.push_back(
            nodes_of(output, origin.rank).records.start(static_cast<std::uint32_t>(origin.node)));
        columns.comm_type.push_back(
            static_cast<std::int16_t>(said(facts, kHasCommType, static_cast<std::int8_t>(facts.comm_type))));
        columns.group.push_back(facts.group);
        columns.size_bytes.push_back(said(facts, kHasCommSize, facts.comm_size));
    }
}

}  // namespace

NodeColumns node_columns(const Output& output, std::size_t first, std::size_t last) {
    NodeColumns columns;
    std::size_t count = 0;
    for (std::size_t i = first; i < last; ++i) count += output.nodes[i].executed;
    const auto reserve = [count](auto&... column) { (column.reserve(count), ...); };
    reserve(columns.rank, columns.node_id, columns.start_ns, columns.end_ns, columns.cause,
            columns.cause_is_dependency, columns.origin_rank, columns.origin_node);
    for (std::size_t i = first; i < last; ++i) add_nodes(columns, output, output.nodes[i]);
    return columns;
}

CollectiveColumns collective_columns(const Output& output, bool of_all) {
    CollectiveColumns columns;
    if (!of_all) {
        for (const RankNodes& own : output.nodes)
            add_collectives(columns, output, own, own.rank, *own.program);
        return columns;
    }
    for (std::size_t rank = 0; rank < output.rank_program.size(); ++rank) {
        add_collectives(columns, output, nodes_of(output, output.rank_representative[rank]),
                        static_cast<std::int32_t>(rank), *output.rank_program[rank]);
    }
    return columns;
}

}  // namespace chakrascope::engine
