// When the members of a phase get their last message, if messages never queue.
//
// Each member performs the same steps in sequence, and each step waits for a message from a peer's
// previous step. Times are therefore maxima of sums (max-plus algebra). The origin of each time is
// the member at which its chain of events began. If a member's own chain and that of a message meet
// in one tick, its own chain counts, because it has not waited.
#pragma once

#include <cstdint>
#include <vector>

#include "../event_queue.h"

namespace chakrascope::engine {

struct Chain {
    std::int64_t time = 0;
    std::uint32_t from = 0;  // the member at which the chain began
};

// Pass messages around a ring, one step for each entry of `sends`: member i waits for the message
// of member i - 1, which takes hops[i]. There are at least as many steps as other members. Other
// costs of the steps are not counted.
void pass_round(std::vector<Chain>& members, const std::vector<std::int64_t>& hops, std::uint64_t sends);

// Exchange messages between each member and its peer, with the latencies `delays`.
void exchange(std::vector<Chain>& members, const std::vector<std::uint32_t>& peers,
              const std::vector<std::int64_t>& delays);

}  // namespace chakrascope::engine
