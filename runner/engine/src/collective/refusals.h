// Which collectives of a workload cannot run as configured, without simulating it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "../config.h"
#include "../workload/program.h"

namespace chakrascope::engine {

// Return the collectives of a program that may get different answers: of those of one kind, group, set of
// dimensions, and size 0 or above, or with `sizes` of one size, the first. Those of `apart` stand for
// themselves.
std::vector<Node> distinct_collectives(const Program& program, const std::set<std::uint64_t>& apart,
                                       bool sizes);

// Return for each collective what a simulation raises when it comes to it, "" where it runs. Raises
// ConfigError where nothing can be simulated at all.
std::vector<std::string> find_refusals(const Config& config, const std::vector<Node>& collectives);

}  // namespace chakrascope::engine
