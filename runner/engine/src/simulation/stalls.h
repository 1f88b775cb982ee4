// Describes the waiting operations of a stalled simulation, and finds deadlocks.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "../workload/rank.h"
#include "cluster.h"
#include "simulation.h"

namespace chakrascope::engine {

// Return the operations that began and never ended, with the ranks and operations that they wait for.
std::vector<Stall> find_stalls(Cluster& cluster, const std::deque<Rank>& ranks);

// Return a cycle of operations, each of which waits for the next. The result is empty if there is no cycle,
// for example if a message is never sent. The result is always the same for the same stall.
std::vector<Blocked> find_deadlock(const Cluster& cluster, const std::deque<Rank>& ranks);

// Return the activity of a node in one word.
std::string operation_of(const Facts& node);
// Return the number of collectives of a group that the rank has begun.
std::uint64_t count_collectives(const Rank& rank, std::int64_t group);

}  // namespace chakrascope::engine
