// Finds the cycle of operations that wait for each other in a deadlock.
#pragma once

#include <deque>
#include <vector>

#include "cluster.h"
#include "simulation.h"

namespace chakrascope::engine {

// Return the operations of one cycle, each of which waits for the next and the last for the first.
// It is empty without a cycle, for example if a message is never sent. The same stall always gives
// the same cycle.
std::vector<Blocked> find_deadlock(const Cluster& cluster, const std::deque<Rank>& ranks);

}  // namespace chakrascope::engine
