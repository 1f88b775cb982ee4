// Who waits for whom when nothing is left to happen.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "../workload/rank.h"
#include "cluster.h"
#include "simulation.h"

namespace chakrascope::engine {

// Return the operations that began and never ended, with what each of them waits for.
std::vector<Stall> find_stalls(Cluster& cluster, const std::deque<Rank>& ranks);

// What a node does, in a word.
std::string operation_of(const Facts& node);
// How many collectives of a group the rank has begun.
std::uint64_t count_collectives(const Rank& rank, std::int64_t group);

}  // namespace chakrascope::engine
