// What the models of a fabric tell beside when each rank finishes.
#pragma once

#include <cstdint>
#include <vector>

namespace chakrascope::engine {

// A message between two ranks, from when it was sent to when its last byte had arrived.
struct FlowRecord {
    std::int32_t source = 0;
    std::int32_t destination = 0;
    std::uint64_t bytes = 0;
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
};

// What one direction of a link carried in a stretch of time. Nodes are the ranks, then the switches.
struct LinkStretch {
    std::int32_t source = 0;
    std::int32_t destination = 0;
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
    std::uint64_t bytes = 0;
};

struct FabricReport {
    std::vector<FlowRecord> flows;  // in the order in which they ended
    std::vector<LinkStretch> stretches;
};

}  // namespace chakrascope::engine
