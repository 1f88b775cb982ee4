// Computes the times at which the members of a phase receive their last message, if messages never
// queue.
//
// Each member performs the same steps in sequence, and each step waits for a message from a peer's
// previous step. Times are therefore maxima of sums (max-plus algebra). The origin of each time is the
// member at which its chain of events began. If the chain of a member and the chain of a received
// message arrive in the same tick, the origin is the member, because the member has not waited.
#pragma once

#include <cstdint>
#include <vector>

#include "../event_queue.h"

namespace chakrascope::engine {

struct Chain {
    std::int64_t time = 0;
    std::uint32_t from = 0;  // the member at which the chain began
};

// Pass messages around a ring in `sends` steps. In each step, member i waits for the message of member
// i - 1, which takes hops[i]. The number of steps is at least the number of members minus one. Other
// costs of the steps are not counted.
void pass_round(std::vector<Chain>& members, const std::vector<std::int64_t>& hops, std::uint64_t sends);

// Exchange messages between each member and its peer, with the latencies `delays`.
void exchange(std::vector<Chain>& members, const std::vector<std::uint32_t>& peers,
              const std::vector<std::int64_t>& delays);

}  // namespace chakrascope::engine
