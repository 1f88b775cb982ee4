// The machine that runs collectives as GPU programs: its GPUs, their compute units, and the networks in and
// between them.
#pragma once

#include <cmath>
#include <cstdint>

namespace chakrascope::gpu {

// Times in femtoseconds, so that rounding a line's time does not matter even on the fastest link.
using Fs = std::int64_t;
constexpr Fs kFsPerNs = 1'000'000;
constexpr std::uint32_t kLineBytes = 128;

inline Fs to_fs(double ns) { return static_cast<Fs>(std::llround(ns * static_cast<double>(kFsPerNs))); }

struct Machine {
#define MACHINE_FIELD(path, type, member, value) type member = value;
#include "machine.def"
#undef MACHINE_FIELD

    std::int32_t routers() const { return columns * rows; }
    std::int32_t router_of_unit(std::int32_t unit) const {
        return static_cast<std::int32_t>(std::int64_t{unit} * routers() / units);
    }
    // Return the router of a memory channel. Memory channels are spread over the top and bottom rows, and
    // ports over the left and right columns.
    std::int32_t router_of_channel(std::int32_t channel) const {
        const std::int32_t place = channel % (rows > 1 ? 2 * columns : columns);
        return place < columns ? place : (rows - 1) * columns + place - columns;
    }
    std::int32_t router_of_port(std::int32_t port) const {
        const std::int32_t place = port % (columns > 1 ? 2 * rows : rows);
        return place < rows ? place * columns : (place - rows) * columns + columns - 1;
    }
    // Return the number of peers of a GPU in its node. `first_port` and `ports_to` are the ports to one of
    // these peers.
    std::int32_t peers() const { return direct ? gpus - 1 : 1; }
    std::int32_t first_port(std::int32_t peer) const { return ports * peer / peers(); }
    std::int32_t ports_to(std::int32_t peer) const { return first_port(peer + 1) - first_port(peer); }
    // Return the index of the GPU `to` among the peers of the GPU `from` in the same node.
    std::int32_t peer_of(std::int32_t from, std::int32_t to) const {
        const std::int32_t own = from % gpus, other = to % gpus;
        return direct ? (other > own ? other - 1 : other) : 0;
    }
};

}  // namespace chakrascope::gpu
