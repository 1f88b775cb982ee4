// Which collectives of a workload cannot run as configured, without simulating it.
#pragma once

#include <string>
#include <vector>

#include "../config.h"
#include "../workload/program.h"

namespace chakrascope {

// Return for each collective what a simulation raises when it comes to it, "" where it runs. Raises
// ConfigError where nothing can be simulated at all.
std::vector<std::string> find_refusals(const Config& config, const std::vector<Node>& collectives);

}  // namespace chakrascope
