// The cycle in which operations wait for each other when nothing is left to happen.
#pragma once

#include <deque>
#include <vector>

#include "cluster.h"
#include "simulation.h"

namespace chakrascope::engine {

// Return the operations of one cycle, each of which waits for the next and the last for the first; empty
// where there is none, as where a message is never sent. The same stall always gives the same cycle.
std::vector<Blocked> find_deadlock(const Cluster& cluster, const std::deque<Rank>& ranks);

}  // namespace chakrascope::engine
