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
    std::int32_t root = -1;          // the root's rank; -1 for the first member
    const Blocks* blocks = nullptr;  // of an uneven collective
    // The number of concurrent pieces if ranks send before the request; else 0.
    std::uint64_t abreast = 0;
};

// Return the request of a node's collective, without its place and root; nothing if the node takes
// its recorded time instead.
std::optional<CollectiveRequest> request_of(const Node& node, const Config& config);

}  // namespace chakrascope::engine
