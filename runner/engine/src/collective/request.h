// A collective as one rank asks for it.
#pragma once

#include <cstdint>
#include <optional>

#include "../config.h"
#include "../workload/program.h"
#include "implementation.h"

namespace chakrascope::engine {

struct Blocks;

struct CollectiveRequest {
    std::uint32_t node = 0;  // index in the rank's program
    std::uint64_t node_id = 0;
    Collective kind = Collective::AllReduce;
    std::int64_t group = 0;
    std::uint64_t size = 0;
    std::uint8_t involved = 0xFF;
    std::int64_t priority = 0;
    std::int32_t root = -1;          // the rank that is the root, -1 for the first member
    const Blocks* blocks = nullptr;  // of an uneven collective
    // Where ranks send before they ask: the pieces that are under way together; else 0.
    std::uint64_t abreast = 0;
};

// Return what a node of a collective asks for, but for its place and its root; nothing where the node takes
// its recorded time instead.
std::optional<CollectiveRequest> request_of(const Node& node, const Config& config);

}  // namespace chakrascope::engine
