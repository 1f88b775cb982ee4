// Runs one rank of a job on a real network in real time, and returns its measurements.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../config.h"
#include "../simulation/statistics.h"
#include "../workload/program.h"
#include "network.h"
#include "reporter.h"
#include "transport.h"

namespace chakrascope::engine {

// An operation that began but did not end.
struct OpenOperation {
    std::int64_t node_id;
    std::string name;
    std::string operation;
};

struct EmulationOutput {
    std::int64_t finish_ns = -1;  // -1 if the run stopped before the rank finished
    Statistics statistics;
    std::uint64_t nodes_total = 0, nodes_executed = 0, events = 0, overtaken = 0, replayed = 0, evened = 0;
    // Columns with one entry per executed node of the rank. An origin on another rank is an index into
    // the program of that rank.
    std::vector<std::int32_t> node_index;
    std::vector<std::int64_t> node_id, node_start_ns, node_end_ns, node_cause;
    std::vector<std::uint8_t> node_cause_is_dependency;
    std::vector<std::int32_t> node_origin_rank, node_origin_index;
    Traffic traffic;
    std::vector<OpenOperation> open;
};

// Run the program of `rank` in real time from `start` of the monotonic clock, with its messages on the
// transport, until `progress` returns false. A separate thread calls `progress` about fifty times a
// second. A finished rank continues to receive and answer messages of other ranks. The programs of
// other ranks determine the messages that this rank receives. Raises the errors of `simulate` and of
// `progress`, and BackendError for a lost peer.
EmulationOutput emulate(const Config& config, const std::vector<std::shared_ptr<const Program>>& programs,
                        const std::vector<std::int32_t>& program_of_rank, std::int32_t rank,
                        emulation::Transport& transport, emulation::Time start,
                        const emulation::Reporter::Tell& progress);

}  // namespace chakrascope::engine
