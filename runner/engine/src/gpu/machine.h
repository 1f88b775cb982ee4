// The machine that runs collectives as programs: GPUs of compute units, and the networks in and between them.
#pragma once

#include <cmath>
#include <cstdint>

namespace chakrascope::gpu {

// Femtoseconds: fine enough that rounding a line's time on the widest link does not matter.
using Fs = std::int64_t;
constexpr Fs kFsPerNs = 1'000'000;
constexpr std::uint32_t kLineBytes = 128;

inline Fs to_fs(double ns) { return static_cast<Fs>(std::llround(ns * static_cast<double>(kFsPerNs))); }

// Parameters of one GPU; bandwidths in bytes per ns, times in ns. A line is the size of one
// request.
struct Machine {
    // Compute units, evenly spread over the routers.
    std::int32_t units = 1;
    std::int32_t workgroups_per_unit = 1;
    std::int32_t unroll = 1;              // lines in flight per wavefront
    std::int32_t requests_per_unit = 64;  // lines
    double unit_bytes_per_ns = 1;         // each way
    double reduce_bytes_per_ns = 1;       // of inputs
    double launch_ns = 0, op_ns = 0, sync_ns = 0, poll_ns = 0, fence_ns = 0;
    std::int32_t compute_waves = 8;
    double compute_memory_share = 0;
    // On-chip network; memory channels at the top and bottom rows, ports at the left and right columns.
    std::int32_t columns = 1, rows = 1;
    double mesh_bytes_per_ns = 1;  // of a directed link
    double hop_ns = 0;
    std::int32_t virtual_channels = 4;  // for each class of traffic that may not wait for another
    std::int32_t buffer_flits = 64;     // per virtual channel of a link
    std::int32_t flit_bytes = 32;
    bool priority = false;  // of requests without data in routers; else round-robin
    // Memory.
    std::int32_t channels = 1;
    double memory_bytes_per_ns = 1;  // all channels
    double memory_ns = 0;
    // Scale-up: the GPUs of a node.
    std::int32_t gpus = 1;
    std::int32_t ports = 1;
    double port_bytes_per_ns = 1;  // all ports, each way
    double link_ns = 0;            // port to port
    bool direct = false;           // each peer has its share of the ports; else switches connect all GPUs
    std::uint32_t header_bytes = 0, control_bytes = 16, acknowledge_bytes = 0;
    bool multicast = false;
    double switch_reduce_ns = 0;
    double switch_reduce_bytes_per_ns = 0;  // per GPU; 0: as fast as the links
    // Scale-out: between nodes.
    double nic_bytes_per_ns = 1;
    double nic_ns = 0;
    double proxy_ns = 0;
    // Whether requests without data wait for at most one line; else for all earlier ones.
    bool fair = false;

    std::int32_t routers() const { return columns * rows; }
    std::int32_t router_of_unit(std::int32_t unit) const {
        return static_cast<std::int32_t>(std::int64_t{unit} * routers() / units);
    }
    // Channels are spread over the routers of the top and bottom rows, ports over those of both
    // sides.
    std::int32_t router_of_channel(std::int32_t channel) const {
        const std::int32_t place = channel % (rows > 1 ? 2 * columns : columns);
        return place < columns ? place : (rows - 1) * columns + place - columns;
    }
    std::int32_t router_of_port(std::int32_t port) const {
        const std::int32_t place = port % (columns > 1 ? 2 * rows : rows);
        return place < rows ? place * columns : (place - rows) * columns + columns - 1;
    }
    // The ports to a peer: the first, and their number; peers are counted within the node.
    std::int32_t peers() const { return direct ? gpus - 1 : 1; }
    std::int32_t first_port(std::int32_t peer) const { return ports * peer / peers(); }
    std::int32_t ports_to(std::int32_t peer) const { return first_port(peer + 1) - first_port(peer); }
    // The index of a GPU among the peers of another GPU of the same node.
    std::int32_t peer_of(std::int32_t from, std::int32_t to) const {
        const std::int32_t own = from % gpus, other = to % gpus;
        return direct ? (other > own ? other - 1 : other) : 0;
    }
};

}  // namespace chakrascope::gpu
