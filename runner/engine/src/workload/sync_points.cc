#include "sync_points.h"

#include <algorithm>

#include "rank.h"

namespace chakrascope::engine {

SyncPoints::SyncPoints(const Config& config, EventQueue& events) : events_(events) {
    if (config.sync_members.empty()) return;
    members_.resize(static_cast<std::size_t>(config.num_ranks()));
    for (const SyncMember& one : config.sync_members) {
        if (one.rank < 0 || one.rank >= config.num_ranks())
            throw ConfigError("A sync point names rank " + std::to_string(one.rank) +
                              ", which does not exist.");
        if (one.point >= points_.size()) points_.resize(std::size_t{one.point} + 1);
        ++points_[one.point].missing;
        members_[static_cast<std::size_t>(one.rank)][one.node_id] = {one.point, one.wait_ns};
    }
}

bool SyncPoints::arrive(Rank& rank, std::uint32_t node, Time duration) {
    if (members_.empty()) return false;
    const auto& own = members_[static_cast<std::size_t>(rank.id())];
    const auto member = own.find(rank.program().id(node));
    if (member == own.end()) return false;
    Point& point = points_[member->second.point];
    const std::int64_t wait = member->second.wait_ns;
    if (wait < 0)
        events_.after(rank.id(), duration, bind<&Rank::complete>(&rank, node));
    else
        point.waiting.push_back({&rank, node, duration - std::min(duration, static_cast<Time>(wait))});
    if (--point.missing > 0) return true;
    // The origin of the current event is the last member to arrive. All other members have waited for
    // this member.
    for (const Waiting& one : point.waiting)
        events_.after(one.rank->id(), one.transfer, bind<&Rank::complete>(one.rank, one.node));
    return true;
}

}  // namespace chakrascope::engine
