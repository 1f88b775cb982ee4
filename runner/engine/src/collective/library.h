// The overhead of a collective library, in addition to its messages.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "../config.h"
#include "../event_queue.h"
#include "../workload/program.h"

namespace chakrascope::engine {

using LibraryCosts = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

// The time by size: linear between the given sizes, constant below the smallest, and extrapolated
// from the last two beyond the largest. 0 without sizes.
Time library_time(const LibraryCosts& points, std::uint64_t size);
// The overhead of a collective.
Time library_time(const Config& config, CommType kind, std::uint64_t size);

}  // namespace chakrascope::engine
