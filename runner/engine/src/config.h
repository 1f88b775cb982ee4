// The configuration of a simulation; the defaults are those of ASTRA-sim.
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

// A network that simulates itself, in step with the engine. It takes the messages posted since the
// last call (id, source, destination, bytes, ns) and advances until a message arrives, but not past
// the limit (ns, -1: none). It returns the messages that arrived at that instant (id, ns).
using ExternalMessage = std::tuple<std::uint64_t, std::int32_t, std::int32_t, std::uint64_t, std::int64_t>;
using ExternalArrival = std::pair<std::uint64_t, std::int64_t>;
using ExternalAdvance =
    std::function<std::vector<ExternalArrival>(const std::vector<ExternalMessage>&, std::int64_t)>;

// Creates the network that joins this rank to those of other processes.
class EventQueue;
class Mailbox;
class Network;
using NetworkBetween = std::function<std::unique_ptr<Network>(EventQueue&, Mailbox&)>;

// The program of every collective of that kind and size among this many members: one graph of
// sends, receives and computation for each position, as the content of an .et file.
struct CollectiveProgram {
    std::string collective;  // as in the keys of a system configuration, such as "all-reduce"
    std::int64_t members;
    std::uint64_t size;
    std::string name;  // name in messages; no other graph has it
    std::vector<std::string> graphs;
};

// The GPU program of every collective of that kind, group and size; nothing where there is no
// program.
struct GpuCollective {
    int kind;  // by Chakra's number
    std::int64_t group;
    std::uint64_t bytes;
    std::vector<std::int32_t> members;
    std::shared_ptr<const gpu::Program> program;
};

// How long the computations of a rank took on its GPU, and would have taken alone on the GPU.
struct GpuUse {
    std::uint64_t compute_ns = 0;
    std::uint64_t alone_ns = 0;
};

struct GpuConfig {
    gpu::Machine machine;
    bool detailed = false;
    std::vector<GpuCollective> collectives;
};

// A node at which a rank met others when it was measured; see SyncPoints.
struct SyncMember {
    std::int32_t rank;
    std::uint64_t node_id;
    std::uint32_t point;
    std::int64_t wait_ns;  // how long it waited for the last of them; -1 for one that waited for nobody
};

// How messages are carried: they never queue, queue on links, share them in a fluid model, or as packets.
enum class NetworkModel { Unaware, Aware, Flow, Packet };

// Enums of fields; config.def has their words in the same order.
enum class Semantics { AstraSim, Trace };
enum class CollectiveOptimization { Baseline, LocalBandwidth };
enum class SchedulingPolicy { Explicit, Fifo, Lifo };
enum class IntraDimensionPolicy { Fifo, LessRemainingPhaseFirst, ReduceFirst, SmallestFirst };
enum class InterDimensionPolicy { Ascending, Greedy, RoundRobin };
enum class MemoryType { Pool, None, PerNode, PerNpu };

// Where the value of a field comes from: keys of the system or memory configuration, the network, the
// experiment, or what is computed for a run. All of these determine how a rank runs its program, in any
// process; Local fields concern only the simulating process.
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
    std::vector<SyncMember> sync_members;  // of a replay
    std::vector<std::int64_t> begin_ns;    // when each rank begins; all at 0 if empty
    NetworkModel network_model = NetworkModel::Unaware;
    ExternalAdvance external_network;      // replaces the models if set
    NetworkBetween network_between;        // replaces the models if set; every process has one rank
    Fabric fabric;                         // replaces the dimensions if it has nodes
    packet::Settings packet;               // of a fabric
    std::shared_ptr<const GpuConfig> gpu;  // replaces networks; compute and collectives run on it

    // Whether the network runs in step with the ranks, as ASTRA-sim's packet-level ones do.
    bool has_clock_of_its_own() const {
        return external_network || network_model == NetworkModel::Flow ||
               network_model == NetworkModel::Packet;
    }

    // Whether messages never queue, so that what ranks do depends on their programs alone.
    bool never_queues() const {
        return network_model == NetworkModel::Unaware && !external_network && !network_between && !gpu;
    }

    // The bandwidth that messages reach in a dimension, in units of 2^30 bytes/s.
    double reached_bandwidth(std::size_t dimension) const { return bandwidth[dimension] * wire_share; }

    // Whether chunks are scheduled as in ASTRA-sim.
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
