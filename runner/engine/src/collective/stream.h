// A stream: one chunk of a collective on one rank, with its phases and the algorithm of the current
// phase.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "implementation.h"
#include "ring.h"
#include "ties.h"

namespace chakrascope::engine {

class Algorithm;
struct Blocks;

struct Phase {
    Collective kind = Collective::AllReduce;
    Implementation implementation;
    Ring ring;
    std::uint64_t size = 0;
    std::int32_t dimension = 0;
    std::int32_t queue = 0;
    bool clockwise = true;
    std::int32_t root = 0;                // position of the root in the ring
    bool max_tree = true;                 // which of the two trees a double binary tree uses
    const std::string* custom = nullptr;  // prefix of the custom algorithm that makes up this phase
    const Blocks* blocks = nullptr;       // bytes between each pair of members of an uneven collective
    std::uint64_t part = 0, parts = 1;    // the share of the blocks that the chunk carries
};

// The state shared by all streams of one collective on a rank.
struct CollectiveRun {
    std::uint32_t node = 0;  // index in the rank's program
    std::int64_t group = 0;
    std::uint64_t streams_left = 0;
    std::int64_t priority = 0;
    std::uint64_t serial = 0;
    bool sends_first = false;  // whether all chunks start at once and their messages wait for requests
    TickWatch ends;
};

struct Stream {
    CollectiveRun* run = nullptr;  // expired if the collective ends before the stream does
    std::int64_t group = 0;        // number of the run
    std::vector<Phase> phases;
    std::uint32_t next_phase = 0;
    std::int32_t queue = -1;  // the queue that contains the stream; -1 before its first phase
    Time listed = 0;          // tick at which the stream joined its queue
    Origin listed_by;         // origin of the event that added the stream to its queue
    bool started = false;
    std::int64_t tag = 0;
    std::unique_ptr<Algorithm> algorithm;

    const Phase& phase() const { return phases[next_phase - 1]; }
};

}  // namespace chakrascope::engine
