// Describes the operations that wait for each other in a stalled simulation, and finds deadlocks.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "../workload/rank.h"
#include "cluster.h"
#include "simulation.h"

namespace chakrascope::engine {

// Return the operations that began but never ended, with the ranks and operations for which they wait.
std::vector<Stall> find_stalls(Cluster& cluster, const std::deque<Rank>& ranks);

// Return the operations of a deadlock cycle. Each operation waits for the next operation, and the
// last operation waits for the first. The result is empty if there is no cycle, for example if a
// message is never sent. For the same stall, the result is always the same cycle.
std::vector<Blocked> find_deadlock(const Cluster& cluster, const std::deque<Rank>& ranks);

// Return the activity of a node in one word.
std::string operation_of(const Facts& node);
// Return the number of collectives of a group that the rank has begun.
std::uint64_t count_collectives(const Rank& rank, std::int64_t group);

}  // namespace chakrascope::engine
