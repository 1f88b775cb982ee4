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
    // Return the outgoing port of a packet at a node; null if there is no path.
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
    // Maximum number of packets in a train; 1 if trains would not be accurate.
    std::uint32_t train = 1;
    std::uint32_t largest_train = 1;  // packets in the largest train so far
    bool trains_misled = false;       // whether trains distorted congestion marks to which senders react
    bool split_trains = false;        // whether pauses split trains, or prevented trains
};

}  // namespace chakrascope::packet
