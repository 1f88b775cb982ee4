// Finds the collectives of a workload that cannot run as configured, without simulating it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "../config.h"
#include "../workload/program.h"

namespace chakrascope::engine {

// Return representatives of the collectives of a program: the first of each kind, group, set of
// dimensions, and size (only whether it is 0 if `sizes` is false). Collectives of the nodes in `apart` are
// all returned.
std::vector<Node> distinct_collectives(const Program& program, const std::set<std::uint64_t>& apart,
                                       bool sizes);

// Return for each collective the error that a simulation would raise for it, "" if it runs. Raises
// ConfigError if nothing can be simulated at all.
std::vector<std::string> find_refusals(const Config& config, const std::vector<Node>& collectives);

}  // namespace chakrascope::engine
