// What everything in one packet simulation shares.
#pragma once

#include "clock.h"
#include "packet.h"
#include "settings.h"

namespace chakrascope::packet {

class Port;

// Says where packets leave a node, once links have changed since their senders chose a path for them.
class Router {
  public:
    virtual ~Router() = default;
    // Null if there is no way.
    virtual Port* way_out(std::int32_t node, const Packet& packet) = 0;
};

struct World {
    explicit World(const Settings& chosen)
        : settings(chosen), full_bytes(chosen.payload_bytes + chosen.header_bytes()) {
        clock.seed(chosen.seed);
    }

    const Settings settings;
    const std::uint32_t full_bytes;  // of a data packet that is not the last of its message
    Clock clock;
    PacketPool pool;
    Router* router = nullptr;  // null as long as packets keep to their paths
    // The most packets of a train: 1 where trains would not be true to their packets.
    std::uint32_t train = 1;
    std::uint32_t largest_train = 1;  // sent so far
    bool trains_misled = false;       // senders may come to heed marks that depend on trains
    bool trains_apart = false;        // some were taken apart near pauses, or not made there
};

}  // namespace chakrascope::packet
