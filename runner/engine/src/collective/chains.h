// When the members of a phase get their last message, where no message keeps another waiting.
//
// Each member does the same steps one after the other, and each step waits for a message of a peer's step
// before: times are maxima of sums (max-plus algebra), and what leads to each is the member whose start the
// chain of events began with. Where a member's own chain and that of a message meet in one tick, its own
// counts, as it has not waited.
#pragma once

#include <cstdint>
#include <vector>

#include "../event_queue.h"

namespace chakrascope::engine {

struct Chain {
    std::int64_t time = 0;
    std::uint32_t from = 0;  // the member that it began with
};

// Pass messages round a ring, a step for each of `sends`: member i waits for what i - 1 sends, which takes
// hops[i]. There are at least as many steps as other members; what the steps take beside is not counted.
void pass_round(std::vector<Chain>& members, const std::vector<std::int64_t>& hops, std::uint64_t sends);

// Exchange messages between each member and its peer, which take `delays` to each.
void exchange(std::vector<Chain>& members, const std::vector<std::uint32_t>& peers,
              const std::vector<std::int64_t>& delays);

}  // namespace chakrascope::engine
