// Runs a GPU program once on otherwise idle GPUs.
#pragma once

#include <functional>
#include <vector>

#include "devices.h"

namespace chakrascope::gpu {

// Convert a time in fs to ns, rounded up.
inline std::int64_t to_ns(Fs time) { return (time + kFsPerNs - 1) / kFsPerNs; }

struct Replay {
    std::vector<Fs> rank_end;  // end of each rank; -1 if the rank never ends
    std::vector<Stamp> stamps;
    std::vector<LinkReport> links;
    std::vector<Stuck> stuck;
    Counts counts;
    std::uint64_t events = 0;
    double least_credit = 1, most_credit = 1;
};

// Run a program whose ranks use the GPUs 0, 1, .... `progress` is called regularly with the time (ns) and the
// number of ranks that have ended, and may return false to raise Cancelled. Raises ConfigError for an
// impossible machine.
Replay replay(const Machine& machine, const Program& program, const Settings& settings,
              const std::function<bool(std::int64_t, std::int32_t)>& progress);

}  // namespace chakrascope::gpu
