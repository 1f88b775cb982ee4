// Who waits for whom when nothing is left to happen.
#pragma once

#include <deque>
#include <vector>

#include "cluster.h"
#include "simulation.h"

namespace chakrascope {

// Return the operations that began and never ended, with what each of them waits for.
std::vector<Stall> find_stalls(Cluster& cluster, const std::deque<Rank>& ranks);

}  // namespace chakrascope
