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

struct Config {
    // Network, one entry per dimension; bandwidth in units of 2^30 bytes/s, latency in ns.
    std::vector<std::string> topology;
    std::vector<int> npus_count;
    std::vector<double> bandwidth;
    std::vector<double> latency;
    bool congestion_aware = false;
    std::vector<ConfigLink> links;           // replaces the dimensions if congestion is modelled
    std::vector<ConfigChange> link_changes;  // ascending by time
    ExternalAdvance external_network;        // replaces the analytical networks if set
    NetworkBetween network_between;          // likewise; every process has one rank
    FabricModel fabric_model = FabricModel::None;
    FabricDescription fabric;
    packet::Settings packet;               // of a fabric
    std::shared_ptr<const GpuConfig> gpu;  // replaces networks; compute and collectives run on it
    double shake_packets = 0;  // flow model: random offset of each message's time, in times of a packet
    // Command line.
    int num_queues_per_dim = 1;
    bool rendezvous = false;
    // How a rank runs its program.
    std::string semantics = "astra-sim";
    // Which operations may overtake others that wait for a peer: 0 none, 1 chunks in the queue of a
    // dimension, 2 also nodes of a lane. With trace semantics it is raised until nothing stalls.
    int overtaking = 0;
    bool replay_only = false;
    bool native_collectives =
        false;  // simulate broadcast, reduce, gather and scatter instead of replaying them
    // System.
    int preferred_dataset_splits = 1;
    int active_chunks_per_dimension = 1;
    int endpoint_delay = 10;
    int local_reduction_delay = 1;
    double local_mem_bw = 0;
    double peak_perf = 0;
    bool roofline_enabled = false;
    bool track_local_mem = false;
    std::string collective_optimization = "localBWAware";
    std::string scheduling_policy = "LIFO";
    std::string intra_dimension_policy = "FIFO";
    std::string inter_dimension_policy = "ascending";
    std::vector<std::string> all_reduce_implementation;
    std::vector<std::string> reduce_scatter_implementation;
    std::vector<std::string> all_gather_implementation;
    std::vector<std::string> all_to_all_implementation;
    std::vector<std::string> all_reduce_implementation_custom;
    std::vector<std::string> reduce_scatter_implementation_custom;
    std::vector<std::string> all_gather_implementation_custom;
    std::vector<std::string> all_to_all_implementation_custom;
    std::map<std::int64_t, std::string> per_node_custom_implementation;
    std::string custom_base;
    std::vector<CollectiveProgram> collective_programs;
    bool model_shared_bus = false;
    double L = 0, o = 0, g = 0, G = 0;
    // The library's overhead: by Chakra's number of the collective, (bytes, ns) ascending by bytes;
    // and for how long each message keeps its sender from sending the next.
    std::map<int, std::vector<std::pair<std::uint64_t, std::uint64_t>>> collective_costs;
    std::uint64_t message_cost_ns = 0;
    // For sends and receives: the library's overhead, as for collectives, and whether a message
    // waits for its receiver's request, which queues behind what the receiver sends on the same
    // path.
    std::vector<std::pair<std::uint64_t, std::uint64_t>> message_library_costs;
    bool messages_on_request = false;
    // Collectives whose ranks send before the request, so that their messages wait for requests
    // too: by Chakra's number, with the number of concurrent pieces.
    std::map<int, int> sends_first;
    // The collective that the library runs in place of one that it lacks, both by Chakra's number.
    std::map<int, int> collective_substitutes;
    // Remote memory.
    std::string memory_type = "NO_MEMORY_EXPANSION";
    double remote_mem_latency = 0;
    double remote_mem_bw = 0;
    int num_nodes = 0;
    int num_npus_per_node = 0;
    std::map<std::int64_t, std::vector<std::int32_t>> groups;
    bool fold = true;  // simulate ranks that must behave alike only once
    // Compute phases as a whole (see Meetings) if at least this many ranks are simulated; 0: never.
    int meeting_ranks = 64;
    // The representative of each rank, if the workload gives it; only representatives are
    // simulated.
    std::vector<std::int32_t> representative_of_rank;
    bool record_nodes = true;
    bool record_links = false;

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
