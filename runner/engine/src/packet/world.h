// The shared state of a packet simulation: settings, clock, packet pool and router.
#pragma once

#include "clock.h"
#include "packet.h"
#include "settings.h"

namespace chakrascope::packet {

class Port;

// Chooses outgoing ports when links have changed since the sender chose the path.
class Router {
  public:
    virtual ~Router() = default;
    // Return a packet's outgoing port at a node; null without a path.
    virtual Port* way_out(std::int32_t node, const Packet& packet) = 0;
};

struct World {
    explicit World(const Settings& chosen)
        : settings(chosen), full_bytes(chosen.payload_bytes + chosen.header_bytes()) {
        clock.seed(chosen.seed);
    }

    const Settings settings;
    const std::uint32_t full_bytes;  // payload of a data packet other than a message's last
    Clock clock;
    PacketPool pool;
    Router* router = nullptr;  // chooses ports; null until a path changes
    // Packets in a train at most; 1 if trains would not be accurate.
    std::uint32_t train = 1;
    std::uint32_t largest_train = 1;  // packets in the largest train so far
    bool trains_misled = false;       // senders may react to congestion marks that depend on trains
    bool split_trains = false;        // some trains were split, or not formed, near pauses
};

}  // namespace chakrascope::packet
