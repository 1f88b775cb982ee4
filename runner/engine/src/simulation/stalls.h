// Describes which operations wait for which when a simulation stalls, and finds deadlocks.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "../workload/rank.h"
#include "cluster.h"
#include "simulation.h"

namespace chakrascope::engine {

// Return the operations that began and never ended, with the ranks and operations they wait for.
std::vector<Stall> find_stalls(Cluster& cluster, const std::deque<Rank>& ranks);

// Return the operations of one cycle, each of which waits for the next and the last for the first.
// It is empty without a cycle, for example if a message is never sent. The same stall always gives
// the same cycle.
std::vector<Blocked> find_deadlock(const Cluster& cluster, const std::deque<Rank>& ranks);

// The activity of a node in one word.
std::string operation_of(const Facts& node);
// The number of collectives of a group that the rank has begun.
std::uint64_t count_collectives(const Rank& rank, std::int64_t group);

}  // namespace chakrascope::engine
