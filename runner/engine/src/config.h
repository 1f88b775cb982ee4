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

#include "fabric/description.h"
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

// A full-duplex link between two devices: ranks are numbered first, switches after them.
struct ConfigLink {
    std::int32_t a;
    std::int32_t b;
    double bandwidth;  // units of 2^30 bytes/s
    double latency;    // ns
};

// At that time a link of the configuration changes to that bandwidth; 0: it goes down.
struct ConfigChange {
    std::int64_t time_ns;
    std::uint32_t link;
    double bandwidth;  // units of 2^30 bytes/s
};

// The program of every collective of that kind and size among this many members: one graph of
// sends, receives and computation for each position, as the content of an .et file.
struct CollectiveProgram {
    std::string collective;  // as in the keys of a system configuration, such as "all-reduce"
    std::int64_t members;
    std::uint64_t size;
    std::string name;  // in messages; no other graph has it
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

// The model that carries messages over the links of a fabric; without one, the analytical networks
// do.
enum class FabricModel { None, Flow, Packet };

// Where the value of a field comes from: keys of the system or memory configuration, the network, the
// experiment, or what is computed for a run. All of these decide how a rank runs its program, in whichever
// process; Local fields concern the process alone that simulates.
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
    std::vector<ConfigLink> links;           // replaces the dimensions if congestion is modelled
    std::vector<ConfigChange> link_changes;  // ascending by time
    ExternalAdvance external_network;        // replaces the analytical networks if set
    NetworkBetween network_between;          // likewise; every process has one rank
    FabricModel fabric_model = FabricModel::None;
    FabricDescription fabric;
    packet::Settings packet;               // of a fabric
    std::shared_ptr<const GpuConfig> gpu;  // replaces networks; compute and collectives run on it

    // Whether the network runs in step with the ranks, as ASTRA-sim's packet-level ones do.
    bool has_clock_of_its_own() const { return external_network || fabric_model != FabricModel::None; }

    // Whether chunks are scheduled as in ASTRA-sim.
    bool default_policies() const {
        return inter_dimension_policy == "ascending" && intra_dimension_policy == "FIFO";
    }

    std::int64_t num_ranks() const {
        std::int64_t ranks = 1;
        for (const int count : npus_count) ranks *= count;
        return ranks;
    }
};

}  // namespace chakrascope::engine
