#include "chains.h"

#include <numeric>

namespace chakrascope::engine {

// After `sends` steps, a member depends on every other member over the longest path around the ring
// with at most `sends` steps. There are as many paths as members, and each path is one step longer than
// the previous path. On the unrolled ring, these paths cover the end of one round and the beginning of
// the next round. If two paths take equally long, the origin is the nearer member.
void pass_round(std::vector<Chain>& members, const std::vector<std::int64_t>& hops, std::uint64_t sends) {
    const auto count = static_cast<std::int64_t>(members.size());
    std::vector<std::int64_t> place(members.size());  // distance along the ring
    std::partial_sum(hops.begin() + 1, hops.end(), place.begin() + 1);
    const std::int64_t round = place.back() + hops.front();
    // If messages take no time, all paths that visit every member once are equally long.
    const std::int64_t nearest = round > 0 ? static_cast<std::int64_t>(sends) - (count - 1) : 0;
    std::vector<Chain> until(members.size()), from(members.size());
    for (std::size_t i = 0; i < members.size(); ++i) {
        until[i] = {members[i].time - place[i], members[i].from};
        from[i] = until[i];
    }
    for (std::size_t i = 1; i < members.size(); ++i)
        if (until[i].time < until[i - 1].time) until[i] = until[i - 1];
    for (std::size_t i = members.size() - 1; i-- > 0;)
        if (from[i].time <= from[i + 1].time) from[i] = from[i + 1];
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t last = i - nearest;
        const std::int64_t turn = last >= 0 ? 0 : -((count - 1 - last) / count);
        const auto own = static_cast<std::size_t>(last - turn * count);
        Chain latest = until[own];
        latest.time -= turn * round;
        if (own + 1 < members.size()) {
            const std::int64_t before = from[own + 1].time - (turn - 1) * round;
            if (before > latest.time) latest = {before, from[own + 1].from};
        }
        const auto member = static_cast<std::size_t>(i);
        members[member] = {latest.time + place[member], latest.from};
    }
}

void exchange(std::vector<Chain>& members, const std::vector<std::uint32_t>& peers,
              const std::vector<std::int64_t>& delays) {
    const std::vector<Chain> sent = members;
    for (std::size_t i = 0; i < members.size(); ++i) {
        const Chain& other = sent[peers[i]];
        if (other.time + delays[i] > members[i].time) members[i] = {other.time + delays[i], other.from};
    }
}

}  // namespace chakrascope::engine
