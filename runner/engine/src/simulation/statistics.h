// Totals over the nodes of a rank. If nodes have no kinds, the totals equal those of ASTRA-sim.
#pragma once

#include "../config.h"
#include "../workload/rank.h"

namespace chakrascope::engine {

struct Statistics {
    std::int64_t compute = 0;       // union of the intervals in which the rank computes, ns
    std::int64_t comm = 0;          // union of the intervals in which the rank communicates, ns
    std::int64_t overlap = 0;       // time in which the rank both computes and communicates, ns
    std::int64_t exposed = 0;       // exposed communication, ns
    std::int64_t copy = 0;          // union of the intervals in which the rank copies, ns
    std::int64_t exposed_copy = 0;  // time of copies alone, ns
    double compute_bound = 0;       // four roofline values, as fractions of the time of compute nodes
    double compute_utilization = 0;
    double memory_utilization = 0;
    double operation_intensity = 0;
};

Statistics statistics_of(const Rank& rank, const Config& config);

}  // namespace chakrascope::engine
