#include "path_walk.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "../errors.h"

namespace chakrascope::engine {

std::size_t PathWalk::find(const RankRecords& records, std::int64_t node) const {
    const auto& ids = records.node;
    // Node ids are usually consecutive, so the row of a node is guessed from the first id.
    const auto guess =
        ids.empty() ? 0 : static_cast<std::uint64_t>(node) - static_cast<std::uint64_t>(ids[0]);
    if (guess < ids.size() && ids[guess] == node) return guess;
    const auto found = std::lower_bound(ids.begin(), ids.end(), node);
    if (found == ids.end() || *found != node) {
        throw BackendError("The result refers to node " + std::to_string(node) + " of rank " +
                           std::to_string(rank_) + ", which it does not hold; run it again.");
    }
    return static_cast<std::size_t>(found - ids.begin());
}

void PathWalk::advance(const RankRecords& records) {
    const std::int32_t here = rank_;
    while (!done_ && rank_ == here) {
        if (is_open_) {
            resolve(records);
        } else {
            visit(records);
        }
    }
}

// Read the current node of the walk, and the origin of the event that ended the node.
void PathWalk::visit(const RankRecords& records) {
    const std::size_t row = find(records, node_);
    // The clocks of measured ranks agree only approximately, so a node may appear to end too late.
    const std::int64_t end = std::min(records.end[row], until_);
    if (end < until_) steps_.push_back({rank_, -1, end, until_, rank_, -1, end, -1, false});
    open_ = {rank_, node_, 0, end, records.origin_rank[row], records.origin_node[row], records.start[row],
             -1,    false};
    is_open_ = true;
    rank_ = open_.origin_rank;
}

// Read the origin of the current node, and the node that started the origin by ending.
void PathWalk::resolve(const RankRecords& records) {
    const std::size_t row = find(records, open_.origin_node);
    open_.start = std::min(records.start[row], open_.end);
    open_.cause = records.cause[row];
    open_.cause_is_dependency = records.cause_is_dependency[row];
    steps_.push_back(open_);
    is_open_ = false;
    until_ = open_.start;
    node_ = open_.cause;
    if (node_ < 0) {
        if (until_ > 0) steps_.push_back({rank_, -1, 0, until_, rank_, -1, 0, -1, false});
        done_ = true;
    } else if (static_cast<std::int64_t>(steps_.size()) > most_steps_) {
        throw BackendError(
            "The recorded waits of the result form a cycle, so no critical path exists; run it again.");
    }
}

void lower_room(std::span<std::int64_t> room, std::span<const std::int32_t> order,
                std::span<const std::int64_t> first, std::span<const std::int32_t> waiting,
                std::span<const std::int64_t> gap) {
    // The list may contain simultaneous events in the wrong order, so backward passes are repeated until
    // no value changes.
    for (bool lowered = true; lowered;) {
        lowered = false;
        for (std::size_t place = order.size(); place-- > 0;) {
            const auto event = static_cast<std::size_t>(order[place]);
            std::int64_t least = room[event];
            for (std::int64_t i = first[event]; i < first[event + 1]; ++i) {
                const auto wait = static_cast<std::size_t>(i);
                least = std::min(least, room[static_cast<std::size_t>(waiting[wait])] + gap[wait]);
            }
            lowered |= least < room[event];
            room[event] = least;
        }
    }
}

}  // namespace chakrascope::engine
