#include "statistics.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace chakrascope::engine {
namespace {

using Intervals = std::vector<std::pair<std::int64_t, std::int64_t>>;

std::int64_t length_of_union(Intervals& intervals) {
    std::sort(intervals.begin(), intervals.end());
    std::int64_t total = 0, start = 0, end = -1;
    for (const auto& [from, to] : intervals) {
        if (end >= 0 && from <= end) {
            end = std::max(end, to);
            continue;
        }
        if (end >= 0) total += end - start;
        start = from;
        end = to;
    }
    return end >= 0 ? total + end - start : 0;
}

// Return the activity of a node. The type of a node determines whether the node communicates, and the kind
// determines any other activity.
Work work_of(const Facts& node) {
    if (node.type == NodeType::Coll || node.type == NodeType::Send || node.type == NodeType::Recv)
        return Work::Communicates;
    return node.type == NodeType::Comp && !node.is_cpu ? node.work : Work::Neither;
}

void add_roofline(Statistics& statistics, const Rank& rank, const Config& config) {
    const double peak = config.peak_perf * 1000000000000.0, memory = config.local_mem_bw * 1000000000.0;
    double total = 1;
    for (std::uint32_t i = 0; i < rank.records().size(); ++i) {
        const Facts& node = rank.program().facts(i);
        const NodeRecord record = rank.records()[i];
        if (node.type != NodeType::Comp || node.work == Work::Communicates || record.end < 0) continue;
        const auto time = static_cast<double>(record.end - record.start);
        total += time;
        if (node.is_cpu || node.tensor_size == 0 || config.replay_only) continue;
        const Roofline roofline = Roofline::of(node, config);
        if (roofline.performance >= peak) statistics.compute_bound += time;
        statistics.compute_utilization += time * (roofline.performance / peak);
        statistics.memory_utilization += time * (roofline.performance / roofline.intensity / memory);
        statistics.operation_intensity += time * roofline.intensity;
    }
    for (double* value : {&statistics.compute_bound, &statistics.compute_utilization,
                          &statistics.memory_utilization, &statistics.operation_intensity}) {
        *value /= total;
    }
}

}  // namespace

Statistics statistics_of(const Rank& rank, const Config& config) {
    Statistics statistics;
    Intervals compute, comm, copy, both, all;
    const Records& records = rank.records();
    for (std::uint32_t i = 0; i < records.size(); ++i) {
        const Facts& node = rank.program().facts(i);
        if (!records.ended(i)) continue;
        const Work work = work_of(node);
        if (work == Work::Neither) continue;
        const std::pair<std::int64_t, std::int64_t> interval{records.start(i), records.end(i)};
        (work == Work::Computes ? compute : work == Work::Copies ? copy : comm).push_back(interval);
        if (work != Work::Copies) both.push_back(interval);
    }
    all = both;
    all.insert(all.end(), copy.begin(), copy.end());
    const std::int64_t busy = length_of_union(both);
    statistics.compute = length_of_union(compute);
    statistics.comm = length_of_union(comm);
    statistics.overlap = statistics.compute + statistics.comm - busy;
    statistics.copy = length_of_union(copy);
    statistics.exposed_copy = copy.empty() ? 0 : length_of_union(all) - busy;
    if (config.semantics == Semantics::Trace) {
        statistics.exposed = statistics.comm - statistics.overlap;
    } else if (rank.finished()) {
        // In ASTRA-sim, all time without computation is exposed communication, and the difference may wrap
        // around.
        statistics.exposed =
            static_cast<std::int64_t>(static_cast<std::uint64_t>(rank.finish_time()) - rank.compute_sum());
    }
    if (config.roofline_enabled) add_roofline(statistics, rank, config);
    return statistics;
}

}  // namespace chakrascope::engine
