// The description of a fabric (nodes, links and link changes), used by every network model.
#pragma once

#include <cstdint>
#include <vector>

namespace chakrascope::engine {

using Ticks = std::int64_t;  // picoseconds
constexpr Ticks kTicksPerNs = 1000;

// A full-duplex link between two nodes. `loss` is the share of packets that the link loses.
struct FabricLink {
    std::int32_t a = 0;
    std::int32_t b = 0;
    std::uint64_t rate_bps = 0;
    std::int64_t delay_ps = 0;
    double loss = 0;
};

// A change of a link's rate at a given time. A link with rate 0 is down.
struct LinkChange {
    Ticks time = 0;
    std::uint32_t link = 0;
    std::uint64_t rate_bps = 0;
};

// The nodes and links of a network. Nodes are numbered from 0. All nodes that are not switches are
// hosts, which do not forward packets.
struct Fabric {
    std::int32_t nodes = 0;
    std::vector<std::int32_t> switches;
    std::vector<std::int32_t> hosts;  // the node of each rank, ascending
    std::vector<FabricLink> links;
    std::vector<LinkChange> changes;  // ascending by time
};

// Return the device number of each node: ranks have the first numbers, and switches have the next
// numbers.
inline std::vector<std::int32_t> number_devices(const Fabric& fabric) {
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(fabric.nodes), -1);
    std::int32_t next = 0;
    for (const std::int32_t host : fabric.hosts) numbers[static_cast<std::size_t>(host)] = next++;
    for (std::int32_t& number : numbers) {
        if (number < 0) number = next++;
    }
    return numbers;
}

}  // namespace chakrascope::engine
