// What the models of a fabric tell beside when each rank finishes. Nodes are the ranks, then the switches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "description.h"

namespace chakrascope::engine {

// A message between two ranks, from when it was sent to when it had arrived.
struct FlowRecord {
    std::int32_t source = 0;
    std::int32_t destination = 0;
    std::uint64_t bytes = 0;
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
};

// What one direction of a link carried.
struct FabricLinkUse {
    std::int32_t source = 0;
    std::int32_t destination = 0;
    std::uint64_t bytes = 0;
    std::uint64_t packets = 0;
    std::uint64_t pauses = 0;  // told to its sender
    std::uint64_t drops = 0;
    std::uint64_t largest_queue_bytes = 0;
    Ticks busy = 0;
    Ticks queued = 0;  // the sum over packets
    Ticks paused = 0;
};

// What one direction of a link carried in a stretch of time, if anything.
struct LinkStretch {
    std::int32_t source = 0;
    std::int32_t destination = 0;
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
    std::uint64_t bytes = 0;
};

// What changes of links at one time did to what was under way.
struct ChangeRecord {
    std::int64_t time_ns = 0;
    std::uint64_t lost = 0;      // packets on links that went down, and waiting for them
    std::uint64_t rerouted = 0;  // messages
    std::uint64_t waiting = 0;   // messages that have no way until a link comes back
};

struct FabricReport {
    std::vector<FlowRecord> flows;  // in the order in which they ended
    std::vector<FabricLinkUse> links;
    std::vector<LinkStretch> stretches;  // equally long for all links
    std::vector<std::string> flags;      // short names of what a model is known to be bad at
    std::vector<ChangeRecord> changes;
    std::uint64_t data_packets = 0;
    std::uint64_t events = 0;
    std::uint32_t largest_train = 1;  // packets that travelled as one event
    bool trains_apart = false;        // packets travelled by themselves where pauses were near
};

}  // namespace chakrascope::engine
