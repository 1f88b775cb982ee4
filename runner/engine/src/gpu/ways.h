// The routers of a GPU's mesh at which lines start and end, the same for all GPUs.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "mesh.h"

namespace chakrascope::gpu {

// Routers as source or destination of lines: line n takes router n, modulo their number.
using Ends = std::vector<std::int32_t>;

struct Ways {
    std::vector<Ends> units;        // identity: router n at index n
    std::vector<Ends> ports;        // by peer
    Ends memory;                    // by channel
    bool reads_everywhere = false;  // the lines of a wavefront come from every router with channels
    // Mean hops from the memory to a peer's ports, and from a peer's ports to a router.
    std::vector<double> memory_to_port;
    std::vector<std::vector<double>> port_to_unit;  // by router and peer

    Ways(const Machine& machine, const Mesh& mesh) {
        for (std::int32_t channel = 0; channel < machine.channels; ++channel)
            memory.push_back(machine.router_of_channel(channel));
        const auto routers = static_cast<std::int32_t>(std::set(memory.begin(), memory.end()).size());
        // With up to four routers, their answers arrive over separate sides, and in order.
        reads_everywhere = routers > 4 && machine.unroll >= routers;
        for (std::int32_t peer = 0; peer < machine.peers(); ++peer) {
            Ends& own = ports.emplace_back();
            const std::int32_t first = machine.first_port(peer);
            for (std::int32_t port = 0; port < machine.ports_to(peer); ++port)
                own.push_back(machine.router_of_port(first + port));
            memory_to_port.push_back(mean_hops(mesh, memory, own));
        }
        for (std::int32_t router = 0; router < machine.routers(); ++router) {
            units.push_back({router});
            auto& hops = port_to_unit.emplace_back();
            for (const Ends& own : ports) hops.push_back(mean_hops(mesh, own, units.back()));
        }
    }

  private:
    static double mean_hops(const Mesh& mesh, const Ends& from, const Ends& to) {
        double hops = 0;
        for (const std::int32_t start : from) {
            for (const std::int32_t end : to) hops += mesh.hops(start, end);
        }
        return hops / static_cast<double>(from.size() * to.size());
    }
};

}  // namespace chakrascope::gpu
