// What spreads over which links of a GPU's mesh, the same for all GPUs.
#pragma once

#include <numeric>
#include <vector>

#include "mesh.h"

namespace chakrascope::gpu {

struct Ways {
    std::vector<Spread> unit_to_memory, memory_to_unit;           // by router
    std::vector<std::vector<Spread>> unit_to_port, port_to_unit;  // by router and peer
    std::vector<Spread> port_to_memory, memory_to_port;           // by peer

    Ways(const Machine& machine, const Mesh& mesh) {
        std::vector<std::int32_t> memory;
        for (std::int32_t channel = 0; channel < machine.channels; ++channel)
            memory.push_back(machine.router_of_channel(channel));
        std::vector<std::vector<std::int32_t>> ports(static_cast<std::size_t>(machine.peers()));
        for (std::size_t peer = 0; peer < ports.size(); ++peer) {
            const std::int32_t first = machine.first_port(static_cast<std::int32_t>(peer));
            for (std::int32_t port = 0; port < machine.ports_to(static_cast<std::int32_t>(peer)); ++port)
                ports[peer].push_back(machine.router_of_port(first + port));
        }
        for (std::int32_t router = 0; router < machine.routers(); ++router) {
            unit_to_memory.push_back(mesh.spread({router}, memory));
            memory_to_unit.push_back(mesh.spread(memory, {router}));
            auto& out = unit_to_port.emplace_back();
            auto& in = port_to_unit.emplace_back();
            for (const auto& some : ports) {
                out.push_back(mesh.spread({router}, some));
                in.push_back(mesh.spread(some, {router}));
            }
        }
        for (const auto& some : ports) {
            port_to_memory.push_back(mesh.spread(some, memory));
            memory_to_port.push_back(mesh.spread(memory, some));
        }
    }
};

}  // namespace chakrascope::gpu
