// Runs a simulation, from programs to results.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../config.h"
#include "../network/network.h"
#include "../workload/program.h"
#include "../workload/records.h"
#include "statistics.h"

namespace chakrascope::engine {

// The description of an operation that began and never ended.
struct Stall {
    std::int32_t rank;
    std::int64_t node_id;
    std::string name;
    std::string operation;
    std::string waits_for;
};

// An operation in a deadlock, which has begun or cannot begin.
struct Blocked {
    std::int32_t rank;
    std::int64_t node_id;
    std::string name;
    std::string operation;
    bool begun;
};

// Node records of a simulated rank.
struct RankNodes {
    std::int32_t rank;
    std::shared_ptr<const Program> program;
    Records records;
    std::uint64_t executed;
};

struct Output {
    std::vector<std::int64_t> rank_finish_ns;  // -1 for a rank that never finishes
    std::vector<Statistics> rank_statistics;
    std::vector<std::int32_t> finish_order;
    // Each rank's representative; without a fold, the rank itself.
    std::vector<std::int32_t> rank_representative;
    std::vector<RankNodes> nodes;  // records of the simulated ranks, in order
    // Each rank's program, if only representatives were simulated.
    std::vector<std::shared_ptr<const Program>> rank_program;
    std::vector<LinkUse> links;
    FabricReport fabric;
    bool misled_by_trains = false;  // other fields are invalid; repeat without trains
    std::vector<GpuUse> gpu_use;    // compute times by rank; empty without GPUs
    std::vector<Stall> unfinished;
    std::vector<Blocked> deadlock;  // cycle in which each operation waits for the next
    std::int64_t makespan_ns = 0;
    std::uint64_t nodes_total = 0, nodes_executed = 0, events = 0;
    bool folded = false;
    int overtaking = 0;           // final value of Config::overtaking
    std::uint64_t overtaken = 0;  // number of chunks and nodes that overtook other chunks or nodes
    std::uint64_t replayed = 0;   // collectives replayed with recorded times
    // Upper bound of the number of collectives whose unequal amounts were ignored.
    std::uint64_t evened = 0;
    Undercharged undercharged;
};

// Called regularly with the simulated time and the number of finished ranks; returns false to cancel.
using Progress = std::function<bool(std::int64_t, std::int32_t)>;

// Raise ConfigError for a network or system that cannot simulate anything.
void check_config(const Config& config);

// Simulate a workload; `program_of_rank` has the index of each rank's program. Raises ConfigError,
// WorkloadFormatError, DependencyError or Cancelled.
Output simulate(const Config& config, const std::vector<std::shared_ptr<const Program>>& programs,
                const std::vector<std::int32_t>& program_of_rank, const Progress& progress);

}  // namespace chakrascope::engine
