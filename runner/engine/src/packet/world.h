// What everything in one packet simulation shares.
#pragma once

#include "clock.h"
#include "packet.h"
#include "settings.h"

namespace chakrascope::packet {

struct World {
    explicit World(const Settings& chosen) : settings(chosen) { clock.seed(chosen.seed); }

    const Settings settings;
    Clock clock;
    PacketPool pool;
};

}  // namespace chakrascope::packet
