// The configuration of a simulation. Default values are the same as in ASTRA-sim.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fabric/fabric.h"
#include "gpu/machine.h"
#include "gpu/program.h"
#include "packet/settings.h"

namespace chakrascope::engine {

// An external network simulator that runs in lockstep with the engine. The arguments are the messages
// posted since the last call (id, source, destination, bytes, ns) and a time limit (ns; -1 for no
// limit). The external network advances until a message arrives or the limit is reached. The call
// returns the messages that arrived at that instant (id, ns).
using ExternalMessage = std::tuple<std::uint64_t, std::int32_t, std::int32_t, std::uint64_t, std::int64_t>;
using ExternalArrival = std::pair<std::uint64_t, std::int64_t>;
using ExternalAdvance =
    std::function<std::vector<ExternalArrival>(const std::vector<ExternalMessage>&, std::int64_t)>;

// Creates the network that connects the rank of this process with ranks in other processes.
class EventQueue;
class Mailbox;
class Network;
using NetworkBetween = std::function<std::unique_ptr<Network>(EventQueue&, Mailbox&)>;

// The program for collectives of one kind, size and number of members. A program has one graph of
// sends, receives and computation for each position, as the content of an .et file.
struct CollectiveProgram {
    std::string collective;  // as in the keys of a system configuration, such as "all-reduce"
    std::int64_t members;
    std::uint64_t size;
    std::string name;  // unique name of the program, used in error messages
    std::vector<std::string> graphs;
};

// The GPU program for collectives of one kind, group and size. `program` is null if there is no
// program.
struct GpuCollective {
    int kind;  // Chakra's number of the collective
    std::int64_t group;
    std::uint64_t bytes;
    std::vector<std::int32_t> members;
    std::shared_ptr<const gpu::Program> program;
};

// The simulated time of a rank's computations on its GPU, and the time of the same computations without
// contention.
struct GpuUse {
    std::uint64_t compute_ns = 0;
    std::uint64_t alone_ns = 0;
};

struct GpuConfig {
    gpu::Machine machine;
    bool detailed = false;
    std::vector<GpuCollective> collectives;
};

// A node at which a rank waited for other ranks in the measured run (see `SyncPoints`).
struct SyncMember {
    std::int32_t rank;
    std::uint64_t node_id;
    std::uint32_t point;
    std::int64_t wait_ns;  // measured wait for the last rank to arrive; -1 if the rank did not wait
};

// The network models: a model without queues, a model with queues at links, a fluid model with shared
// links, and a packet-level model.
enum class NetworkModel { Unaware, Aware, Flow, Packet };

// Enums of configuration fields. config.def lists the configuration values in the same order.
enum class Semantics { AstraSim, Trace };
enum class CollectiveOptimization { Baseline, LocalBandwidth };
enum class SchedulingPolicy { Explicit, Fifo, Lifo };
enum class IntraDimensionPolicy { Fifo, LessRemainingPhaseFirst, ReduceFirst, SmallestFirst };
enum class InterDimensionPolicy { Ascending, Greedy, RoundRobin };
enum class MemoryType { Pool, None, PerNode, PerNpu };

// The source of a field's value: a key of the system or memory configuration, the network, the
// experiment, or a value computed for the run. Fields of these five origins determine how a rank runs
// its program, in any process. Local fields affect only the simulating process.
enum class FieldOrigin { System, Memory, Network, Experiment, Run, Local };

struct Config {
    using Names = std::vector<std::string>;
    using NameByNumber = std::map<std::int64_t, std::string>;
    using RanksByNumber = std::map<std::int64_t, std::vector<std::int32_t>>;
    using CountByNumber = std::map<int, int>;
    using Costs = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
    using CostsByNumber = std::map<int, Costs>;
#define ENGINE_FIELD(origin, type, member, value, values) type member = value;
#include "config.def"
#undef ENGINE_FIELD
    std::vector<CollectiveProgram> collective_programs;
    std::vector<SyncMember> sync_members;  // members of sync points, for a replay
    std::vector<std::int64_t> begin_ns;    // start time of each rank; if empty, all ranks start at 0
    NetworkModel network_model = NetworkModel::Unaware;
    ExternalAdvance external_network;      // replaces the network models if set
    NetworkBetween network_between;        // replaces the network models if set; one rank per process
    Fabric fabric;                         // replaces the network dimensions if the fabric has nodes
    packet::Settings packet;               // packet-level settings of the fabric
    std::shared_ptr<const GpuConfig> gpu;  // replaces networks; computations and collectives use it

    // Whether the network has a separate clock and runs in lockstep with the ranks, like ASTRA-sim's
    // packet-level networks.
    bool has_clock_of_its_own() const {
        return external_network || network_model == NetworkModel::Flow ||
               network_model == NetworkModel::Packet;
    }

    // Whether messages never queue in the network, so that the behaviour of a rank depends only on the
    // programs.
    bool never_queues() const {
        return network_model == NetworkModel::Unaware && !external_network && !network_between && !gpu;
    }

    // Return the bandwidth that messages reach in a network dimension, in units of 2^30 bytes/s.
    double reached_bandwidth(std::size_t dimension) const { return bandwidth[dimension] * wire_share; }

    // Whether chunks of collectives are scheduled as in ASTRA-sim.
    bool default_policies() const {
        return inter_dimension_policy == InterDimensionPolicy::Ascending &&
               intra_dimension_policy == IntraDimensionPolicy::Fifo;
    }

    std::int64_t num_ranks() const {
        std::int64_t ranks = 1;
        for (const int count : npus_count) ranks *= count;
        return ranks;
    }
};

}  // namespace chakrascope::engine
