// What a library of collectives needs beside its messages.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "../config.h"
#include "../event_queue.h"
#include "../workload/program.h"

namespace chakrascope::engine {

using LibraryCosts = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

// The time by size: linear between the sizes known, that of the smallest below them, and beyond the largest
// it grows as between the last two. None where there are no sizes.
Time library_time(const LibraryCosts& points, std::uint64_t size);
// That of a collective.
Time library_time(const Config& config, CommType kind, std::uint64_t size);

}  // namespace chakrascope::engine
