// What a library of collectives needs beside its messages.
#pragma once

#include "../config.h"
#include "../event_queue.h"
#include "../workload/program.h"

namespace chakrascope::engine {

// The time by size: linear between the sizes known, that of the smallest below them, and beyond the largest
// it grows as between the last two. None where the configuration has none for the collective.
Time library_time(const Config& config, CommType kind, std::uint64_t size);

}  // namespace chakrascope::engine
