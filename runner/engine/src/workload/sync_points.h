// The communications of a measured job in which ranks waited for each other.
//
// A replay without them repeats each measured duration, waits included, so that a rank that is made
// faster leaves its peers waiting as long as before. With them, the members of a collective or message
// that waited leave it as long after the last arrival as they did when it was measured.
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

    // A rank begins a node of this measured duration. Returns false unless the node is a member of a
    // sync point; else the node completes in time, once all members have arrived.
    bool arrive(Rank& rank, std::uint32_t node, Time duration);

  private:
    struct Member {
        std::uint32_t point;
        std::int64_t wait_ns;  // -1 for one that waited for nobody
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
