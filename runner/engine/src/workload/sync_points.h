// The sync points of a replay: communications of a measured job in which ranks waited for each other.
//
// A replay without sync points repeats each measured duration, including waits. If a rank is made
// faster, its peers still wait for the measured time. With sync points, members that waited in a
// collective or message end the operation after the last arrival, with the measured delay.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "../config.h"
#include "../event_queue.h"

namespace chakrascope::engine {

class Rank;

class SyncPoints {
  public:
    SyncPoints(const Config& config, EventQueue& events);

    // Begin a node with its measured duration. Returns false if the node is not a member of a sync
    // point. A member of a sync point completes once all members have arrived.
    bool arrive(Rank& rank, std::uint32_t node, Time duration);

  private:
    struct Member {
        std::uint32_t point;
        std::int64_t wait_ns;  // -1 if the rank did not wait
    };
    struct Waiting {
        Rank* rank;
        std::uint32_t node;
        Time transfer;
    };
    struct Point {
        std::uint32_t missing = 0;
        std::vector<Waiting> waiting;
    };

    EventQueue& events_;
    std::vector<std::unordered_map<std::uint64_t, Member>> members_;  // by rank and node id
    std::vector<Point> points_;
};

}  // namespace chakrascope::engine
