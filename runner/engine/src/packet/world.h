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
    explicit World(const Settings& chosen) : settings(chosen) { clock.seed(chosen.seed); }

    const Settings settings;
    Clock clock;
    PacketPool pool;
    Router* router = nullptr;  // null as long as packets keep to their paths
};

}  // namespace chakrascope::packet
