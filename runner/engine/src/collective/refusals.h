// Finds collectives of a workload that cannot run with the configuration, without simulating the
// workload.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "../config.h"
#include "../workload/program.h"

namespace chakrascope::engine {

// Return representatives of the collectives of a program: one collective of each kind, group, set of
// dimensions and size. If `sizes` is false, only zero and nonzero sizes are distinguished. All
// collectives of the nodes in `separate` are returned.
std::vector<Node> distinct_collectives(const Program& program, const std::set<std::uint64_t>& separate,
                                       bool sizes);

// Return the error that a simulation would raise for each collective, or "" for a collective that can
// run. Raises ConfigError if no collective can be simulated.
std::vector<std::string> find_refusals(const Config& config, const std::vector<Node>& collectives);

}  // namespace chakrascope::engine
