#include "request.h"

namespace chakrascope::engine {
namespace {

CommType type_that_runs(CommType type, const Config& config) {
    const auto substitute = config.collective_substitutes.find(static_cast<int>(type));
    return substitute == config.collective_substitutes.end() ? type
                                                             : static_cast<CommType>(substitute->second);
}

std::optional<Collective> simulated_kind(CommType type, const Config& config) {
    switch (type) {
        case CommType::AllReduce:
        case CommType::Barrier:
            return Collective::AllReduce;
        case CommType::AllGather:
            return Collective::AllGather;
        case CommType::AllToAll:
            return Collective::AllToAll;
        case CommType::ReduceScatter:
        case CommType::ReduceScatterBlock:
            return Collective::ReduceScatter;
        default:
            break;
    }
    if (!config.native_collectives) return std::nullopt;
    switch (type) {
        case CommType::Broadcast:
            return Collective::Broadcast;
        case CommType::Reduce:
            return Collective::Reduce;
        case CommType::Gather:
            return Collective::Gather;
        case CommType::Scatter:
            return Collective::Scatter;
        default:
            return std::nullopt;
    }
}

}  // namespace

std::optional<CollectiveRequest> request_of(const Node& node, const Config& config) {
    const CommType type = type_that_runs(node.comm_type, config);
    const auto kind = simulated_kind(type, config);
    if (!kind) return std::nullopt;
    CollectiveRequest request;
    request.node_id = node.id;
    request.kind = *kind;
    request.group = node.group;
    // A barrier is an all-reduce of the smallest possible size.
    request.size = node.comm_type == CommType::Barrier ? 0 : node.comm_size;
    request.involved = node.involved_dims;
    request.priority = node.comm_priority;
    const auto sends_first = config.sends_first.find(static_cast<int>(type));
    if (sends_first != config.sends_first.end())
        request.abreast = static_cast<std::uint64_t>(sends_first->second);
    return request;
}

}  // namespace chakrascope::engine
