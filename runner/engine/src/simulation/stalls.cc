#include "stalls.h"

#include <algorithm>
#include <map>
#include <optional>

namespace chakrascope::engine {
namespace {

constexpr std::size_t kNamed = 8;

std::string where(const Node& node) {
    std::string text = operation_of(node) + " (node " + std::to_string(node.id) + ")";
    if (node.type == NodeType::Coll) text += " of " + std::to_string(node.comm_size) + " bytes";
    return text;
}

std::vector<std::uint32_t> started_and_not_ended(const Rank& rank) {
    std::vector<std::uint32_t> nodes;
    for (std::uint32_t i = 0; i < rank.records().size(); ++i) {
        if (rank.records().started(i) && !rank.records().ended(i)) nodes.push_back(i);
    }
    return nodes;
}

// Describe the current operation of a rank that other ranks wait for.
std::string state_of(const Rank& rank) {
    const std::string name = "rank " + std::to_string(rank.id());
    const auto stuck = started_and_not_ended(rank);
    if (!stuck.empty()) return name + " (blocked in " + where(rank.program().node(stuck.front())) + ")";
    return name + (rank.finished() ? " (already finished)" : " (has nothing left that it can start)");
}

// Return the collective of the group that a rank has begun and not ended.
std::optional<std::uint32_t> open_collective(const Rank& rank, std::int64_t group) {
    for (const std::uint32_t i : started_and_not_ended(rank)) {
        const Facts& node = rank.program().facts(i);
        if (node.type == NodeType::Coll && node.group == group) return i;
    }
    return std::nullopt;
}

std::string waits_of_collective(const Cluster& cluster, const std::deque<Rank>& ranks, const Rank& rank,
                                const Node& node) {
    const std::uint64_t reached = count_collectives(rank, node.group);
    std::string absent, different;
    std::size_t named = 0;
    for (const Rank& other : ranks) {
        if (other.id() == rank.id() || cluster.groups.sorted_position(node.group, other.id()) < 0) continue;
        if (named == kNamed) break;
        if (count_collectives(other, node.group) < reached) {
            absent += (absent.empty() ? "" : ", ") + state_of(other);
            ++named;
            continue;
        }
        const auto open = open_collective(other, node.group);
        if (!open) continue;
        const Node theirs = other.program().node(*open);
        if (theirs.comm_type != node.comm_type ||
            (theirs.comm_size != node.comm_size && cluster.uneven.find(other.id(), *open) == nullptr)) {
            different += (different.empty() ? "" : ", ") + ("rank " + std::to_string(other.id())) +
                         ", which is in " + where(theirs) + " instead";
            ++named;
        }
    }
    if (!absent.empty()) return absent + " to issue it";
    if (!different.empty()) return different;
    return "the other members of group " + std::to_string(node.group) +
           ", which are in it too, but with its chunks in another order or with messages of a custom "
           "algorithm that nobody expects";
}

std::string waits_of_message(const Cluster& cluster, const std::deque<Rank>& ranks, const Node& node) {
    const bool sends = node.type == NodeType::Send;
    const auto peer = static_cast<std::int32_t>(sends ? node.comm_dst : node.comm_src);
    // With a fold in the workload, only representatives are simulated.
    const std::int32_t simulated = cluster.fold != nullptr ? cluster.fold->representative(peer) : peer;
    const auto found = std::find_if(ranks.begin(), ranks.end(),
                                    [simulated](const Rank& rank) { return rank.id() == simulated; });
    return "a " + std::string(sends ? "recv" : "send") + " of " + std::to_string(node.comm_size) +
           " bytes with tag " + std::to_string(node.comm_tag) + " by " +
           (found != ranks.end() ? state_of(*found) : "rank " + std::to_string(peer));
}

}  // namespace

std::string operation_of(const Facts& node) {
    switch (node.type) {
        case NodeType::Send:
            return "send";
        case NodeType::Recv:
            return "recv";
        case NodeType::Coll:
            break;
        default:
            return "operation";
    }
    switch (node.comm_type) {
        case CommType::AllReduce:
            return "all_reduce";
        case CommType::AllGather:
            return "all_gather";
        case CommType::AllToAll:
            return "all_to_all";
        case CommType::ReduceScatter:
        case CommType::ReduceScatterBlock:
            return "reduce_scatter";
        case CommType::Barrier:
            return "barrier";
        case CommType::Broadcast:
            return "broadcast";
        case CommType::Reduce:
            return "reduce";
        case CommType::Gather:
            return "gather";
        case CommType::Scatter:
            return "scatter";
        default:
            return "collective";
    }
}

std::uint64_t count_collectives(const Rank& rank, std::int64_t group) {
    std::uint64_t count = 0;
    for (std::uint32_t i = 0; i < rank.records().size(); ++i) {
        const Facts& node = rank.program().facts(i);
        count += node.type == NodeType::Coll && node.group == group && rank.records().started(i) ? 1 : 0;
    }
    return count;
}

std::vector<Stall> find_stalls(Cluster& cluster, const std::deque<Rank>& ranks) {
    std::vector<Stall> stalls;
    for (const Rank& rank : ranks) {
        if (rank.finished()) continue;
        for (const std::uint32_t i : started_and_not_ended(rank)) {
            const Node node = rank.program().node(i);
            const std::string waits = node.type == NodeType::Coll
                                          ? waits_of_collective(cluster, ranks, rank, node)
                                      : node.type == NodeType::Send || node.type == NodeType::Recv
                                          ? waits_of_message(cluster, ranks, node)
                                          : std::string("an event that never comes");
            stalls.push_back(
                {rank.id(), static_cast<std::int64_t>(node.id), node.name, operation_of(node), waits});
        }
    }
    return stalls;
}

}  // namespace chakrascope::engine
