// The results of fabric models, in addition to the finish time of each rank. Ranks have the first device
// numbers, and switches have the next numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fabric.h"

namespace chakrascope::engine {

// A message between two ranks, from its send time to its arrival.
struct FlowRecord {
    std::int32_t source = 0;
    std::int32_t destination = 0;
    std::uint64_t bytes = 0;
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
};

// The traffic, queueing and losses of one direction of a link.
struct FabricLinkUse {
    std::int32_t source = 0;
    std::int32_t destination = 0;
    std::uint64_t bytes = 0;
    std::uint64_t packets = 0;
    std::uint64_t pauses = 0;  // pause frames that stopped its sender
    std::uint64_t drops = 0;
    std::uint64_t largest_queue_bytes = 0;
    Ticks busy = 0;
    Ticks queued = 0;  // queueing time, summed over packets
    Ticks paused = 0;
};

// The traffic of one direction of a link in one interval.
struct LinkInterval {
    std::int32_t source = 0;
    std::int32_t destination = 0;
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
    std::uint64_t bytes = 0;
};

// The effect of link changes at one time on traffic in flight.
struct ChangeRecord {
    std::int64_t time_ns = 0;
    std::uint64_t lost = 0;      // packets in flight on, or queued for, links that went down
    std::uint64_t rerouted = 0;  // number of rerouted messages
    std::uint64_t waiting = 0;   // messages without a path until a link comes back
};

struct FabricReport {
    std::vector<FlowRecord> flows;  // messages in order of their end times
    std::vector<FabricLinkUse> links;
    std::vector<LinkInterval> intervals;  // the same interval length for all links
    std::vector<std::string> flags;       // short names of effects that the model does not cover
    std::vector<ChangeRecord> changes;
    std::uint64_t data_packets = 0;
    std::uint64_t events = 0;
    std::uint32_t largest_train = 1;  // number of packets in the largest train
    bool split_trains = false;        // whether pauses split trains, or prevented trains
};

}  // namespace chakrascope::engine
