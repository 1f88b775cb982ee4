// One program run once on machines that do nothing else.
#pragma once

#include <functional>
#include <vector>

#include "devices.h"

namespace chakrascope::gpu {

// Of two whole ns, the later one.
inline std::int64_t to_ns(Fs time) { return (time + kFsPerNs - 1) / kFsPerNs; }

struct Replay {
    std::vector<Fs> rank_end;  // -1 where a rank never ends
    std::vector<Stamp> stamps;
    std::vector<LinkReport> links;
    std::vector<Stuck> stuck;
    Counts counts;
    std::uint64_t events = 0;
    double least_credit = 1, most_credit = 1;
};

// Run the program, its ranks on GPUs 0, 1 ...; progress is called now and then with the time (ns) and how
// many ranks have ended. Raises Cancelled when it returns false, and ConfigError for an impossible machine.
Replay replay(const Machine& machine, const Program& program, const Settings& settings,
              const std::function<bool(std::int64_t, std::int32_t)>& progress);

}  // namespace chakrascope::gpu
